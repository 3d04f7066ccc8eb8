"""Attention is H(x) = Σ_h A_h x S_h + Σ_h b_V W_O + b_O."""

from copy import copy
from dataclasses import replace
from inspect import unwrap

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    CLIPPED,
    D_MODEL,
    SINKS,
    assert_close,
    build,
    build_new,
    covering,
    distance,
    tokens_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from interp import InterpError, Transformer, run
from interp.errors import InvalidInput
from interp.model.attention.attention import Attention, NoSoftCap
from interp.model.attention.weights import HeadWeights
from interp.model.context import Context
from interp.model.tap import untouched

BOUND = 1e-12
SINGLE = [name for name, config in ARCHITECTURES.items() if len(config.stacks) == 1]
NORMED = [
    name
    for name in SINGLE
    if any(
        stack.attention.qk_norm or stack.attention.clip
        for stack in ARCHITECTURES[name].stacks.values()
    )
]
LINEAR = [name for name in SINGLE if name not in CLIPPED]
"""Where a head writes a linear function of what it attends to."""
TURNING = ["llama", "gptj", "rotary-only", "rotary-encoder", "neox", "llama3"]
"""Rotary, with angles that do not depend on the length of the text."""
UNTURNED = [
    name
    for name in SINGLE
    if not any(stack.positions.kind == "rotary" for stack in ARCHITECTURES[name].stacks.values())
    and name not in NORMED
]


def stream(seed: int = 0, batch: int = 2, pos: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, pos, D_MODEL, generator=generator, dtype=torch.float64)


def attention_of(name: str, seed: int = 0) -> Attention:
    return build(name, seed).blocks[-1].attn


def heads_of(attention: Attention) -> range:
    return range(attention.n_heads)


@torch.no_grad()
def scores_of(attention: Attention, x: torch.Tensor) -> torch.Tensor:
    """The input of the module's softmax, without the bias of positions and the mask."""
    context = Context.plain(x)
    q, k, _ = attention.project(x, context, untouched)
    q, k = attention.with_positions(q, k, context)
    bias = attention.positions.bias(context)
    scores = attention.scores(q, k, context)
    return scores if bias is None else scores - bias


@settings(max_examples=5)
@given(seed=st.integers(0, 2**16))
@pytest.mark.parametrize("name", LINEAR)
def test_attention_writes_the_sum_over_heads_of_A_x_S(name, seed):
    """H(x) = Σ_h A_h(x) · x · S_h + what the biases write."""
    attention, x = attention_of(name), stream(seed)
    A = attention.A(x)
    by_head = [(A[:, h] @ x @ attention.S(h)).form() for h in heads_of(attention)]
    assert_close(sum(by_head) + attention.bias_output(A), attention(x, Context.plain(x)), BOUND)


@pytest.mark.parametrize("name", ["biased-seed", "gpt2", "bloom", "opt-post", "attention-pair"])
def test_biases_are_part_of_what_attention_writes(name):
    """The converse: without bias_output the identity fails wherever there are biases."""
    attention, x = build(name).stacks[-1].block(0).attn, stream()
    A = attention.A(x)
    by_head = [(A[:, h] @ x @ attention.S(h)).form() for h in heads_of(attention)]
    assert distance(sum(by_head), attention(x, Context.plain(x))) > 1e-3


@pytest.mark.parametrize("name", LINEAR)
def test_each_head_writes_A_x_S_and_its_share_of_the_bias(name):
    """result_h = A_h x S_h + (A_h 1) b_V W_O, per head, as recorded."""
    model = build(name)
    attention = model.blocks[0].attn
    done = run(model, *tokens_of(name), record="all")
    block = model.blocks[0]
    reads = replace(block.steps[0].source(), layer=0)
    x, result = done.cache[reads], done.cache["result", 0]
    for h in heads_of(attention):
        b_V = attention.b_V[h * attention.kv_heads // attention.n_heads]
        A = done.cache["pattern", 0][:, h]
        moved, times = (A @ x @ attention.S(h)).form(), A.sum(-1, keepdim=True)
        assert_close(result[:, :, h], moved + times * (b_V @ attention.W_O[h]), BOUND)


@pytest.mark.parametrize("name", UNTURNED)
def test_scores_are_a_bilinear_form_and_biases(name):
    """scores · scale = x Y xᵀ + x W_Q b_K + (x W_K b_Q)ᵀ + b_Q b_K."""
    attention, x = attention_of(name), stream()
    scores = scores_of(attention, x)
    for h in heads_of(attention):
        kv = h * attention.kv_heads // attention.n_heads
        b_Q, b_K = attention.b_Q[h], attention.b_K[kv]
        expected = (x @ attention.Y(h) @ x.mT).form()
        expected = expected + (x @ (attention.W_Q[h] @ b_K))[..., None]
        expected = expected + (x @ (attention.W_K[kv] @ b_Q))[:, None, :] + b_Q @ b_K
        seen = scores[:, h].isfinite()
        assert_close(scores[:, h][seen], (expected / attention.divisor)[seen], BOUND)


@pytest.mark.parametrize("name", ["seed", "rotary-encoder"])
def test_without_biases_scores_are_x_Y_x_alone(name):
    attention, x = attention_of(name), stream()
    scores = scores_of(attention, x)
    for i in range(x.shape[1]):
        for j in range(i + 1):
            for h in heads_of(attention):
                score = ((x[:, i] @ attention.Y(h, offset=i - j)).form() * x[:, j]).sum(-1)
                assert_close(scores[:, h, i, j], score / attention.divisor, BOUND)


@pytest.mark.parametrize("name", TURNING)
def test_with_rotary_positions_Y_of_the_offset_gives_every_score(name):
    """scores[i, j] · scale = x_i Y(i − j) x_jᵀ, and the biases turned as their positions are."""
    attention, x = attention_of(name), stream()
    scores, turned = scores_of(attention, x), attention.positions.rotated
    at = torch.arange(x.shape[1])
    for h in heads_of(attention):
        kv = h * attention.kv_heads // attention.n_heads
        b_q = turned(attention.b_Q[h].expand(len(at), -1), at)
        b_k = turned(attention.b_K[kv].expand(len(at), -1), at)
        for i in range(len(at)):
            for j in range(len(at)):
                expected = ((x[:, i] @ attention.Y(h, offset=i - j)).form() * x[:, j]).sum(-1)
                q = turned(x[:, i] @ attention.W_Q[h], at[i])
                k = turned(x[:, j] @ attention.W_K[kv], at[j])
                expected = expected + q @ b_k[j] + k @ b_q[i] + b_q[i] @ b_k[j]
                if bool(scores[:, h, i, j].isfinite().all()):
                    assert_close(scores[:, h, i, j], expected / attention.divisor, BOUND)


@pytest.mark.parametrize("name", CLIPPED)
def test_where_values_are_clipped_there_is_no_S(name):
    with pytest.raises(InvalidInput, match="not a linear function"):
        attention_of(name).S(0)


@pytest.mark.parametrize("name", CLIPPED)
def test_a_clip_bounds_what_heads_read_and_write(name):
    """Scores are of clipped queries and keys, and z is of clipped values."""
    model = build(name)
    cache, clip = run(model, *tokens_of(name), record="all").cache, model.blocks[0].attn.clip
    for part, points in {"v": ("z",), "q": ("rot_q", "q_normalized")}.items():
        assert cache[part, 0].abs().max() > clip.bound
        bound = clip.bound * (2**0.5 if part == "q" else 1)  # of a rotated pair
        assert all(cache[point, 0].abs().max() <= bound + BOUND for point in points)
    A, v = cache["pattern", 0], model.blocks[0].attn.values(cache["v", 0])
    assert_close(torch.einsum("bhqk,bkhd->bqhd", A, v), cache["z", 0], BOUND)
    assert_close(clip(cache["k_normalized", 0]), cache["k_normalized", 0], 0.0)


@pytest.mark.parametrize("name", CLIPPED)
def test_a_clip_that_nothing_exceeds_changes_nothing(name):
    """The converse: a bound that is exceeded changes the logits."""
    config, (tokens,) = ARCHITECTURES[name], tokens_of(name)

    def with_clip(clip):
        attention = replace(config.decoder.attention, clip=clip)
        return replace(config, decoder=replace(config.decoder, attention=attention))

    def logits(clip):
        model = Transformer(with_clip(clip)).double()
        model.load_state_dict(dict(zip(model.state_dict(), weights, strict=True)))
        return model(tokens)

    weights = list(build(name).state_dict().values())
    with torch.no_grad():
        assert_close(logits(1e3), logits(None), BOUND)
        model = Transformer(with_clip(1e308))  # which float32 has not
        assert model(tokens).isfinite().all()
        assert distance(logits(config.decoder.attention.clip), logits(None)) > 1e-3


@pytest.mark.parametrize("name", NORMED)
def test_where_queries_and_keys_are_normed_there_is_no_Y(name):
    with pytest.raises(InvalidInput, match="not a bilinear form"):
        attention_of(name).Y(0)


def test_a_cap_bounds_the_scores_and_keeps_their_order():
    """scores = cap · tanh(x Y xᵀ / scale / cap)."""
    attention, x = build("gemma2").blocks[0].attn, 3 * stream()
    capped = scores_of(attention, x)
    bare = copy(attention)
    bare.soft_cap = NoSoftCap()
    raw = scores_of(bare, x)
    seen = raw.isfinite()
    assert_close(capped[seen], 2.0 * (raw[seen] / 2.0).tanh(), BOUND)
    assert float(capped[seen].abs().max()) <= 2.0 < float(raw[seen].abs().max())


@pytest.mark.parametrize("name", TURNING)
def test_with_rotary_positions_one_Y_does_not_fit_every_offset(name):
    """The converse: Y(0) and Y(1) are different matrices."""
    attention = attention_of(name)
    assert distance(attention.Y(0, offset=1).form(), attention.Y(0).form()) > 1e-3


@pytest.mark.parametrize("name", ["gpt2", "bloom", "set-encoder"])
def test_without_rotary_positions_Y_knows_no_offset(name):
    attention = attention_of(name)
    assert torch.equal(attention.Y(0, offset=5).form(), attention.Y(0).form())


def test_the_seed_of_the_idea_is_expressible_literally():
    """No norms, no biases, no positions: x1 = x0 + H(x0), H(x) = Σ_h A_h(x) · x · S_h."""
    model = build("seed")
    attention, W_E, W_U = model.blocks[0].attn, model.W_E, model.W_U
    (ids,) = tokens_of("seed")
    x0 = W_E[ids]
    n = x0.shape[1]
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    H = torch.zeros_like(x0)
    for h in heads_of(attention):
        scores = (x0 @ attention.Y(h).form() @ x0.mT) / attention.d_head**0.5
        A = scores.masked_fill(future, -torch.inf).softmax(-1)
        H = H + A @ x0 @ attention.S(h).form()
    x1 = x0 + H
    done = run(model, ids, record=["resid_post"])
    assert_close(done.cache["resid_post", 0], x1, BOUND)
    assert_close(done.logits, x1 @ W_U, BOUND)


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_rows_of_the_pattern_are_distributions(name):
    cache = run(build(name), *tokens_of(name), record=["pattern"]).cache
    for A in (cache[place] for place in cache):
        assert bool((A >= 0).all())
        if name in SINKS:
            assert bool((A.sum(-1) < 1).all())
        else:
            assert_close(A.sum(-1), torch.ones_like(A[..., 0]), BOUND)


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_is_one_more_column_of_the_softmax(name):
    """A_ij = exp(s_ij) / (exp(c_h) + Σ_k exp(s_ik)); the sink takes the rest of each row."""
    attention, x = attention_of(name), stream()
    scores, c = scores_of(attention, x), attention.softmax.sinks[:, None]
    A, weights = attention.A(x), scores.exp()
    assert_close(A, weights / (c.exp() + weights.sum(-1))[..., None], BOUND)
    assert_close(1 - A.sum(-1), c.exp() / (c.exp() + weights.sum(-1)), BOUND)
    assert c.unique().numel() > 1


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_of_minus_infinity_is_none(name):
    """The softmax is over keys alone, and b_V is then written once."""
    model, x = build_new(name), stream()
    attention = model.blocks[0].attn
    with torch.no_grad():
        attention.softmax.sinks.fill_(-torch.inf)
    A = attention.A(x)
    assert_close(A, scores_of(attention, x).softmax(-1), BOUND)
    with pytest.raises(InvalidInput, match=r"sinks.*bias_output"):
        _ = attention.constant_output


def test_A_takes_a_stream_without_a_batch_axis():
    attention, x = attention_of("llama"), stream(batch=1)
    assert torch.equal(attention.A(x[0]), attention.A(x)[0])


@pytest.mark.parametrize("name", SINGLE)
def test_weights_by_name_are_views_of_the_stored_matrix(name):
    """W_Q [head d_model d_head] and so on share memory with what the forward multiplies by."""
    attention = attention_of(name)
    stored = attention.weight_qkv.untyped_storage().data_ptr()
    for W in (attention.W_Q, attention.W_K, attention.W_V):
        assert W.untyped_storage().data_ptr() == stored
    assert (
        attention.W_O.untyped_storage().data_ptr()
        == attention.weight_o.untyped_storage().data_ptr()
    )


@pytest.mark.parametrize("head", [-1, 3, 99, 1.0, True, "0", None])
def test_a_head_that_is_not_there_is_refused(head):
    attention = attention_of("gpt2")
    for circuit in (HeadWeights.S, HeadWeights.Y):
        with pytest.raises(InterpError, match=f"Head {head!r}: .* heads 0..2"):
            unwrap(circuit)(attention, head)  # without the checks of annotations in tests
