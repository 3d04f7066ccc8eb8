"""The façade of BERT: against TransformerLens 3.9 and ``transformers``, and by itself."""

from copy import deepcopy

import pytest
import torch
from torch.testing import assert_close

import interp
from interp import InterpError
from interp.compat import (
    BertNextSentencePrediction,
    HookedEncoder,
    HookedTransformerConfig,
)
from tests.compat.encoder_shapes import (
    BERT,
    OF_BERT,
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

TYPES = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 0, 0, 0]])
MASK = padded(7, 4)
TYPES_AND_MASK = {"token_type_ids": TYPES, "one_zero_attention_mask": MASK}
STACKED = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O", "W_in", "W_out", "b_in", "b_out")
NEVER = ("pooler", "nsp_head")
"""Parts that the forward of the masked language model does not run."""


def built(name="bert"):
    model = HookedEncoder(HookedTransformerConfig(**fields(BERT[name])))
    drawn(model)
    return model


# ---- against TransformerLens ------------------------------------------------------------------


def pair(name, dtype=torch.float64, flags=()):
    theirs = pytest.importorskip("transformer_lens")
    values = {**fields(BERT[name], dtype), **dict.fromkeys(flags, True)}
    model = theirs.HookedEncoder(theirs.HookedTransformerConfig(**values))
    drawn(model)
    ours = HookedEncoder(HookedTransformerConfig(**values))
    ours.load_state_dict(model.state_dict())
    return ours, model


of_theirs = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@of_theirs
@pytest.mark.parametrize("flags", [(), OF_BERT], ids=["plain", "split"])
@pytest.mark.parametrize("name", BERT)
def test_activations_gradients_and_state_dicts_are_theirs(name, flags):
    ours, model = pair(name, flags=flags)
    assert sorted(ours.hook_dict) == sorted(model.hook_dict)
    assert {k: v.shape for k, v in ours.named_parameters()} == {
        k: v.shape for k, v in model.named_parameters()
    }
    model.load_state_dict(ours.state_dict())
    (logits, cache), (expected_logits, expected) = (
        recorded(each, ids(), **TYPES_AND_MASK) for each in (ours, model)
    )
    close(logits, expected_logits)
    assert sorted(cache) == sorted(expected)
    for key in expected:
        close(cache[key], expected[key])
    parameters = dict(ours.named_parameters())
    for key, parameter in model.named_parameters():
        assert (parameter.grad is None) == key.startswith(NEVER)
        if parameter.grad is not None:
            close(parameters[key].grad, parameter.grad)


@of_theirs
def test_activations_in_float32():
    ours, model = pair("bert", torch.float32)
    cache, expected = (each.run_with_cache(ids(), **TYPES_AND_MASK)[1] for each in (ours, model))
    for key in expected:
        close(cache[key], expected[key], 1e-5)


@of_theirs
@pytest.mark.parametrize(("name", "flags"), [("bert", ()), ("gated", OF_BERT)])
def test_every_edit_has_the_effect_that_theirs_has(name, flags):
    ours, model = pair(name, flags=flags)
    with torch.no_grad():
        plain, cache = ours.run_with_cache(ids(), **TYPES_AND_MASK)
        for place in (place for place in cache if ".0." not in place):
            logits, expected = (
                each.run_with_hooks(ids(), fwd_hooks=[(place, fn)], **TYPES_AND_MASK)
                for each, fn in ((ours, edit), (model, returned))
            )
            close(logits, expected)
            assert not torch.allclose(logits, plain), place


@of_theirs
def test_next_sentences_are_predicted_as_theirs():
    ours, model = pair("bert")
    theirs = pytest.importorskip("transformer_lens").BertNextSentencePrediction(model)
    nsp = BertNextSentencePrediction(ours)
    (logits, cache), (expected_logits, expected) = (
        each.run_with_cache(ids(), **TYPES_AND_MASK) for each in (nsp, theirs)
    )
    close(logits, expected_logits)
    assert sorted(cache) == sorted(expected)
    for key in expected:
        close(cache[key], expected[key])
    for place in ("pooler.hook_pooler_out", "nsp_head.hook_nsp_out", "blocks.0.hook_mlp_out"):
        edited = nsp.run_with_hooks(ids(), fwd_hooks=[(place, edit)], **TYPES_AND_MASK)
        with model.hooks([(place, returned)]):
            close(edited, theirs(ids(), **TYPES_AND_MASK))
        assert not torch.allclose(edited, logits)


@of_theirs
def test_weights_and_caches_are_theirs():
    ours, model = pair("bert")
    for name in (*STACKED, "W_U", "b_U", "W_E", "W_pos", "W_E_pos"):
        close(getattr(ours, name), getattr(model, name))
    for name in ("QK", "OV"):
        close(getattr(ours, name).AB, getattr(model, name).AB)
    assert ours.all_head_labels() == model.all_head_labels()
    caches = [each.run_with_cache(ids(), **TYPES_AND_MASK)[1] for each in (ours, model)]
    for name in ("pattern", "resid_post", "q", "mlp_out"):
        stacked, expected = (cache.stack_activation(name) for cache in caches)
        close(stacked, expected)


# ---- against transformers ---------------------------------------------------------------------

SMALL = {
    **{"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"intermediate_size": 20, "max_position_embeddings": 12},
}


def live(kind="BertForPreTraining", **options):
    transformers = pytest.importorskip("transformers")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, kind)(transformers.BertConfig(**{**SMALL, **options}))
    return model.double().eval()


def of_live(model, tokens=None):
    tokens = ids() if tokens is None else tokens
    with torch.no_grad():
        return model(tokens, token_type_ids=TYPES, attention_mask=MASK)


def test_a_live_model_is_loaded_with_all_of_its_heads():
    model = live()
    ours = HookedEncoder.from_pretrained("any", hf_model=model, dtype=torch.float64)
    expected = of_live(model)
    close(ours(ids(), **TYPES_AND_MASK), expected.prediction_logits)
    close(
        BertNextSentencePrediction(ours)(ids(), **TYPES_AND_MASK), expected.seq_relationship_logits
    )
    assert not ours.training
    assert ours.cfg.original_architecture == "BertForMaskedLM"


@pytest.mark.parametrize("tied", [True, False])
def test_what_a_model_lacks_is_an_error_and_never_random(tied):
    model = live("BertForMaskedLM", tie_word_embeddings=tied)
    ours = HookedEncoder.from_pretrained("any", hf_model=model, dtype=torch.float64)
    close(ours(ids(), **TYPES_AND_MASK), of_live(model).logits)
    for loaded in (ours, deepcopy(ours)):
        with pytest.raises(InterpError, match="BertPooler"):
            BertNextSentencePrediction(loaded)(ids(), **TYPES_AND_MASK)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("BertModel", {}),
        ("BertForNextSentencePrediction", {}),
        ("BertForMaskedLM", {"hidden_act": "gelu_new"}),
        ("BertForMaskedLM", {"type_vocab_size": 3}),
    ],
)
def test_models_that_it_cannot_express_are_refused(kind, options):
    with pytest.raises(InterpError, match="HookedEncoder can't express"):
        HookedEncoder.from_pretrained("any", hf_model=live(kind, **options))
    for name in ("python-mlm", "python-2l", "dates"):
        with pytest.raises(InterpError, match="HookedEncoder"):
            HookedEncoder.from_pretrained(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of ``transformers`` with a WordPiece tokenizer, and its model and tokenizer."""
    transformers = pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("bert")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = ["the", "cat", "sat", "on", "mat", "##s", "a", "dog", "ran", ".", "s"]
    (path / "vocab.txt").write_text("\n".join([*special, *words]), encoding="utf-8")
    tokenizer = transformers.BertTokenizerFast(vocab=str(path / "vocab.txt"))
    model = live(vocab_size=16).float()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path, model, tokenizer


TEXTS = ["the cats sat on a [MASK] .", "a dog ran"]


def test_a_folder_is_loaded_with_its_tokenizer_and_heads(folder):
    path, model, tokenizer = folder
    ours = HookedEncoder.from_pretrained(path)
    for text in (*TEXTS, TEXTS, "the cat " * 20):
        options = {"return_tensors": "pt", "padding": True, "truncation": True, "max_length": 12}
        encoded = tokenizer(text, **options)
        tensors = ours.to_tokens(text)
        names = ("input_ids", "token_type_ids", "attention_mask")
        for tensor, name in zip(tensors, names, strict=True):
            assert torch.equal(tensor, encoded[name])
        with torch.no_grad():
            expected = model(**encoded)
        assert_close(ours(text), expected.prediction_logits, atol=1e-5, rtol=0)
    pair_of = BertNextSentencePrediction(ours)
    for texts in (TEXTS, ["the cat " * 9, "a dog ran"], ["a", "the cat " * 9]):
        encoded = tokenizer(*texts, return_tensors="pt", truncation=True, max_length=12)
        for tensor, name in zip(pair_of.to_tokens(texts), names, strict=True):
            assert torch.equal(tensor, encoded[name])
        expected = model(**encoded).seq_relationship_logits
        assert_close(pair_of(texts), expected, atol=1e-5, rtol=0)
        sequential = "NOT" not in pair_of(texts, return_type="predictions")
        assert sequential == bool(expected[0, 0] > expected[0, 1])


def test_texts_of_different_lengths_are_lists_without_padding_and_no_tensor(folder):
    path, _, tokenizer = folder
    ours = HookedEncoder.from_pretrained(path).tokenizer
    theirs = tokenizer(TEXTS)
    for name, rows in ours(TEXTS).items():
        assert rows == theirs[name]
    with pytest.raises(InterpError, match="padding=True"):
        ours(TEXTS, return_tensors="pt")


def test_masked_tokens_are_predicted_as_text(folder):
    path, _, tokenizer = folder
    ours, with_tokenizer = (
        HookedEncoder.from_pretrained(path, tokenizer=choice) for choice in (None, tokenizer)
    )
    for text in (TEXTS[0], "[MASK] cat sat [MASK]"):
        predicted = ours(text, return_type="predictions")
        assert predicted == with_tokenizer(text, return_type="predictions")
        masked = ours.to_tokens(text)[0] == tokenizer.mask_token_id
        assert len(predicted if isinstance(predicted, list) else [predicted]) == masked.sum()
    assert ours(TEXTS, return_type=None) is None
    named = HookedEncoder({**fields(BERT["bert"]), "tokenizer_name": str(path), "d_vocab": -1})
    assert named.cfg.d_vocab == len(tokenizer)
    assert torch.equal(named.to_tokens(TEXTS)[0], ours.to_tokens(TEXTS)[0])


# ---- by itself --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BERT)
def test_without_padding_it_is_the_core(name):
    model = built(name)
    for block in model.blocks if name == "gated" else ():
        block.mlp.b_in.data.zero_()  # the core adds none after the product
    batch = model.core.batch(ids(), types=TYPES)
    assert_close(model(ids(), token_type_ids=TYPES), model.core(batch), atol=1e-12, rtol=0)
    recorded, _ = model.run_with_cache(ids(), token_type_ids=TYPES)
    assert_close(recorded, model.core(batch), atol=1e-12, rtol=0)


def test_padding_on_the_right_changes_no_token_and_on_the_left_moves_positions():
    model = built()
    alone = model(ids()[:, :4])
    right = model(ids(), one_zero_attention_mask=padded(4, 4))[:, :4]
    assert_close(right, alone, atol=1e-12, rtol=0)
    assert not torch.allclose(model(ids())[:, :4], alone)
    shifted = torch.cat([ids()[:, 4:], ids()[:, :4]], dim=1)
    left = model(shifted, one_zero_attention_mask=1 - padded(3, 3))[:, 3:]
    assert not torch.allclose(left, alone)


def test_masked_keys_are_masked_for_padded_queries_too():
    cache = built().run_with_cache(ids(), one_zero_attention_mask=MASK)[1]
    pattern = cache["pattern", 0][1]
    assert not pattern[..., 4:].any()
    assert_close(pattern.sum(-1), torch.ones_like(pattern[..., 0]))


def test_hooks_stay_on_the_facade():
    model = built()
    plain = model(ids())
    model.add_hook("blocks.0.hook_normalized_resid_post", edit)
    assert not torch.allclose(model(ids()), plain)
    assert_close(model.core(ids()), plain, atol=1e-12, rtol=0)
    model.reset_hooks()
    assert_close(model(ids()), plain, atol=0, rtol=0)


def test_optional_points_need_their_setting():
    model = built()
    for place, setting in (
        ("blocks.0.attn.hook_result", "use_attn_result"),
        ("blocks.0.hook_k_input", "use_split_qkv_input"),
        ("blocks.0.hook_mlp_in", "use_hook_mlp_in"),
    ):
        with pytest.raises(InterpError, match=setting):
            model.add_hook(place, edit)
        setattr(model.cfg, setting, True)
        model.add_hook(place, edit)
    assert not torch.allclose(model(ids()), model.core(ids()))


def test_parameters_share_the_core_and_copies_do_not():
    model = built()
    copy = deepcopy(model)
    with torch.no_grad():
        model.blocks[0].attn.W_Q.zero_()
        model.embed.token_type_embed.W_token_type.zero_()
    assert not model.core.blocks[0].attn.W_Q.any()
    assert copy.W_Q.any()
    assert not torch.allclose(model(ids()), copy(ids()))
    copy.load_state_dict(model.state_dict())
    assert torch.equal(model(ids()), copy(ids()))
    copy.to(torch.float32)
    assert copy.cfg.dtype == copy.pooler.W.dtype == copy.W_E.dtype == torch.float32
    assert_close(copy(ids()).double(), model(ids()), atol=1e-4, rtol=0)
    before = model(ids()).logsumexp(-1).mean()
    before.backward()
    torch.optim.SGD(model.parameters(), lr=0.01).step()
    assert model(ids()).logsumexp(-1).mean() < before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"return_type": "loss"}, "return_type"),
        ({"token_type_ids": TYPES + 1}, "type 2"),
        ({"token_type_ids": TYPES[:, :3]}, "types"),
        ({"one_zero_attention_mask": padded(7, 0)}, "row 1"),
        ({"one_zero_attention_mask": MASK[:1]}, "mask"),
    ],
)
def test_wrong_inputs_are_refused(options, message):
    with pytest.raises(InterpError, match=message):
        built()(ids(), **options)


def test_wrong_tokens_are_refused():
    model = built()
    with pytest.raises(InterpError, match="vocabulary"):
        model(ids() + 50)
    with pytest.raises(InterpError, match="context of 12"):
        model(ids(13), one_zero_attention_mask=padded(4, 4, columns=13))
    with pytest.raises(InterpError, match="no tokenizer"):
        model("a text")
    with pytest.raises(InterpError, match="mask token"):
        model(ids(), return_type="predictions")
    nsp = BertNextSentencePrediction(model)
    with pytest.raises(InterpError, match="token_type_ids"):
        nsp(ids())
    with pytest.raises(InterpError, match="two texts"):
        nsp(["one"])
    with pytest.raises(InterpError, match="one pair"):
        nsp(ids(), return_type="predictions", token_type_ids=TYPES)


@pytest.mark.parametrize(
    "field",
    [
        {"n_key_value_heads": 1},
        {"positional_embedding_type": "rotary"},
        {"act_fn": "solu"},
        {"attn_only": True},
        {"output_logits_soft_cap": 3.0},
    ],
)
def test_what_is_not_supported_is_refused_by_name(field):
    with pytest.raises(InterpError, match=next(iter(field))):
        HookedEncoder({**fields(BERT["bert"]), **field})


def test_an_encoder_has_no_attn_in():
    model = built()
    model.cfg.use_attn_in = True
    with pytest.raises(InterpError, match="use_split_qkv_input"):
        model(ids())


def test_the_bundled_encoder_keeps_its_own_calls():
    """What the refusal advises."""
    model = interp.load("python-mlm")
    _, cache = model.run_with_cache(
        torch.tensor([[1, 2, 3]]), names_filter=["blocks.0.attn.hook_z"]
    )
    assert cache["z", 0].shape[:2] == (1, 3)
