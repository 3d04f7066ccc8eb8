"""Circuits of single tokens are what the model computes of them, where nothing else is written."""

import pytest
import torch
from architectures import ARCHITECTURES, CLIPPED, HEADLESS, assert_close, build, covering
from changed_basis import in_another_basis
from torch.profiler import ProfilerActivity, profile

from analyses.methods.circuits import top_entries
from analyses.methods.circuits.token_circuits import TokenCircuits
from analyses.methods.circuits.token_streams import streams_of_tokens
from analyses.methods.circuits.top_entries import strongest, top_columns
from interp import edits, run
from interp.errors import InvalidInput
from interp.linalg import LowRank

IDS = torch.arange(13)
NO_ADDED_POSITIONS = ["llama", "gptj", "bloom", "neox", "phi", "gemma3", "olmo2", "llama3"]
LAYERS_BEHIND_AN_MLP = [
    "gpt2",
    "gptj",
    "neox",
    "gemma2",
    "olmo2",
    "mixtral",
    "bert",
    "bloom-stream",
]


def pairs_of(ids=IDS) -> torch.Tensor:
    """Every prompt of two tokens, ``[key query]``."""
    return torch.cartesian_prod(ids, ids)


@pytest.mark.parametrize("name", NO_ADDED_POSITIONS)
def test_scores_of_tokens_are_those_of_layer_0(name):
    """Up to what is the same for all keys: the bias of the distance."""
    model = build(name)
    scores = run(model, pairs_of(), record="scores").cache["scores", 0][:, :, 1, 0]
    scores = scores.unflatten(0, (13, 13)).permute(2, 1, 0)  # head query key
    for head in range(model.n_heads):
        circuits = TokenCircuits.of(model, 0, head)
        q, k = circuits.rotated(circuits.queries(IDS), 0), circuits.rotated(circuits.keys(IDS), -1)
        difference = q @ k.mT - scores[head]
        assert_close(difference - difference[0, 0], torch.zeros(13, 13).double(), 1e-11)


@pytest.mark.parametrize("name", ["llama", "gptj", "bloom", "neox"])
def test_what_a_head_writes_for_a_token_differs_as_in_layer_0(name):
    """Behind norms and unembedding of the processed model, but for the final divisor."""
    model = build(name)
    written = run(model, IDS[:, None], record="result").cache["result", 0][:, 0]
    folded = model.processed(center_writing=False)
    if name != "llama":  # which has no LayerNorm
        written = written - written.mean(-1, keepdim=True)
    with torch.no_grad():
        logits = written @ folded.W_U
    for head in range(model.n_heads):
        circuits = TokenCircuits.of(model, 0, head)
        direct_logits = circuits.values(IDS) @ circuits.logits(circuits.output())
        assert_close(direct_logits - direct_logits[:1], logits[:, head] - logits[:1, head], 1e-11)


def test_norms_between_a_head_and_the_unembedding_are_folded_in():
    model = build("bert")
    first, second = model.blocks
    centring = torch.eye(12).double() - 1 / 12
    expected = first.attn.W_O[1]
    for norm in (first.ln1, first.ln2, second.ln1, second.ln2):
        expected = expected @ centring @ norm.gain.diag()
    assert_close(TokenCircuits.of(model, 0, 1).output(), expected)


@pytest.mark.parametrize("name", LAYERS_BEHIND_AN_MLP)
@pytest.mark.parametrize("first_mlp", [True, False])
def test_the_stream_of_a_token_alone_is_that_without_attention(name, first_mlp):
    model = build(name)
    off = [edits.zero("attn_out", layer=0)]
    off += [] if first_mlp else [edits.zero("mlp_out", layer=0)]
    expected = run(model, IDS[:, None], record="resid_pre", edits=off).cache["resid_pre", 1][:, 0]
    stack = model.stacks[0]
    until = stack.block(1).steps[0]
    streams = streams_of_tokens(stack, IDS, until, 0, first_mlp=first_mlp)
    assert_close(streams, expected)
    if name == "gpt2":  # whose positions are embedded
        other = streams_of_tokens(stack, IDS, until, None, first_mlp=first_mlp)
        assert not torch.allclose(other, expected)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bloom", "phi", "rotary-encoder", "gemma3"])
def test_scores_by_position_are_means_over_all_pairs_of_tokens(name):
    model = build(name)
    prompts = torch.cartesian_prod(IDS, IDS, IDS)
    scores = run(model, prompts, record="scores").cache["scores", 0].mean(0)
    for head in (0, model.n_heads - 1):
        mean_scores = TokenCircuits.of(model, 0, head).mean_scores(IDS, 3)
        assert_close(mean_scores, scores[head], 1e-11)


def test_keys_of_cross_attention_are_tokens_of_the_encoder():
    model = build("t5")
    circuits = TokenCircuits.of(model, 1, 2, "cross")
    assert circuits.name == "cross.L1H2"
    with torch.no_grad():
        x = model.encoder.final_norm(model.W_E[IDS])
        expected = x @ model.decoder.block(1).cross_attn.W_K[2]
    assert_close(circuits.keys(IDS), expected)
    self_attention = TokenCircuits.of(model, 1, 2, "decoder")
    assert not torch.allclose(self_attention.keys(IDS), expected)


@pytest.mark.parametrize(
    "name",
    covering(
        [n for n, config in ARCHITECTURES.items() if config.head is None and n not in CLIPPED]
    ),
)
def test_the_basis_of_heads_changes_nothing(name):
    model = build(name)
    other = in_another_basis(model)
    attention = None if len(model.stacks) == 1 else "cross"
    circuits = [_circuits(variant, attention) for variant in (other, model)]
    for actual, expected in zip(*circuits, strict=True):
        assert_close(actual, expected, 1e-10)


def _circuits(model, attention):
    ids = torch.arange(model.d_vocab if attention is None else 13)
    circuits = TokenCircuits.of(model, 0, 1, attention)
    right = circuits.logits(circuits.output())
    q, k = circuits.queries(ids), circuits.keys(ids)
    spectrum = LowRank(circuits.weights.W_V[1], circuits.output()).singular_values()
    copying = LowRank(circuits.values(ids), right).positive_fraction()
    return circuits.values(ids) @ right, q @ k.mT, spectrum, copying


# ---- top entries -------------------------------------------------------------------------------


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 20), (5, 4), (4096, 4096)])
def test_top_entries_are_those_of_the_matrix_formed(height, width, monkeypatch):
    """Where blocks divide the matrix, where they do not, and where it is one block."""
    monkeypatch.setattr(top_entries, "ROWS", height)
    monkeypatch.setattr(top_entries, "COLUMNS", width)
    monkeypatch.setattr(top_entries, "ENTRIES", height * width)
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(*s, generator=generator) for s in ((17, 3), (3, 19)))
    formed = left @ right
    columns, values = top_columns(LowRank(left, right), 5)
    expected = formed.topk(5)
    assert torch.equal(columns, expected.indices)
    assert_close(values, expected.values, 1e-6)
    done: list[tuple[int, int]] = []
    rows, columns = strongest(LowRank(left, right), 4, lambda *counts: done.append(counts))
    assert done == [(min(n, 17), 17) for n in range(height, 17 + height, height)]
    assert torch.equal(rows, formed.amax(-1).topk(4).indices)
    assert torch.equal(columns, formed.amax(0).topk(4).indices)
    assert top_columns(LowRank(left, right), 50)[0].shape == (17, 19)


@pytest.mark.parametrize("searched", [strongest, top_columns])
def test_all_blocks_are_formed_in_one_buffer(searched, monkeypatch):
    """All that is allocated, together, is less than two blocks: nothing grows with their number."""
    monkeypatch.setattr(top_entries, "ROWS", 64)
    monkeypatch.setattr(top_entries, "COLUMNS", 512)
    monkeypatch.setattr(top_entries, "ENTRIES", 64 * 1024)
    matrix = LowRank(torch.randn(1024, 2), torch.randn(2, 1024))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        searched(matrix, 3)
    events = (
        event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"
    )
    assert sum(max(0, event.nbytes()) for event in events) < 2 * 4 * 64 * 1024


# ---- bad input ---------------------------------------------------------------------------------


def test_heads_without_an_ov_circuit_of_tokens_are_refused():
    with pytest.raises(InvalidInput, match="has no unembedding"):
        TokenCircuits.of(build("t5"), 0, 0, "encoder").output()
    with pytest.raises(InvalidInput, match="not linear"):
        TokenCircuits.of(build("bert-types"), 0, 0).output()
    with pytest.raises(InvalidInput, match="returns its last stream"):
        TokenCircuits.of(build(HEADLESS), 0, 0).output()


def test_heads_that_are_not_there_are_refused():
    with pytest.raises(InvalidInput, match="head=3 must be an integer from -3 to 2"):
        TokenCircuits.of(build("gpt2"), 1, 3)
    assert TokenCircuits.of(build("gpt2"), -1, -1).name == "L1H2"
    with pytest.raises(InvalidInput, match="layer 0 reads the embeddings"):
        TokenCircuits.of(build("gpt2"), 0, 0, first_mlp=True)
    with pytest.raises(InvalidInput, match="has no MLP"):
        TokenCircuits.of(build("rotary-only"), 1, 0, first_mlp=True)
