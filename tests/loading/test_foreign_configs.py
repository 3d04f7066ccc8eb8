"""Foreign configurations: defaults, aliases, and errors that name the unsupported field."""

import re

import pytest
import torch
from foreign_folders import CONFIG, MODELS, random_tokens
from tables import each
from typer.testing import CliRunner

import interp
from apps.cli import app
from interp.errors import MAX_MESSAGE, MAX_SHOWN, IgnoredFieldsWarning, ModelLoadError
from interp.loading.families import albert
from interp.loading.folder import MAX_CONFIG_BYTES
from interp.loading.foreign_config import ACTIVATIONS, ForeignConfig
from interp.loading.registry import families
from interp.loading.source import SafetensorsSource

# Families.


def test_an_unknown_family_is_refused_with_a_list_of_the_supported_ones(folder):
    folder.set_fields(model_type="gpt17")
    supported = ", ".join(sorted(families()))
    assert "gpt2" in supported
    assert "llama" in supported
    with pytest.raises(
        ModelLoadError,
        match=re.escape(f"'gpt17', which is not supported; supported are {supported}."),
    ) as error:
        interp.load(folder.path)
    assert "Nearest: gptj, gpt2" in str(error.value)


def test_the_text_model_of_an_unknown_family_is_named(folder):
    folder.set_fields(model_type="gemma17", text_config={"model_type": "gemma3_text"})
    advice = r"Its text model is gemma3_text: .*interp\.load\(hf_model\.model\.language_model\)"
    with pytest.raises(ModelLoadError, match=advice):
        interp.load(folder.path)
    for other in ({"model_type": "gpt17"}, {"model_type": []}, [], "gemma3_text", None):
        folder.set_fields(text_config=other)
        with pytest.raises(ModelLoadError, match=r"Nearest: .*gemma"):
            interp.load(folder.path)


def with_vision(folder, **beside):
    """A Llama's folder as that of Gemma 3's text part, with an image token beside it."""
    text = {name: value for name, value in folder.fields.items() if name != "architectures"}
    folder.remove_fields(*folder.fields)
    folder.set_fields(model_type="gemma3", text_config=text, image_token_index=29, **beside)


def test_fields_beside_those_of_the_part_that_is_read_are_refused_if_transformers_reads_them(
    copied,
):
    for beside, message in (
        ({"attn_logit_softcapping": 2.0}, r"has attn_logit_softcapping=2\.0, which transformers"),
        ({"hidden_size": 8}, "Gemma 3: .*hidden_size=8, which transformers reads"),
        ({"quantization_config": {"bits": 4}}, "quantization_config=.*its weights are quantised"),
    ):
        folder = copied("llama")
        with_vision(folder, **beside)
        with pytest.raises(ModelLoadError, match=message):
            interp.load(folder.path)


@each("text", [None, 3, [], "gemma3_text"])
def test_a_part_without_its_fields_is_refused(text, folder):
    folder.set_fields(model_type="gemma3", text_config=text)
    with pytest.raises(ModelLoadError, match=r"Gemma 3: .*text_config=.*expected an object"):
        interp.load(folder.path)


@each("kind", [None, 3, ["gpt2"], {}, "", "GPT2"])
def test_an_invalid_model_type_is_refused(kind, folder):
    folder.set_fields(model_type=kind)
    with pytest.raises(ModelLoadError, match=re.escape(f"model_type={kind!r}")):
        interp.load(folder.path)


def test_without_a_model_type_a_configuration_is_that_of_a_saved_model(folder):
    folder.remove_fields("model_type")
    with pytest.raises(ModelLoadError, match=r"config.json does not describe .* config has no"):
        interp.load(folder.path)


# Invalid files.


@each(
    ("content", "message"),
    [
        (b"", "does not describe a model"),
        (b"{'model_type': 'gpt2'}", "does not describe a model"),
        (b'{"model_type": "gpt2"', "does not describe a model"),
        (b'["gpt2"]', "is not a JSON object"),
        (b'"gpt2"', "is not a JSON object"),
        (b"null", "is not a JSON object"),
        (b"\xff\xfe\x00", "does not describe a model"),
        (b"[" * 100_000, "does not describe a model"),
        (b'{"model_type": "gpt2", "layer_norm_epsilon": NaN}', "NaN is not a JSON number"),
        (
            b'{"model_type": "gpt2", "initializer_range": -Infinity}',
            "-Infinity is not a JSON number",
        ),
        (b'{"n_embd": 1' + b"0" * 5000 + b"}", "does not describe a model"),
    ],
)
def test_an_invalid_configuration_is_refused(content, message, folder):
    (folder.path / CONFIG).write_bytes(content)
    with pytest.raises(ModelLoadError, match=rf"{folder.path.name}.*{CONFIG}.*{message}"):
        interp.load(folder.path)


def test_a_configuration_that_is_too_large_is_not_read(folder):
    with (folder.path / CONFIG).open("ab") as file:
        file.truncate(MAX_CONFIG_BYTES + 1)
    with pytest.raises(ModelLoadError, match=r"config\.json.*is larger than"):
        interp.load(folder.path)


def test_a_configuration_that_is_a_folder_is_refused(folder):
    (folder.path / CONFIG).unlink()
    (folder.path / CONFIG).mkdir()
    with pytest.raises(ModelLoadError, match="can't be read"):
        interp.load(folder.path)


# Unsupported values.

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
    *((kind, "is_causal", value) for kind in SIZES for value in (False, None)),
    *((kind, "is_encoder_decoder", True) for kind in SIZES),
    ("llama", "pruned_heads", {"1": [0]}),
    ("llama", "sliding_window", 0.22),
    ("llama", "vision_tower", "y" * 10_000),
]
OURS = {
    "head_dim": "d_head",
    "n_inner": "d_mlp",
    "num_key_value_heads": "n_kv_heads",
}
"""Fields of ``Config`` that an error may name instead, where ``Config`` refuses the value."""


@each(
    ("kind", "name", "value"),
    WRONG,
)
def test_an_unsupported_value_is_refused_with_its_field(kind, name, value, copied, monkeypatch):
    folder = copied(kind)
    folder.set_fields(**{name: value})
    monkeypatch.setattr(SafetensorsSource, "read", lambda *_: pytest.fail("a weight was read"))
    monkeypatch.setattr("interp.loading.assemble.unembedding_kind", lambda *_, **__: "tied")
    with pytest.raises(ModelLoadError) as error:
        interp.load(folder.path)
    message = str(error.value)
    assert name[:MAX_SHOWN] in message or OURS.get(name, name) in message
    assert folder.path.name in message
    assert "\n" not in message
    assert len(message) < 3 * MAX_SHOWN + len(str(folder.path)) + 100


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
def test_heads_that_contradict_the_width_or_the_weights_are_refused(kind, fields, copied):
    folder = copied(kind)
    folder.set_fields(**fields)
    with pytest.raises(ModelLoadError, match=r"attn|head"):
        interp.load(folder.path)


@pytest.mark.parametrize("kind", MODELS)
def test_fields_that_do_not_affect_the_model_are_ignored(kind, copied):
    folder = copied(kind)
    expected = interp.load(folder.path)(random_tokens())
    folder.set_fields(
        some_field_of_a_later_version=None,
        quantization_config=None,
        is_decoder=False,
        pruned_heads={},
        torch_dtype="float16",
        dtype="float16",
        use_cache="perhaps",
        attn_pdrop=3,
    )
    assert torch.equal(interp.load(folder.path)(random_tokens()), expected)


# Fields that no part of the model reads.


@pytest.mark.parametrize("kind", MODELS)
def test_fields_that_transformers_does_not_read_are_ignored_with_one_warning(kind, copied):
    folder = copied(kind)
    expected = interp.load(folder.path)(random_tokens())
    folder.set_fields(_model_name_or_path="somewhere", unsloth_fixed=True, swirl=[{"depth": 2}])
    with pytest.warns(IgnoredFieldsWarning) as caught:
        model = interp.load(folder.path)
    assert torch.equal(model(random_tokens()), expected)
    (warning,) = caught
    named = "of this type: _model_name_or_path, unsloth_fixed, swirl. (strict=True refuses"
    assert named in str(warning.message)
    refused = r"strict=True refuses: _model_name_or_path, unsloth_fixed, swirl\. Remove"
    with pytest.raises(ModelLoadError, match=refused):
        interp.load(folder.path, strict=True)


def test_strict_loads_a_model_whose_fields_are_all_read(folder):
    """The converse."""
    assert interp.load(folder.path, strict=True).config == interp.load(folder.path).config


@pytest.mark.filterwarnings("ignore::interp.errors.IgnoredFieldsWarning")
def test_convert_is_strict_if_asked(folder, tmp_path):
    folder.set_fields(swirl=True)
    command = ["convert", str(folder.path), str(tmp_path / "converted")]
    refused = CliRunner().invoke(app, [*command, "--strict"])
    assert refused.exit_code == 3
    assert "strict=True refuses: swirl" in " ".join(refused.stderr.split())
    assert CliRunner().invoke(app, command).exit_code == 0


def test_a_warning_of_many_ignored_fields_names_the_first(folder):
    folder.set_fields(**{f"swirl_{n}" * 100: n for n in range(1000)})
    with pytest.warns(IgnoredFieldsWarning, match=r"swirl_19.* and 980 more\. ") as caught:
        interp.load(folder.path)
    text = str(caught[0].message)
    assert "swirl_20" not in text
    assert len(text) < 3 * MAX_MESSAGE


@each(
    ("kind", "name", "nearest"),
    [
        ("llama", "rms_norm_epsilon", "rms_norm_eps"),
        ("llama", "num_hiden_layers", "num_hidden_layers"),
        ("gpt2", "n_heads", "n_head"),
        ("gpt2", "num_attention_head", "num_attention_heads"),
    ],
)
def test_the_warning_names_the_field_that_may_be_misspelt(kind, name, nearest, copied):
    folder = copied(kind)
    folder.set_fields(**{name: 2})
    with pytest.warns(IgnoredFieldsWarning, match=rf"{name} \(did you mean {nearest}\?\)"):
        interp.load(folder.path)


@each(
    ("kind", "fields", "named"),
    [
        ("llama", {"sliding_window": 4}, "sliding_window=4"),
        ("llama", {"layer_types": ["full_attention"] * 2}, "layer_types="),
        ("llama", {"text_config": {"hidden_size": 8}}, "text_config="),
        ("llama", {"rope_scaling": {"mrope_section": [1]}}, r"rope_scaling\.mrope_section=\[1\]"),
        ("gpt2", {"rope_theta": 2.0}, r"rope_theta=2\.0"),
    ],
)
def test_a_field_that_transformers_reads_and_the_family_does_not_is_refused(
    kind, fields, named, copied
):
    folder = copied(kind)
    folder.set_fields(**fields)
    with pytest.raises(ModelLoadError, match=rf"has {named}.*, which transformers reads"):
        interp.load(folder.path)


def test_an_entry_of_rotary_parameters_that_transformers_does_not_read_is_ignored(copied):
    folder, rope = copied("llama"), {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}
    folder.set_fields(rope_parameters=rope)
    expected = interp.load(folder.path)
    folder.set_fields(rope_parameters={**rope, "finetuned": True})
    with pytest.warns(IgnoredFieldsWarning, match=r"of this type: rope_parameters\.finetuned\."):
        model = interp.load(folder.path)
    assert model.config == expected.config
    assert torch.equal(model(random_tokens()), expected(random_tokens()))


@each("kind", ["LlamaForCausalLM", "LlamaForSequenceClassification"])
def test_a_head_without_weights_is_refused(kind, copied):
    folder = copied("llama")
    base = {key: weight for key, weight in folder.weights.items() if key != "lm_head.weight"}
    folder.set_weights(base)
    folder.set_fields(architectures=[kind])
    with pytest.raises(ModelLoadError, match=rf"{kind}.*are missing \(lm_head\.weight\)"):
        interp.load(folder.path)
    for classes in (["LlamaModel"], None):
        folder.set_fields(architectures=classes)
        assert not interp.load(folder.path).config.unembeds
    folder.set_fields(architectures=[kind], tie_word_embeddings=True)
    assert interp.load(folder.path).config.tied


# Defaults and aliases.


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("gpt2", ["activation_function", "layer_norm_epsilon", "scale_attn_weights", "n_inner"]),
        ("llama", ["hidden_act", "rms_norm_eps", "attention_bias", "mlp_bias", "head_dim"]),
    ],
)
@pytest.mark.parametrize("how", ["missing", "null"])
def test_a_field_that_is_missing_or_null_takes_the_default_of_its_class(kind, names, how, copied):
    folder = copied(kind)
    expected = interp.load(folder.path)
    if how == "missing":
        folder.remove_fields(*names)
    else:
        folder.set_fields(**dict.fromkeys(names))
    assert interp.load(folder.path).config == expected.config


def test_a_field_without_a_default_is_required(copied):
    fields = ForeignConfig("a family", {"there": 3, "null": None}, {"usual": 4})
    assert (fields.integer("there"), fields.integer("usual")) == (3, 4)
    for name in ("gone", "null"):
        with pytest.raises(ModelLoadError, match=f"a family: config.json lacks '{name}'"):
            fields.integer(name)


def test_aliases_of_a_field_are_equivalent_and_must_agree(folder):
    expected = interp.load(folder.path)
    folder.remove_fields("n_embd", "n_layer")
    folder.set_fields(hidden_size=8, num_hidden_layers=2)
    assert interp.load(folder.path).config == expected.config
    folder.set_fields(n_embd=8)
    assert interp.load(folder.path).config == expected.config
    folder.set_fields(n_embd=16)
    with pytest.raises(ModelLoadError, match="n_embd=16 and hidden_size=8"):
        interp.load(folder.path)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_supported_activation_loads(name, folder):
    folder.set_fields(activation_function=name)
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
    ("rope", "named"),
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
def test_unsupported_rotary_positions_are_refused_with_their_field(rope, named, copied):
    folder = copied("llama")
    folder.remove_fields("rope_theta")
    folder.set_fields(rope_parameters=rope)
    with pytest.raises(ModelLoadError, match=re.escape(named)):
        interp.load(folder.path)


def test_older_names_of_rotary_fields_are_equivalent(copied):
    folder = copied("llama")
    folder.set_fields(rope_parameters=LLAMA3)
    newer = interp.load(folder.path).config
    older = {key.replace("rope_type", "type"): x for key, x in without("rope_theta").items()}
    folder.remove_fields("rope_parameters")
    folder.set_fields(rope_theta=100.0, rope_scaling=older)
    assert interp.load(folder.path).config == newer
    scaling = newer.decoder.positions.scaling
    assert (scaling.kind, scaling.factor, scaling.original_ctx) == ("llama3", 8.0, 8)
    folder.set_fields(rope_theta=101.0)
    assert interp.load(folder.path).config != newer


@each("value", ["x" * 10_000, list(range(10_000)), 10**3000])
def test_a_long_value_is_shortened_in_errors(value, folder):
    folder.set_fields(activation_function=value)
    with pytest.raises(ModelLoadError, match=r"…|\.\.\.") as error:
        interp.load(folder.path)
    assert len(str(error.value)) < 1000


def test_layers_that_share_weights_are_counted_before_they_are_listed():
    """In ALBERT there may be more layers than weights."""

    def sources(**fields):
        return albert.sources(ForeignConfig("ALBERT", fields, albert.DEFAULTS))

    group, first, second = "encoder.albert_layer_groups", "albert_layers.0.", "albert_layers.1."
    assert sources(num_hidden_layers=3) == [f"{group}.0.{first}"] * 3
    assert sources(num_hidden_layers=2, num_hidden_groups=2, inner_group_num=2) == [
        f"{group}.{n}.{inner}" for n in (0, 1) for inner in (first, second)
    ]
    assert len(sources(num_hidden_layers=512, inner_group_num=2)) == 1024
    with pytest.raises(ModelLoadError, match=r"inner_group_num=10000000000, .*at most 1024 layers"):
        sources(num_hidden_layers=12, inner_group_num=10**10)


def test_no_two_families_have_the_same_model_type():
    every = {id(family): family for family in families().values()}.values()
    claimed = [kind for family in every for kind in family.model_types]
    assert sorted(claimed) == sorted(families())
    assert {family.name for family in every} >= {"GPT-2", "Llama", "nanoGPT"}
