"""The façade of T5: against TransformerLens 3.9 and ``transformers``, and by itself."""

from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from interp import InterpError
from interp.compat import HookedEncoderDecoder, HookedTransformerConfig
from tests.compat.encoder_shapes import (
    OF_T5,
    T5,
    close,
    drawn,
    edit,
    fields,
    ids,
    padded,
    recorded,
    returned,
)

pytestmark = pytest.mark.slow

TARGET = ids(5)
MASK = padded(7, 4)
STACKED = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O", "W_in", "W_out", "b_in", "b_out")
TOKENIZER = SimpleNamespace(pad_token_id=0, eos_token_id=1)


def built(name="t5", tokenizer=None, **values):
    model = HookedEncoderDecoder({**fields(T5[name]), **values}, tokenizer)
    drawn(model)
    return model


# ---- against TransformerLens ------------------------------------------------------------------


def pair(name, dtype=torch.float64, flags=()):
    theirs = pytest.importorskip("transformer_lens")
    values = {**fields(T5[name], dtype), **dict.fromkeys(flags, True)}
    config = theirs.HookedTransformerConfig(**values)
    # Their table of biases is in float32 whatever cfg.dtype is.
    model = theirs.HookedEncoderDecoder(config, TOKENIZER).to(dtype)
    drawn(model)
    ours = HookedEncoderDecoder(HookedTransformerConfig(**values), TOKENIZER)
    ours.load_state_dict(model.state_dict())
    return ours, model


def target_and_mask(dtype=torch.float64):
    # In float64 their mask of integers gives NaN: 0 · (least float64 in float32 = -inf).
    return {"decoder_input": TARGET, "one_zero_attention_mask": MASK.to(dtype)}


of_theirs = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@of_theirs
@pytest.mark.parametrize("flags", [(), OF_T5], ids=["plain", "flags"])
@pytest.mark.parametrize("name", T5)
def test_activations_gradients_and_state_dicts_are_theirs(name, flags):
    ours, model = pair(name, flags=flags)
    assert sorted(ours.hook_dict) == sorted(model.hook_dict)
    assert {k: v.shape for k, v in ours.named_parameters()} == {
        k: v.shape for k, v in model.named_parameters()
    }
    model.load_state_dict(ours.state_dict())
    (logits, cache), (expected_logits, expected) = (
        recorded(each, ids(), **target_and_mask()) for each in (ours, model)
    )
    close(logits, expected_logits)
    assert sorted(cache) == sorted(expected)
    for key in expected:
        close(cache[key], expected[key])
    parameters = dict(ours.named_parameters())
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        close(parameters[key].grad, parameter.grad)


@of_theirs
def test_activations_in_float32():
    ours, model = pair("t5", torch.float32)
    cache, expected = (
        each.run_with_cache(ids(), **target_and_mask(torch.float32))[1] for each in (ours, model)
    )
    for key in expected:
        close(cache[key], expected[key], 1e-5)


@of_theirs
@pytest.mark.parametrize(("name", "flags"), [("t5", ()), ("gated", OF_T5)])
def test_every_edit_has_the_effect_that_theirs_has(name, flags):
    ours, model = pair(name, flags=flags)
    with torch.no_grad():
        plain, cache = ours.run_with_cache(ids(), **target_and_mask())
        for place in (place for place in cache if ".0." not in place):
            logits, expected = (
                each.run_with_hooks(ids(), fwd_hooks=[(place, fn)], **target_and_mask())
                for each, fn in ((ours, edit), (model, returned))
            )
            close(logits, expected)
            assert not torch.allclose(logits, plain), place


@of_theirs
@pytest.mark.parametrize("options", [{"stop_at_eos": False}, {"eos_token_id": [9, 30]}, {}])
def test_generation_is_theirs(options):
    ours, model = pair("t5", torch.float32)
    ask = {"one_zero_attention_mask": MASK, "max_new_tokens": 6, "verbose": False, **options}
    for how in ({"do_sample": False}, {"top_k": 3, "temperature": 0.7}, {"freq_penalty": 0.5}):
        tokens = []
        for each in (ours, model):
            torch.manual_seed(0)
            tokens.append(each.generate(ids(), **ask, **how))
        assert torch.equal(*tokens)


@of_theirs
def test_weights_are_theirs():
    ours, model = pair("scaled")
    for name in (*STACKED, "W_U", "b_U", "W_E"):
        close(getattr(ours, name), getattr(model, name))
    for name in ("QK", "OV"):
        close(getattr(ours, name).AB, getattr(model, name).AB)
    assert ours.all_head_labels() == model.all_head_labels()
    with pytest.raises(InterpError, match="W_pos"):
        _ = ours.W_pos
    for stack in ("encoder", "decoder"):
        bias, expected = (
            getattr(each, stack)[0].attn.compute_relative_attention_bias(5, 9)
            for each in (ours, model)
        )
        close(bias, expected)


# ---- against transformers ---------------------------------------------------------------------

SMALL = {
    **{"vocab_size": 50, "d_model": 24, "d_kv": 6, "d_ff": 20, "num_layers": 2, "num_heads": 3},
    **{"relative_attention_num_buckets": 8, "relative_attention_max_distance": 6},
    "decoder_start_token_id": 0,
}
KINDS = {
    "1.0": {},
    "1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}


def live(**options):
    transformers = pytest.importorskip("transformers")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(**SMALL, **options))
        drawn(model)
    model.tie_weights()
    return model.eval()


@pytest.mark.parametrize("version", KINDS)
def test_a_live_model_is_loaded(version):
    model = live(**KINDS[version])
    ours = HookedEncoderDecoder.from_pretrained("any", hf_model=model)
    with torch.no_grad():
        expected = model(ids(), decoder_input_ids=TARGET, attention_mask=MASK).logits
    logits = ours(ids(), TARGET, one_zero_attention_mask=MASK)
    assert_close(logits, expected, atol=1e-5 * float(expected.abs().max()), rtol=0)
    assert not torch.allclose(logits, ours(ids(), TARGET), atol=1e-3)
    assert ours.cfg.tie_word_embeddings is (version == "1.0")
    options = {"max_new_tokens": 5, "do_sample": False}
    tokens = ours.generate(ids(), MASK, eos_token_id=1, **options)
    expected_tokens = model.generate(ids(), attention_mask=MASK, **options)
    assert torch.equal(tokens, expected_tokens[:, : tokens.shape[1]])


def test_a_folder_is_loaded_with_its_tokenizer(tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = ["<pad>", "</s>", "<unk>", *["the", "cat", "sat", "on", "a", "mat"]]
    pieces = tokenizers.models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="<unk>")
    backend = tokenizers.Tokenizer(pieces)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    live(pad_token_id=0, eos_token_id=1).save_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path)
    ours = HookedEncoderDecoder.from_pretrained(tmp_path)
    texts = ["the cat sat on a mat", "a cat"]
    encoded = theirs(texts, return_tensors="pt", padding=True)
    input_ids, mask = ours.to_tokens(texts)
    assert torch.equal(input_ids, encoded["input_ids"])
    assert torch.equal(mask, encoded["attention_mask"])
    start = torch.zeros(2, 1, dtype=torch.long)
    assert torch.equal(ours(texts), ours(input_ids, start, one_zero_attention_mask=mask))
    assert ours(texts, return_type=None) is None
    # The ids beyond those of the tokenizer have no text.
    ours.unembed.b_U.data[len(words) :] = -1e4
    written = ours.generate(texts, do_sample=False, max_new_tokens=3, stop_at_eos=False)
    tokens = ours.generate(input_ids, mask, do_sample=False, max_new_tokens=3, stop_at_eos=False)
    assert written == theirs.batch_decode(tokens, skip_special_tokens=True)
    alone = ours.generate(texts[1], do_sample=False, max_new_tokens=3, stop_at_eos=False)
    assert alone == written[1]


def test_models_that_it_cannot_express_are_refused():
    with pytest.raises(InterpError, match="stacks that differ"):
        HookedEncoderDecoder.from_pretrained("any", hf_model=live(num_decoder_layers=1))
    for name in ("dates", "python-2l", "python-mlm"):
        with pytest.raises(InterpError, match="HookedEncoderDecoder"):
            HookedEncoderDecoder.from_pretrained(name)


# ---- by itself --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", T5)
def test_without_padding_it_is_the_core(name):
    model = built(name)
    for block in (*model.encoder, *model.decoder) if name == "gated" else ():
        block.mlp.b_in.data.zero_()  # the core adds none after the product
    expected = model.core(ids(), TARGET)
    assert_close(model(ids(), TARGET), expected, atol=1e-12, rtol=0)
    assert_close(model.run_with_cache(ids(), TARGET)[0], expected, atol=1e-12, rtol=0)


def test_masked_tokens_of_the_source_change_nothing():
    model = built()
    alone = model(ids()[:, :4], TARGET)
    masked = model(ids(), TARGET, one_zero_attention_mask=padded(4, 4))
    assert_close(masked, alone, atol=1e-12, rtol=0)
    assert not torch.allclose(model(ids(), TARGET), alone)


def test_the_decoder_is_causal_and_the_encoder_is_not():
    model, later = built(), TARGET.clone()
    later[:, -1] = (later[:, -1] + 1) % 50
    logits, other = (model.run_with_cache(ids(), target)[0] for target in (TARGET, later))
    assert_close(logits[:, :-1], other[:, :-1], atol=1e-12, rtol=0)
    assert not torch.allclose(logits[:, -1], other[:, -1])
    source = ids().clone()
    source[:, -1] = (source[:, -1] + 1) % 50
    assert not torch.allclose(model(source, TARGET)[:, 0], logits[:, 0])


@pytest.mark.parametrize("setting", ["use_split_qkv_input", "use_attn_in"])
def test_split_inputs_change_nothing_until_they_are_edited(setting):
    """TransformerLens raises with these settings."""
    model = built(tokenizer=None)
    plain = model(ids(), TARGET)
    model.cfg.use_hook_mlp_in = True
    setattr(model.cfg, setting, True)
    assert_close(model(ids(), TARGET), plain, atol=1e-12, rtol=0)
    name = "hook_q_input" if "split" in setting else "hook_attn_in"
    places = [f"{stack}.1.{name}" for stack in ("encoder", "decoder")]
    places += ["decoder.0.hook_cross_attn_in"] if setting == "use_attn_in" else []

    def zero(x, hook):
        x[:, :, 0] = 0

    for place in places:
        edited = model.run_with_hooks(ids(), TARGET, fwd_hooks=[(place, zero)])
        assert not torch.allclose(edited, plain)


def test_a_hook_that_nothing_calls_is_refused():
    model = built()
    for place, words in (
        ("encoder.0.attn.rel_pos_hook", "Nothing calls"),
        ("decoder.0.hook_cross_attn_in", "use_attn_in"),
        ("decoder.0.cross_attn.hook_result", "use_attn_result"),
    ):
        with pytest.raises(InterpError, match=words):
            model.add_hook(place, edit)


def test_copies_and_casts():
    model = built()
    copy = deepcopy(model)
    assert torch.equal(copy(ids(), TARGET), model(ids(), TARGET))
    with torch.no_grad():
        copy.decoder[0].attn.rel_pos_bias.weight.zero_()
    assert not copy.core.decoder.ranges.weight.any()
    assert not torch.allclose(copy(ids(), TARGET), model(ids(), TARGET))
    model.to(torch.float32)
    assert model.cfg.dtype == model.W_Q.dtype == torch.float32
    assert model(ids(), TARGET).dtype == torch.float32


def test_wrong_inputs_are_refused():
    model = built()
    for call, message in (
        (lambda: model(ids()), "decoder_input"),
        (lambda: model(ids(), TARGET[:1]), "rows"),
        (lambda: model(ids() + 50, TARGET), "vocabulary"),
        (lambda: model(ids(), TARGET, return_type="loss"), "return_type"),
        (lambda: model(ids(), TARGET, one_zero_attention_mask=padded(7, 0)), "row 1"),
        (lambda: model("a text"), "no tokenizer"),
        (lambda: model.generate(ids()), "eos_token_id"),
        (lambda: model.generate(ids(), stop_at_eos=False), "decoder_start_token_id"),
        (lambda: model.generate(ids(), return_type="list"), "return_type"),
    ):
        with pytest.raises(InterpError, match=message):
            call()
    model.cfg.decoder_start_token_id = 0
    assert model.generate(ids(), stop_at_eos=False, max_new_tokens=2).shape == (2, 3)


@pytest.mark.parametrize(
    "field",
    [
        {"positional_embedding_type": "standard"},
        {"relative_attention_num_buckets": None},
        {"attention_dir": "causal"},
        {"attn_scores_soft_cap": 3.0},
    ],
)
def test_what_is_not_supported_is_refused_by_name(field):
    with pytest.raises(InterpError, match=next(iter(field))):
        HookedEncoderDecoder({**fields(T5["t5"]), **field})
