"""``from_pretrained`` against that of TransformerLens, by the names of published models.

The models are thin and random (:mod:`tests.compat.published_models`), the names, settings and
kinds of tokenizers are the published ones.
"""

import contextlib
import copy
import io
from dataclasses import replace

import pytest
import torch

from interp import InterpError, compat
from interp.compat import HookedEncoder, HookedEncoderDecoder, HookedTransformer
from tests.compat.published_models import (
    END,
    LOREM,
    N_POSITIONS,
    PUBLISHED,
    TEXTS,
    WIDE,
    Published,
    publish,
)
from tests.compat.shapes import close

theirs = pytest.importorskip("transformer_lens")
loading = pytest.importorskip("transformer_lens.loading_from_pretrained")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ON_PURPOSE = {"trust_remote_code": "this package runs no code of a repository"}
"""Fields that differ from TransformerLens's, with the reason."""
NOT_LOADED = {"bigscience/bloom-560m": "pos_embed.W_pos"}
"""Parameters that TransformerLens leaves uninitialised, because nothing reads them."""
FAST = ("EleutherAI/pythia-70m",)
NAMES = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PUBLISHED]
TOKENIZER = ("name_or_path", "padding_side", "bos_token_id", "eos_token_id", "pad_token_id")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache of the hub, without the network, of which the models are added when asked for."""
    from huggingface_hub import constants  # noqa: PLC0415 - an optional library

    path = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(path))
        yield path


@pytest.fixture(scope="module")
def load_theirs(cache):
    """TransformerLens's ``from_pretrained``, with the sizes of the thin models."""
    real = loading.convert_hf_model_config

    def load(name, **options):
        published = PUBLISHED[name]

        def thin_config(name, **keywords):
            fields = real(name, **keywords) | dict(published.sizes)
            return fields | ({"d_vocab": published.d_vocab} if published.sizes else {})

        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()):
            patch.setattr(loading, "convert_hf_model_config", thin_config)
            # transformers 5.23 has moved the field that TransformerLens 3.9 reads.
            phi = pytest.importorskip("transformers").PhiConfig
            patch.setattr(phi, "partial_rotary_factor", 0.5, raising=False)
            return theirs.HookedTransformer.from_pretrained(name, device="cpu", **options)

    return load


@pytest.fixture(scope="module", params=NAMES)
def pair(request, cache, load_theirs):
    """The façade and TransformerLens's model of one name."""
    publish(cache, request.param, PUBLISHED[request.param])
    return HookedTransformer.from_pretrained(request.param, device="cpu"), load_theirs(
        request.param
    )


def outcome(call, *inputs, **options):
    """The value of a call, or the name of the exception that it raised."""
    try:
        value = call(*inputs, **options)
    except Exception as error:
        return type(error).__name__
    return value.tolist() if isinstance(value, torch.Tensor) else value


def test_every_field_is_theirs(pair):
    ours, model = (vars(each.cfg) for each in pair)
    assert ours.keys() == model.keys()
    different = {name for name in model if ours[name] != model[name]}
    assert different <= set(ON_PURPOSE), {name: (ours[name], model[name]) for name in different}


def test_every_weight_is_theirs(pair):
    ours, model = (dict(each.named_parameters()) for each in pair)
    assert ours.keys() == model.keys()
    for name, weight in model.items():
        if name != NOT_LOADED.get(pair[1].cfg.tokenizer_name):
            close(ours[name], weight, 1e-5)


def test_unprocessed_weights_are_theirs(pair, load_theirs):
    name = pair[1].cfg.tokenizer_name
    options = {"fold_ln": False, "center_writing_weights": False, "center_unembed": False}
    options["fold_value_biases"] = False
    ours = HookedTransformer.from_pretrained_no_processing(name, device="cpu")
    model = load_theirs(name, **options)
    weights = dict(ours.named_parameters())
    for key, weight in model.named_parameters():
        if key != NOT_LOADED.get(name):
            close(weights[key], weight, 1e-6)
    close(ours(TEXTS[0]), model(TEXTS[0]), 1e-5)


def test_the_tokenizer_is_theirs(pair):
    ours, model = ({name: getattr(each.tokenizer, name) for name in TOKENIZER} for each in pair)
    assert ours == model
    assert "@" not in pair[0].tokenizer.name_or_path


def test_tokens_of_texts_are_theirs(pair):
    for prepend_bos in (None, True, False):
        for text in (*TEXTS, LOREM):
            for call in ("to_tokens", "to_str_tokens"):
                ours, model = (
                    outcome(getattr(each, call), text, prepend_bos=prepend_bos) for each in pair
                )
                # TransformerLens's to_str_tokens raises for every tokenizer of Gemma.
                assert model in (ours, "TypeError"), (text, prepend_bos, call)
        for side in (None, "left", "right"):
            options = {"prepend_bos": prepend_bos, "padding_side": side}
            ours, model = (each.to_tokens(list(TEXTS), **options) for each in pair)
            assert torch.equal(ours, model), options


def test_losses_of_texts_are_theirs(pair):
    """For each ``prepend_bos=`` padded on one side, another for the next model.

    The tokens of every side are compared above.
    """
    for text in TEXTS:
        ours, model = (outcome(each, text, return_type="loss") for each in pair)
        if ours == "OutOfRange":  # an empty text has no tokens; theirs is NaN
            assert not text
        else:  # a single token has no loss: NaN
            assert ours == pytest.approx(model, rel=1e-5, nan_ok=True), text
    turn, sides = [*PUBLISHED].index(pair[1].cfg.tokenizer_name), (None, "left", "right")
    for number, prepend_bos in enumerate((None, True, False)):
        side = sides[(number + turn) % len(sides)]
        options = {"prepend_bos": prepend_bos, "padding_side": side, "return_type": "loss"}
        ours, model = (each(list(TEXTS), **options) for each in pair)
        close(ours, model, 1e-5)


@pytest.mark.parametrize("by_parts", [False, True])
def test_activations_of_texts_are_theirs(pair, by_parts):
    ours, model = pair
    for block in model.blocks:
        # Made for longer texts, it shifts the scores of each row by a constant.
        block.attn.alibi = None
    handle = ours.embed.register_forward_hook(lambda *of: None) if by_parts else None
    assert not (by_parts and ours.runs_core)
    (logits, cache), (expected, theirs_cache) = (
        each.run_with_cache(list(TEXTS[:4]), padding_side="left") for each in pair
    )
    if handle is not None:
        handle.remove()
    close(logits, expected, 1e-5)
    assert cache.keys() == theirs_cache.keys()
    for name, activation in theirs_cache.items():
        close(cache[name], activation, 1e-5)


@pytest.mark.parametrize("repository", ["gpt2", "openai-community/gpt2"])
def test_a_model_is_found_under_either_of_its_names(repository, cache, tmp_path, monkeypatch):
    from huggingface_hub import constants  # noqa: PLC0415 - an optional library

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    publish(tmp_path, repository, PUBLISHED["gpt2"])
    for name in ("gpt2", "gpt2-small", "openai-community/gpt2"):
        model = HookedTransformer.from_pretrained(name, device="cpu")
        assert (model.cfg.model_name, model.cfg.tokenizer_name) == ("gpt2", "gpt2")
        assert model.tokenizer.name_or_path == "gpt2"


BERT = Published(
    "BertForPreTraining",
    {**WIDE, "intermediate_size": 48, "max_position_embeddings": N_POSITIONS},
    "gpt2",
    {"tokenizer_class": "PreTrainedTokenizerFast", "mask_token": END, "pad_token": END},
)
MASKED, T5_POSITIONS = "BertForMaskedLM", {"n_positions": 512, "decoder_start_token_id": 0}
T5 = Published(
    "T5ForConditionalGeneration",
    {"d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 48, "num_layers": 2},
    "gpt2",
    {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END},
)


@pytest.mark.parametrize(
    ("kind", "name", "published"),
    [
        (HookedEncoder, "google-bert/bert-base-cased", BERT),
        (HookedEncoderDecoder, "google-t5/t5-small", T5),
    ],
)
def test_an_encoder_has_the_names_of_its_repository_without_a_commit(kind, name, published, cache):
    publish(cache, name, published)
    model = kind.from_pretrained(name, device="cpu")
    for each in (model, copy.deepcopy(model)):
        assert (each.cfg.model_name, each.cfg.tokenizer_name) == (name.partition("/")[2], name)
        assert each.tokenizer.name_or_path == name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "published"),
    [
        ("HookedEncoder", "google-bert/bert-base-cased", replace(BERT, architecture=MASKED)),
        ("HookedEncoderDecoder", "google-t5/t5-small", replace(T5, old_fields=T5_POSITIONS)),
    ],
)
def test_every_field_of_an_encoder_is_theirs(kind, name, published, cache):
    publish(cache, name, published)
    ours, model = (
        vars(getattr(library, kind).from_pretrained(name, device="cpu").cfg)
        for library in (compat, theirs)
    )
    different = {field for field in model if ours[field] != model[field]}
    assert not different, {field: (ours[field], model[field]) for field in different}


def test_a_checkpoint_is_the_branch_of_its_step(cache):
    name = "EleutherAI/pythia-70m"
    publish(cache, name, PUBLISHED[name], revision="step1000")
    model = HookedTransformer.from_pretrained("pythia-70m", checkpoint_value=1000, device="cpu")
    cfg = model.cfg
    assert (cfg.from_checkpoint, cfg.checkpoint_value) == (True, 1000)
    assert (cfg.model_name, cfg.checkpoint_label_type) == ("pythia-70m", "step")


def test_layers_and_context_are_limited_as_theirs(cache, load_theirs):
    publish(cache, "gpt2", PUBLISHED["gpt2"])
    options = {"first_n_layers": 1, "n_ctx": 20}
    ours = HookedTransformer.from_pretrained("gpt2", device="cpu", **options)
    assert vars(ours.cfg) == vars(load_theirs("gpt2", **options).cfg)
    assert ours.to_tokens(LOREM).shape == (1, 20)
    with pytest.raises(InterpError, match="learned positions"):
        HookedTransformer.from_pretrained("gpt2", device="cpu", n_ctx=5000)
    with pytest.raises(InterpError, match="first_n_layers"):
        HookedTransformer.from_pretrained("gpt2", device="cpu", first_n_layers=3)


def test_a_bias_before_a_gated_mlp_is_not_dropped():
    """A LayerNorm with a bias can't be folded into W_gate, which has no bias (StableLM)."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 4, "intermediate_size": 48, "vocab_size": 50}
    source = transformers.StableLmForCausalLM(transformers.StableLmConfig(**sizes)).eval()
    torch.nn.init.normal_(source.model.layers[0].post_attention_layernorm.bias)
    with pytest.raises(InterpError, match="fold_ln=False"):
        HookedTransformer.from_pretrained("stablelm", hf_model=source, device="cpu")
    model = HookedTransformer.from_pretrained_no_processing(
        "stablelm", hf_model=source, device="cpu"
    )
    ids = torch.tensor([[1, 2, 3]])
    close(model(ids), source(ids).logits, 1e-5)
