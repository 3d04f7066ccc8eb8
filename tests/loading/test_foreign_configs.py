"""A configuration of somebody else's means what its class takes, or is refused by its field."""

import re

import pytest
import torch
from foreign_folders import CONFIG, MODELS, some_tokens
from tables import each

import interp
from interp.errors import ModelLoadError
from interp.loading.folder import MOST_CONFIG
from interp.loading.foreign_config import ACTIVATIONS, MOST_SHOWN, Raw
from interp.loading.registry import families
from interp.loading.source import Files

# Which family it is.


def test_an_unknown_family_is_refused_with_those_that_are_known(folder):
    folder.says(model_type="gpt17")
    known = ", ".join(sorted(families()))
    assert "gpt2" in known
    assert "llama" in known
    with pytest.raises(ModelLoadError, match=re.escape(f"'gpt17'; this toolkit knows {known}.")):
        interp.load(folder.path)


@each("kind", [None, 3, ["gpt2"], {}, "", "GPT2"])
def test_a_model_type_that_is_none_is_refused(kind, folder):
    folder.says(model_type=kind)
    with pytest.raises(ModelLoadError, match=re.escape(f"model_type={kind!r}")):
        interp.load(folder.path)


def test_without_a_model_type_a_configuration_is_read_as_our_own(folder):
    folder.lacks("model_type")
    with pytest.raises(ModelLoadError, match=r"config.json does not describe .* config has no"):
        interp.load(folder.path)


# Text that is no configuration.


@each(
    ("content", "said"),
    [
        (b"", "does not describe a model"),
        (b"{'model_type': 'gpt2'}", "does not describe a model"),
        (b'{"model_type": "gpt2"', "does not describe a model"),
        (b'["gpt2"]', "no object with fields"),
        (b'"gpt2"', "no object with fields"),
        (b"null", "no object with fields"),
        (b"\xff\xfe\x00", "does not describe a model"),
        (b"[" * 100_000, "does not describe a model"),
        (b'{"model_type": "gpt2", "layer_norm_epsilon": NaN}', "NaN is no number"),
        (b'{"model_type": "gpt2", "initializer_range": -Infinity}', "-Infinity is no number"),
        (b'{"n_embd": 1' + b"0" * 5000 + b"}", "does not describe a model"),
    ],
)
def test_text_that_describes_no_model_is_refused(content, said, folder):
    (folder.path / CONFIG).write_bytes(content)
    with pytest.raises(ModelLoadError, match=rf"{folder.path.name}.*{CONFIG}.*{said}"):
        interp.load(folder.path)


def test_a_configuration_larger_than_any_is_not_read(folder):
    with (folder.path / CONFIG).open("ab") as file:
        file.truncate(MOST_CONFIG + 1)
    with pytest.raises(ModelLoadError, match="larger than any configuration"):
        interp.load(folder.path)


def test_a_configuration_that_is_a_folder_is_refused(folder):
    (folder.path / CONFIG).unlink()
    (folder.path / CONFIG).mkdir()
    with pytest.raises(ModelLoadError, match="can't be read"):
        interp.load(folder.path)


# Fields of the wrong kind.

NO_SIZE = ["8", 0, -1, 2.0, True, [8], {}, 2**63]
SIZES = {
    "gpt2": ["n_embd", "n_head", "n_layer", "n_positions", "n_inner", "vocab_size"],
    "llama": [
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "num_hidden_layers",
        "head_dim",
        "intermediate_size",
        "max_position_embeddings",
        "vocab_size",
    ],
}
NO_NUMBER = ["1e-5", True, [1e-5], {}, 10**400]
NO_FLAG = ["true", 1, 0, [True], {}]
NO_WORD = ["weird", 3, None, ["silu"], {}, ""]
WRONG = [
    *(("gpt2", name, value) for name in SIZES["gpt2"] for value in NO_SIZE),
    *(("llama", name, value) for name in SIZES["llama"] for value in NO_SIZE),
    *(("gpt2", "layer_norm_epsilon", value) for value in NO_NUMBER),
    *(("llama", "rms_norm_eps", value) for value in NO_NUMBER),
    *(("gpt2", "scale_attn_weights", value) for value in NO_FLAG),
    *(("gpt2", "tie_word_embeddings", value) for value in NO_FLAG),
    *(("llama", "tie_word_embeddings", value) for value in NO_FLAG),
    *(("llama", "attention_bias", value) for value in NO_FLAG),
    *(("gpt2", "activation_function", value) for value in NO_WORD if value is not None),
    *(("llama", "hidden_act", value) for value in NO_WORD if value is not None),
    ("gpt2", "add_cross_attention", True),
    ("gpt2", "quantization_config", {"quant_method": "gptq"}),
    ("llama", "quantization_config", {"quant_method": "bitsandbytes"}),
    ("gpt2", "is_causal", False),
    ("llama", "is_causal", False),
]
OURS = {
    "head_dim": "d_head",
    "n_inner": "d_mlp",
    "num_key_value_heads": "n_kv_heads",
}
"""What our own configuration calls a field that it refuses itself, as where 0 comes from a file."""


@each(
    ("kind", "name", "value"),
    WRONG,
)
def test_a_value_that_is_not_known_is_refused_by_its_field(kind, name, value, copied, monkeypatch):
    folder = copied(kind)
    folder.says(**{name: value})
    monkeypatch.setattr(Files, "read", lambda *_: pytest.fail("a weight was read"))
    monkeypatch.setattr("interp.loading.assemble._head", lambda *_, **__: "tied")
    with pytest.raises(ModelLoadError) as error:
        interp.load(folder.path)
    message = str(error.value)
    assert name in message or OURS.get(name, name) in message
    assert folder.path.name in message
    assert "\n" not in message
    assert len(message) < 3 * MOST_SHOWN + len(str(folder.path)) + 100


@each(
    ("kind", "fields"),
    [
        ("gpt2", {"n_head": 3}),
        ("gpt2", {"n_head": 16}),
        ("llama", {"num_attention_heads": 3, "head_dim": None}),
        ("llama", {"num_key_value_heads": 3}),
        ("llama", {"num_key_value_heads": 8}),
        ("llama", {"num_key_value_heads": 4}),
        ("llama", {"head_dim": 3}),
        ("llama", {"head_dim": 4}),
    ],
)
def test_heads_that_do_not_fit_the_width_or_the_weights_are_refused(kind, fields, copied):
    folder = copied(kind)
    folder.says(**fields)
    with pytest.raises(ModelLoadError, match=r"attn|head"):
        interp.load(folder.path)


@pytest.mark.parametrize("kind", MODELS)
def test_the_same_configuration_with_a_field_of_no_matter_loads(kind, copied):
    folder = copied(kind)
    expected = interp.load(folder.path)(some_tokens())
    folder.says(
        some_field_of_a_later_version=[1, {"a": None}],
        quantization_config=None,
        is_causal=None,
        torch_dtype="float16",
        dtype="float16",
        use_cache="perhaps",
        attn_pdrop=3,
    )
    assert torch.equal(interp.load(folder.path)(some_tokens()), expected)


# What a family's class takes where nothing is said.


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("gpt2", ["activation_function", "layer_norm_epsilon", "scale_attn_weights", "n_inner"]),
        ("llama", ["hidden_act", "rms_norm_eps", "attention_bias", "mlp_bias", "head_dim"]),
    ],
)
@pytest.mark.parametrize("how", ["missing", "null"])
def test_a_field_that_is_missing_or_null_means_what_its_class_takes(kind, names, how, copied):
    folder = copied(kind)
    expected = interp.load(folder.path)
    if how == "missing":
        folder.lacks(*names)
    else:
        folder.says(**dict.fromkeys(names))
    assert interp.load(folder.path).config == expected.config


def test_a_field_without_a_default_must_be_there(copied):
    raw = Raw("a family", {"there": 3, "null": None}, {"usual": 4})
    assert (raw.whole("there"), raw.whole("usual")) == (3, 4)
    for name in ("gone", "null"):
        with pytest.raises(ModelLoadError, match=f"a family: config.json lacks '{name}'"):
            raw.whole(name)


def test_other_names_of_a_field_mean_the_same_unless_they_disagree(folder):
    expected = interp.load(folder.path)
    folder.lacks("n_embd", "n_layer")
    folder.says(hidden_size=8, num_hidden_layers=2)
    assert interp.load(folder.path).config == expected.config
    folder.says(n_embd=8)
    assert interp.load(folder.path).config == expected.config
    folder.says(n_embd=16)
    with pytest.raises(ModelLoadError, match="n_embd=16 and hidden_size=8"):
        interp.load(folder.path)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_that_is_known_loads(name, folder):
    folder.says(activation_function=name)
    model = interp.load(folder.path)
    assert model.config.decoder.mlp.activation == ACTIVATIONS[name]


# Rotary positions.

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}


def without(name: str) -> dict[str, object]:
    return {key: value for key, value in LLAMA3.items() if key != name}


@each(
    ("said", "named"),
    [
        ({"rope_type": "weird"}, "rope_type='weird'"),
        ({"type": "weird"}, "rope_type='weird'"),
        ({"rope_type": 5}, "rope_type=5"),
        ({"rope_type": ["linear"]}, "rope_type="),
        ([1], "rope_parameters=[1]"),
        ("linear", "rope_parameters='linear'"),
        ({"rope_theta": "large"}, "rope_theta='large'"),
        ({"rope_theta": True}, "rope_theta=True"),
        ({"rope_theta": 1.0}, "base=1.0"),
        ({"full_attention": {"rope_type": "default"}}, "one object for all layers"),
        ({"rope_type": "linear"}, "lacks 'factor'"),
        ({"rope_type": "linear", "factor": "8"}, "factor='8'"),
        ({"rope_type": "linear", "factor": 0}, "factor"),
        ({"rope_type": "linear", "factor": -2.0}, "factor"),
        ({"rope_type": "dynamic"}, "lacks 'factor'"),
        ({"rope_type": "dynamic", "factor": "x"}, "factor='x'"),
        (without("factor"), "lacks 'factor'"),
        (without("low_freq_factor"), "lacks 'low_freq_factor'"),
        (without("high_freq_factor"), "lacks 'high_freq_factor'"),
        ({**LLAMA3, "low_freq_factor": "1"}, "low_freq_factor='1'"),
        ({**LLAMA3, "original_max_position_embeddings": 0}, "original_max_position_embeddings=0"),
        ({**LLAMA3, "original_max_position_embeddings": "8"}, "original_max_position_embeddings="),
        ({"rope_type": "yarn", "factor": 2.0, "beta_fast": "x"}, "beta_fast='x'"),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": "no"}, "truncate='no'"),
        ({"rope_type": "yarn", "factor": 2.0, "attention_factor": []}, "attention_factor=[]"),
        ({"rope_type": "longrope"}, "lacks 'short_factor'"),
        ({"rope_type": "longrope", "short_factor": 5, "long_factor": [1.0]}, "short_factor=5"),
        ({"rope_type": "su", "short_factor": ["a"], "long_factor": [1.0]}, "short_factor=['a']"),
    ],
)
def test_rotary_positions_that_are_not_known_are_refused_by_their_field(said, named, copied):
    folder = copied("llama")
    folder.lacks("rope_theta")
    folder.says(rope_parameters=said)
    with pytest.raises(ModelLoadError, match=re.escape(named)):
        interp.load(folder.path)


def test_older_names_of_rotary_fields_mean_the_same(copied):
    folder = copied("llama")
    folder.says(rope_parameters=LLAMA3)
    newer = interp.load(folder.path).config
    older = {key.replace("rope_type", "type"): x for key, x in without("rope_theta").items()}
    folder.lacks("rope_parameters")
    folder.says(rope_theta=100.0, rope_scaling=older)
    assert interp.load(folder.path).config == newer
    scaling = newer.decoder.positions.scaling
    assert (scaling.kind, scaling.factor, scaling.original_ctx) == ("llama3", 8.0, 8)
    folder.says(rope_theta=101.0)
    assert interp.load(folder.path).config != newer


@each("value", ["x" * 10_000, list(range(10_000)), 10**3000])
def test_a_long_value_is_not_told_in_full(value, folder):
    folder.says(activation_function=value)
    with pytest.raises(ModelLoadError, match="…") as error:
        interp.load(folder.path)
    assert len(str(error.value)) < 1000


def test_no_two_families_claim_the_same_configurations():
    every = {id(family): family for family in families().values()}.values()
    claimed = [kind for family in every for kind in family.model_types]
    assert sorted(claimed) == sorted(families())
    assert {family.name for family in every} >= {"GPT-2", "Llama", "nanoGPT"}
