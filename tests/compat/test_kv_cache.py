"""Texts that are read in pieces, and generation: the KV cache of the façade."""

import pytest
import torch
from torch.testing import assert_close

from interp import InterpError
from interp.compat import TransformerLensKeyValueCache
from tests.compat.shapes import SHAPES, build, built, close, tokens
from tests.compat.words import word_tokenizer

pytestmark = pytest.mark.slow

PREDICTING = [name for name in SHAPES if "d_vocab_out" not in SHAPES[name]]
GREEDY = {"do_sample": False, "stop_at_eos": False, "max_new_tokens": 5, "verbose": False}


def cache_of(model, rows=2):
    return TransformerLensKeyValueCache.init_cache(model.cfg, "cpu", rows)


def in_pieces(model, ids, cache, at=(4, 5)):
    pieces = ids.tensor_split(at, dim=1)
    return torch.cat([model(piece, past_kv_cache=cache) for piece in pieces], dim=1)


@pytest.mark.parametrize("name", SHAPES)
def test_a_text_in_pieces_has_the_logits_of_the_whole(name):
    model = built(name)
    cache = cache_of(model)
    assert_close(in_pieces(model, tokens(), cache), model(tokens()), atol=1e-12, rtol=0)
    assert cache.n_columns == tokens().shape[1]


def test_pieces_without_the_cache_do_not():
    model = built("gpt2")
    apart = torch.cat([model(piece) for piece in tokens().tensor_split((4,), dim=1)], dim=1)
    assert not torch.allclose(apart, model(tokens()))


def test_rotated_keys_are_seen_of_all_positions_and_keys_of_new_ones():
    model = built("llama")
    whole = model.run_with_cache(tokens())[1]
    cache = cache_of(model)
    model(tokens()[:, :6], past_kv_cache=cache)
    new = model.run_with_cache(tokens()[:, 6:], past_kv_cache=cache)[1]
    assert_close(new["rot_k", 1], whole["rot_k", 1], atol=1e-12, rtol=0)
    assert_close(new["k", 1], whole["k", 1][:, 6:], atol=1e-12, rtol=0)
    assert_close(new["pattern", 1], whole["pattern", 1][:, :, 6:], atol=1e-12, rtol=0)
    assert_close(cache[1].past_keys, whole["k", 1], atol=1e-12, rtol=0)


def test_an_edit_of_rotated_keys_reaches_the_cached_ones():
    def erase_first(x, hook):
        x[:, 0] = 0

    model, hooks = built("llama"), [("blocks.0.attn.hook_rot_k", erase_first)]
    expected = model.run_with_hooks(tokens(), fwd_hooks=hooks)[:, 6:]
    cache = cache_of(model)
    model.run_with_hooks(tokens()[:, :6], past_kv_cache=cache, fwd_hooks=hooks)
    cached = model.run_with_hooks(tokens()[:, 6:], past_kv_cache=cache, fwd_hooks=hooks)
    assert_close(cached, expected, atol=1e-12, rtol=0)
    assert not torch.allclose(cached, model(tokens())[:, 6:])


def test_a_frozen_cache_continues_one_prefix_in_several_ways():
    model = built("pythia")
    cache = cache_of(model)
    model(tokens()[:, :5], past_kv_cache=cache)
    cache.freeze()
    for ids in (tokens(), tokens().flip(1)):
        both = torch.cat([tokens()[:, :5], ids[:, :2]], dim=1)
        logits = model(ids[:, :2], past_kv_cache=cache)
        assert_close(logits, model(both)[:, 5:], atol=1e-12, rtol=0)
        assert cache.n_columns == cache.previous_attention_mask.shape[1] == 5
    cache.unfreeze()
    model(tokens()[:, :2], past_kv_cache=cache)
    assert cache.n_columns == 7


def test_padding_of_earlier_pieces_is_masked():
    model = built("gpt2")
    model.set_tokenizer(word_tokenizer("left"))
    ids = tokens() + 3
    padded = torch.cat([torch.zeros(2, 3, dtype=torch.long), ids], dim=1)
    cached = in_pieces(model, padded, cache_of(model))
    assert_close(cached[:, 3:], model(ids), atol=1e-12, rtol=0)


def test_caches_that_do_not_match_are_refused():
    model = built("gpt2")
    with pytest.raises(InterpError, match="2 rows"):
        model(tokens()[:1], past_kv_cache=cache_of(model))
    stopped = cache_of(model)
    model(tokens(), past_kv_cache=stopped, stop_at_layer=1)
    with pytest.raises(InterpError, match="whole forwards"):
        model(tokens(), past_kv_cache=stopped)
    full = cache_of(model)
    model(tokens(), past_kv_cache=full)
    model(tokens(), past_kv_cache=full)
    with pytest.raises(InterpError, match="n_ctx"):
        model(tokens(), past_kv_cache=full)


# ---- generation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PREDICTING)
def test_generation_is_the_same_with_and_without_the_cache(name):
    model = built(name)
    generated, expected = (
        model.generate(tokens()[:, :3], use_past_kv_cache=cached, **GREEDY)
        for cached in (True, False)
    )
    assert torch.equal(generated, expected)


def test_each_step_computes_the_new_token_alone():
    model, lengths = built("gpt2"), []
    model.add_hook("blocks.0.hook_resid_pre", lambda x, hook: lengths.append(x.shape[1]))
    model.generate(tokens()[:, :3], **GREEDY)
    assert lengths == [3, 1, 1, 1, 1]
    lengths.clear()
    model.generate(tokens()[:, :3], use_past_kv_cache=False, **GREEDY)
    assert lengths == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("bos_is_pad", [False, True])
def test_padded_texts_continue_as_they_do_alone(bos_is_pad):
    model = built("llama")
    model.set_tokenizer(word_tokenizer(bos_is_pad=bos_is_pad))
    texts = ["w3 w4 w5 w6", "w7"]
    together = model.generate(texts, return_type="tokens", **GREEDY)
    for row, text in zip(together, texts, strict=True):
        alone = model.generate(text, return_type="tokens", **GREEDY)[0]
        assert row[-len(alone) :].tolist() == alone.tolist()


def test_a_stream_is_generation_in_parts():
    model = built("gpt2")
    parts = list(model.generate_stream(tokens()[:, :3], max_tokens_per_yield=2, **GREEDY))
    assert [part.shape[1] for part in parts] == [4, 2, 2]
    assert torch.equal(torch.cat(parts, dim=1), model.generate(tokens()[:, :3], **GREEDY))


def test_logits_of_each_step():
    model = built("gpt2")
    ids, logits = model.generate(tokens()[:, :3], output_logits=True, **GREEDY)
    whole = model(ids)
    for step, step_logits in enumerate(logits):
        assert_close(step_logits, whole[:, 2 + step], atol=1e-12, rtol=0)


def test_rows_end_at_eos():
    model = built("gpt2")
    first = int(model.generate(tokens()[:1, :3], **GREEDY)[0, 3])
    greedy = GREEDY | {"stop_at_eos": True, "eos_token_id": first}
    assert model.generate(tokens()[:1, :3], **greedy).shape[1] == 4
    with pytest.raises(InterpError, match="eos_token_id"):
        model.generate(tokens(), **GREEDY | {"stop_at_eos": True})


# ---- against TransformerLens --------------------------------------------------------------------


@pytest.fixture
def pair(name):
    pytest.importorskip("transformer_lens")
    made = build(name)
    for model in made:
        model.set_tokenizer(word_tokenizer("left"))
    return made


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PREDICTING)
def test_pieces_are_theirs(name, pair):
    theirs = pytest.importorskip("transformer_lens")
    ids = tokens() + 3
    ids[0, :2], ids[0, 2] = 0, 1
    kinds = (TransformerLensKeyValueCache, theirs.TransformerLensKeyValueCache)
    caches = [kind.init_cache(model.cfg, "cpu", 2) for kind, model in zip(kinds, pair, strict=True)]
    for piece in ids.tensor_split((4, 5), dim=1):
        activations, expected = (
            model.run_with_cache(piece, past_kv_cache=cache)[1]
            for model, cache in zip(pair, caches, strict=True)
        )
        assert sorted(activations) == sorted(expected)
        for key in expected:
            # Their ALiBi depends on the length of earlier forwards, by a constant in each row.
            if name != "bloom" or not key.endswith("attn_scores"):
                close(activations[key], expected[key])
    for entry, expected in zip(*(cache.entries for cache in caches), strict=True):
        close(entry.past_keys, expected.past_keys)
        close(entry.past_values, expected.past_values)
    assert torch.equal(*(cache.previous_attention_mask.long() for cache in caches))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PREDICTING)
@pytest.mark.parametrize("do_sample", [False, True], ids=["greedy", "sampled"])
def test_generation_is_theirs(name, pair, do_sample):
    texts = ["w3 w4 w5 w6", "w7"]
    made = []
    for model in pair:
        torch.manual_seed(0)
        ask = GREEDY | {"do_sample": do_sample, "freq_penalty": 0.5, "top_k": 9}
        made.append(model.generate(texts, return_type="tokens", **ask))
    assert torch.equal(*made)


@pytest.mark.parametrize("name", SHAPES)
def test_the_mask_of_input_to_embed_continues_from_a_layer(name):
    model = built(name)
    cache = cache_of(model)
    model(tokens()[:, :5], past_kv_cache=cache)
    stream, ids, _, mask = model.input_to_embed(tokens()[:, 5:], past_kv_cache=cache)
    assert mask.shape == tokens().shape
    logits = model(stream, start_at_layer=0, tokens=ids, past_kv_cache=cache, attention_mask=mask)
    assert_close(logits, model(tokens())[:, 5:], atol=1e-12, rtol=0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_mask_of_input_to_embed_is_theirs(side):
    first, then = ["w3 w4 w5", "w6"], torch.tensor([[7, 8], [9, 10]])
    results = []
    for model in build("gpt2"):
        model.set_tokenizer(word_tokenizer(padding_side=side))
        cache = (
            _their_cache(model)
            if model.__module__.startswith("transformer_lens")
            else (cache_of(model))
        )
        model(first, past_kv_cache=cache)
        stream, _, _, mask = model.input_to_embed(then, past_kv_cache=cache)
        options = {"past_kv_cache": cache, "attention_mask": mask}
        results.append((stream, mask, model(stream, start_at_layer=0, **options)))
    for ours, theirs in zip(*results, strict=True):
        close(ours, theirs)
    assert not mask.all()


def _their_cache(model):
    cache = pytest.importorskip("transformer_lens").TransformerLensKeyValueCache
    return cache.init_cache(model.cfg, "cpu", 2)
