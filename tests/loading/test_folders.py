"""A folder gives the model that was written to it, by ``transformers`` or by ``save_folder``."""

import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from architectures import ARCHITECTURES, HEADLESS, assert_close, build, build_new, tokens_of
from foreign_folders import D_VOCAB, EMBEDDING, MODELS, PREFIX, Folder, random_tokens, randomised
from safetensors.torch import load_file
from tables import each
from transformers import GPT2Config, GPT2Model

import interp
from interp.errors import InvalidInput, ModelLoadError
from interp.loading import hub, save_folder
from interp.loading.weight import cat
from training.bpe import train_bpe

ROOT = Path(__file__).parents[2]
HEAD = "lm_head.weight"
KINDS = pytest.mark.parametrize("kind", MODELS)


def assert_same(loaded, other):
    """Equal configurations (but for the name); bit-identical weights and logits."""
    assert replace(loaded.config, name="") == replace(other.config, name="")
    weights, expected = (dict(model.named_parameters()) for model in (loaded, other))
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        assert weight.dtype == expected[name].dtype
        assert torch.equal(weight, expected[name]), name
    assert torch.equal(loaded(random_tokens()), other(random_tokens()))


# Folders of transformers.


@KINDS
@pytest.mark.parametrize("size", ["1GB", "1KB"])
def test_a_saved_folder_is_the_live_model_bit_by_bit(kind, size, tmp_path):
    theirs = MODELS[kind]()
    theirs.save_pretrained(tmp_path, max_shard_size=size)
    parts = len(list(tmp_path.glob("*.safetensors")))
    assert parts == 1 if size == "1GB" else parts > 3
    model = interp.load(tmp_path)
    assert_same(model, interp.load(theirs))
    with torch.no_grad():
        expected = theirs(random_tokens()).logits
    assert (model(random_tokens()) - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert model.agreement is None


@KINDS
def test_a_prefix_of_the_keys_may_be_missing(kind, copied):
    folder = copied(kind)
    expected, weights = interp.load(folder.path), folder.weights
    bare = {key.removeprefix(PREFIX[kind]): weight for key, weight in weights.items()}
    assert bare.keys() != weights.keys()
    folder.set_weights(bare)
    assert_same(interp.load(folder.path), expected)


@KINDS
def test_a_weight_with_and_without_its_prefix_is_refused(kind, copied):
    folder = copied(kind)
    bare = EMBEDDING[kind].removeprefix(PREFIX[kind])
    folder.set_weights(folder.weights | {bare: folder.weights[EMBEDDING[kind]]})
    with pytest.raises(ModelLoadError, match=f"{bare} are the same weight"):
        interp.load(folder.path)


def test_the_name_is_that_of_the_folder(copied, monkeypatch):
    folder = copied("llama")
    folder.set_fields(_name_or_path="another", name="a third")
    assert interp.load(folder.path).config.name == "a-llama"
    monkeypatch.chdir(folder.path)
    assert interp.load(".").config.name == "a-llama"


def test_a_folder_without_a_tokenizer_accepts_ids_only(folder):
    model = interp.load(folder.path)
    assert model.tokenizer is None
    assert model(random_tokens()).shape == (2, 7, D_VOCAB)
    with pytest.raises(InvalidInput, match="no tokenizer"):
        model("text")


# Tied and untied heads.


@KINDS
@pytest.mark.parametrize("configured", [True, False, None])
@pytest.mark.parametrize("equal", [True, False])
def test_two_matrices_are_tied_if_they_are_equal_whatever_the_config_has(
    kind, configured, equal, copied
):
    folder = copied(kind)
    embedding = folder.weights[EMBEDDING[kind]]
    head = embedding.clone()
    head[3, 4] += 0.0 if equal else 1.0
    folder.set_weights(folder.weights | {HEAD: head})
    folder.set_fields(tie_word_embeddings=configured)
    model = interp.load(folder.path)
    assert model.config.tied is equal
    assert model.config.unembeds
    assert torch.equal(model.W_U, head.T)
    assert torch.equal(model.W_E, embedding)


@KINDS
def test_a_missing_head_is_tied_where_the_config_ties_it(kind, copied):
    folder = copied(kind)
    folder.set_weights({key: weight for key, weight in folder.weights.items() if key != HEAD})
    folder.set_fields(tie_word_embeddings=True)
    model = interp.load(folder.path)
    assert model.config.tied
    assert torch.equal(model.W_U, folder.weights[EMBEDDING[kind]].T)


def headless(folder: Folder) -> interp.Transformer:
    folder.set_weights({key: weight for key, weight in folder.weights.items() if key != HEAD})
    folder.set_fields(tie_word_embeddings=False, architectures=None)
    return interp.load(folder.path)


@KINDS
def test_a_missing_head_that_is_not_tied_means_no_logits(kind, copied):
    model = headless(copied(kind))
    assert not model.config.unembeds
    assert not model.config.tied
    done = interp.run(model, random_tokens(), record="resid_post")
    assert done.logits is None
    assert done.stream is not None
    with torch.no_grad():
        expected = MODELS[kind]().base_model(random_tokens()).last_hidden_state
    assert (done.stream - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert done.cache["resid_post", 1].shape == expected.shape


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda model, ids: model.generate(ids, max_new_tokens=1), "no unembedding"),
        (
            lambda model, ids: interp.sweep(
                model, ids, interp.edits.zero("z", layer=0, head=0), interp.metrics.loss()
            ),
            "no logits",
        ),
        (
            lambda model, ids: interp.run(
                model, ids, record="z", gradients_of=interp.metrics.loss()
            ),
            "needs the logits",
        ),
        (lambda model, ids: model.W_U, "no W_U"),
    ],
    ids=["generate", "sweep", "gradients", "W_U"],
)
def test_functions_of_logits_refuse_a_model_without_an_unembedding(folder, use, message):
    whole = interp.load(folder.path)
    use(whole, random_tokens())
    with pytest.raises(InvalidInput, match=message):
        use(headless(folder), random_tokens())


def test_a_base_model_is_recognised_by_its_weights(tmp_path):
    config = GPT2Config(vocab_size=30, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    config.tie_word_embeddings = False
    theirs = randomised(GPT2Model(config))
    theirs.save_pretrained(tmp_path)
    assert not interp.load(tmp_path).config.unembeds
    assert not interp.load(theirs).config.unembeds


# Dtypes and devices.

TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@KINDS
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_dtype_of_the_weights_is_kept(kind, dtype, copied):
    folder = copied(kind)
    folder.set_weights({key: weight.to(dtype) for key, weight in folder.weights.items()})
    model = interp.load(folder.path)
    assert {weight.dtype for weight in model.parameters()} == {dtype}
    assert model(random_tokens()).dtype == dtype
    assert model(random_tokens()).isfinite().all()


@pytest.mark.parametrize("wanted", TYPES, ids=str)
@pytest.mark.parametrize("stored", TYPES, ids=str)
def test_weights_are_rounded_to_a_requested_dtype(stored, wanted, folder):
    folder.set_weights({key: weight.to(stored) for key, weight in folder.weights.items()})
    unchanged, changed = interp.load(folder.path), interp.load(folder.path, dtype=wanted)
    expected = dict(unchanged.named_parameters())
    for name, weight in changed.named_parameters():
        assert weight.dtype == wanted
        assert torch.equal(weight, expected[name].to(wanted))
    assert changed(random_tokens()).dtype == wanted


def test_the_most_frequent_dtype_of_the_weights_is_used(folder):
    weights = {key: weight.bfloat16() for key, weight in folder.weights.items()}
    weights["transformer.ln_f.weight"] = weights["transformer.ln_f.weight"].float()
    folder.set_weights(weights)
    assert {weight.dtype for weight in interp.load(folder.path).parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64], ids=str)
def test_a_dtype_that_no_model_computes_in_is_refused(dtype, folder):
    with pytest.raises(InvalidInput, match=f"{dtype}.*float32"):
        interp.load(folder.path, dtype=dtype)


def test_weights_that_overflow_a_narrower_dtype_are_refused(folder):
    weights = folder.weights
    weights["transformer.h.1.mlp.c_fc.bias"][2] = 1e6
    folder.set_weights(weights)
    assert interp.load(folder.path).dtype == torch.float32
    assert interp.load(folder.path, dtype=torch.bfloat16).dtype == torch.bfloat16
    with pytest.raises(ModelLoadError, match=r"mlp\.b_in .*not finite numbers in float16"):
        interp.load(folder.path, dtype=torch.float16)


def test_a_device_can_be_given_and_an_unknown_one_is_named(folder):
    assert interp.load(folder.path, "cpu").device == torch.device("cpu")
    assert interp.load(folder.path, torch.device("cpu")).device == torch.device("cpu")
    with pytest.raises(InvalidInput, match="abacus"):
        interp.load(folder.path, "abacus")


# No code is executed.


def test_loading_imports_no_code_of_the_folder_and_nothing_large(folder, tmp_path):
    """Not transformers, pandas or the compiler of PyTorch: each takes longer than a small model."""
    marker = tmp_path / "was-run"
    code = f"open({str(marker)!r}, 'w').close()\nclass Model: pass\n"
    for name in ("modeling_own.py", "configuration_own.py", "tokenization_own.py", "__init__.py"):
        (folder.path / name).write_text(code)
    folder.set_fields(
        auto_map={
            "AutoConfig": "configuration_own.Model",
            "AutoModelForCausalLM": "modeling_own.Model",
        },
        custom_pipelines={"text-generation": {"impl": "modeling_own.Model"}},
        trust_remote_code=True,
        architectures=["Model"],
    )
    seen = (
        "import sys, interp; print([interp.load(name).config.name for name in sys.argv[1:]], "
        "[n for n in sys.modules if n.split('.')[0] in ('transformers', 'pandas') "
        "or n.endswith('_own') or n in ('torch._dynamo', 'torch._inductor')])"
    )
    words = [sys.executable, "-c", seen, str(folder.path), "python-2l"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "['a-gpt2', 'python-2l'] []"
    assert not marker.exists()


def test_shapes_are_concatenated_as_tensors_are():
    parts = [torch.ones(2, 3), torch.ones(4, 3)]
    assert cat([part.to("meta") for part in parts]).shape == cat(parts).shape == (6, 3)
    for device in ("cpu", "meta"):
        with pytest.raises(RuntimeError):
            cat([torch.ones(2, 3, device=device), torch.ones(4, 1, device=device)])


# Folders of save_folder.


@pytest.mark.parametrize("name", [*ARCHITECTURES, "headless"])
def test_a_model_of_every_architecture_is_saved_and_loaded(name, tmp_path):
    config = HEADLESS if name == "headless" else ARCHITECTURES[name]
    model = build(config)
    save_folder(model, tmp_path)
    again = interp.load(tmp_path)
    assert again.config == model.config
    weights = dict(again.named_parameters())
    for key, weight in model.named_parameters():
        assert torch.equal(weights.pop(key), weight)
    assert not weights
    tokens = tokens_of(config, pos=8)
    expected = model(*tokens)
    # Memory-mapped weights may be unaligned, and products of those round differently.
    assert_close(again(*tokens), expected, 1e-14)
    assert torch.equal(deepcopy(again)(*tokens), expected)


@pytest.mark.parametrize("name", ["t5", "mixtral", "gpt2"])
def test_a_folder_can_store_another_dtype(name, tmp_path):
    model = build_new(name)
    save_folder(model, tmp_path, torch.bfloat16)
    stored = load_file(tmp_path / "model.safetensors")
    assert {weight.dtype for weight in stored.values()} == {torch.bfloat16}
    expected = dict(model.named_parameters())
    for dtype in (None, torch.bfloat16):
        again = interp.load(tmp_path, dtype=dtype)
        assert again.dtype == (dtype or torch.float64)
        assert model.dtype == torch.float64
        for key, weight in again.named_parameters():
            assert torch.equal(weight, expected[key].bfloat16().to(again.dtype))


def test_a_saved_folder_keeps_the_name_and_the_rule_about_bos(tmp_path):
    config = replace(
        ARCHITECTURES["gpt2"],
        d_vocab=300,
        name="mine",
        tokens=interp.TokensConfig(bos=0, prepend_bos=True),
    )
    model = build_new(config)
    model.tokenizer = interp.Tokenizer(train_bpe(["abc abc"], vocab_size=270), bos=0)
    save_folder(model, tmp_path)
    again = interp.load(tmp_path)
    assert again.config == config
    assert again.to_tokens("abc")[0, 0] == 0
    assert torch.equal(again.to_tokens("abc"), model.to_tokens("abc"))


# Names.


@each(
    ("name", "advice"),
    [
        ("gpt2", r'On the hub: interp\.load\("hub:openai-community/gpt2"\)\.'),
        ("GPT2-XL", r'interp\.load\("hub:openai-community/gpt2-xl"\)'),
        ("bert-base-uncased", "hub:google-bert/bert-base-uncased"),
        ("t5-small", "hub:google-t5/t5-small"),
        ("python2l", r"Nearest: .*python-2l"),
        ("induction", r"Nearest: .*induction-by-hand"),
        ("org/model", r'Did you mean the model of the hub, interp\.load\("hub:org/model"\)\?'),
        ("org/model@v2", r'interp\.load\("hub:org/model@v2"\)\?'),
        ("org/folder/model", r"nor a folder\. A model is loaded from"),
        ("qqqq", r"nor a folder\. A model is loaded from"),
    ],
)
def test_a_name_of_no_model_is_refused_with_what_it_may_mean(name, advice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelLoadError, match=advice):
        interp.load(name)


def test_a_folder_takes_precedence_over_a_name_of_the_hub(copied, tmp_path, monkeypatch):
    copied("gpt2").path.rename(tmp_path / "gpt2")
    monkeypatch.chdir(tmp_path)
    assert interp.load("gpt2").config.name == "gpt2"


def test_every_well_known_name_is_one_of_the_hub():
    for name, model in hub.WELL_KNOWN.items():
        assert name == name.lower()
        assert hub.NAME.fullmatch(model)
