"""A sweep computes less than one whole forward an edit: counted, never timed.

What is counted are the products of edited forwards, and the shapes that they are given. That the
numbers are those of whole forwards is :mod:`laws.test_sweep`'s.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from architectures import ARCHITECTURES, build_new, tokens_of
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from interp import AttentionConfig, Config, MLPConfig, StackConfig, edits, metrics, run, sweep
from interp.model.attention.attention import Attention
from interp.model.mlp import MLP
from interp.model.network import Unembedding
from interp.sweeps.batched import BatchedForward

LAYERS, HEADS, COLUMNS = 3, 3, 6
LAST = metrics.logit_diff(1, 2)
LAST_DIVERGENCE = metrics.kl(torch.zeros(2, COLUMNS, ARCHITECTURES["gpt2"].d_vocab), pos=-1)
Seen = list[tuple[int, tuple[tuple[int, ...], ...]]]
Watch = Callable[[type, str], Seen]


def deep(name: str):
    """An architecture with three layers, so that one lies between the edited and the last."""
    config = ARCHITECTURES[name]
    stack, stack_config = next(iter(config.stacks.items()))
    return build_new(replace(config, **{stack: replace(stack_config, n_layers=LAYERS)}))


@pytest.fixture(scope="module")
def model():
    return deep("gpt2")


@pytest.fixture(scope="module")
def tokens() -> Tensor:
    return tokens_of("gpt2", batch=2, pos=COLUMNS)[0]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Watches a method in edited forwards: whose it was, and the shapes of what it was given."""
    inside: list[bool] = []
    values = BatchedForward.values

    def noted(forward: BatchedForward) -> Tensor:
        inside.append(True)
        try:
            return values(forward)
        finally:
            inside.pop()

    def watching(kind: type, name: str) -> Seen:
        method, seen = getattr(kind, name), []

        def spied(part, *arguments, **more):
            if inside:
                shapes = tuple(
                    tuple(argument.shape) for argument in arguments if isinstance(argument, Tensor)
                )
                seen.append((id(part), shapes))
            return method(part, *arguments, **more)

        monkeypatch.setattr(kind, name, spied)
        return seen

    monkeypatch.setattr(BatchedForward, "values", noted)
    return watching


def layers_of(model, seen: Seen, part: str) -> set[int]:
    """Which layers' parts were seen."""
    numbers = {id(getattr(block, part)): number for number, block in enumerate(model.blocks)}
    return {numbers[part_id] for part_id, _ in seen}


def widths_of(model, seen: Seen, part: str, layer: int) -> set[int]:
    """Of how many columns a part of one layer was asked."""
    part_id = id(getattr(model.blocks[layer], part))
    return {shapes[0][1] for who, shapes in seen if who == part_id}


@pytest.mark.parametrize(
    ("label", "attentions", "mlps"),
    [
        ("resid_pre", {1, 2}, {1, 2}),
        ("attn_in", {1, 2}, {1, 2}),
        ("q", {1, 2}, {1, 2}),
        ("pattern", {1, 2}, {1, 2}),
        ("z", {2}, {1, 2}),
        ("result", {2}, {1, 2}),
        ("attn_out", {2}, {1, 2}),
        ("resid_mid", {2}, {1, 2}),
        ("mlp_in", {2}, {1, 2}),
        ("pre", {2}, {1, 2}),
        ("post", {2}, {2}),
        ("mlp_out", {2}, {2}),
        ("resid_post", {2}, {2}),
    ],
)
def test_a_forward_begins_where_the_edit_acts(model, tokens, watch, label, attentions, mlps):
    """No layer before it; of its own layer, neither what comes before heads nor before neurons."""
    heads, neurons = watch(Attention, "hidden"), watch(MLP, "hidden")
    sweep(model, tokens, edits.zero(label, layer=1), LAST)
    assert layers_of(model, heads, "attn") == attentions
    assert layers_of(model, neurons, "mlp") == mlps


def test_an_edit_of_the_embedding_runs_every_layer(model, tokens, watch):
    """The converse: where all is changed, nothing is left out."""
    heads = watch(Attention, "hidden")
    sweep(model, tokens, edits.scale("embed", 0.5), LAST)
    assert layers_of(model, heads, "attn") == {0, 1, 2}


def test_an_edit_after_the_last_block_runs_none(model, tokens, watch):
    heads, neurons = watch(Attention, "hidden"), watch(MLP, "hidden")
    sweep(model, tokens, [edits.scale("final_normalized", 0.5), edits.add("logits", 1.0)], LAST)
    assert heads == neurons == []


@pytest.mark.parametrize("position", [0, 2, -1])
def test_columns_before_an_edit_are_looked_back_at(model, tokens, watch, position):
    heads, neurons = watch(Attention, "hidden"), watch(MLP, "hidden")
    sweep(model, tokens, edits.zero("resid_pre", layer=0, pos=position), metrics.loss())
    for layer in range(LAYERS):
        computed = {COLUMNS - position % COLUMNS}
        assert widths_of(model, heads, "attn", layer) == computed
        assert widths_of(model, neurons, "mlp", layer) == computed


def test_where_columns_look_ahead_all_are_computed(watch):
    """The converse: an encoder's earlier columns see the edit too."""
    encoder, (tokens,) = deep("bert"), tokens_of("bert", batch=2, pos=COLUMNS)
    heads = watch(Attention, "hidden")
    sweep(encoder, tokens, edits.zero("resid_pre", layer=0, pos=-1), metrics.loss())
    assert widths_of(encoder, heads, "attn", 0) == {COLUMNS}


@pytest.mark.parametrize(
    ("metric", "width"), [(LAST, 1), (LAST_DIVERGENCE, 1), (metrics.loss(), COLUMNS)]
)
@pytest.mark.parametrize("label", ["z", "resid_post"])
def test_the_last_block_is_finished_where_the_metric_reads(
    model, tokens, watch, label, metric, width
):
    """And a metric of all columns has all of them finished."""
    heads, neurons = watch(Attention, "hidden"), watch(MLP, "hidden")
    sweep(model, tokens, edits.zero(label, layer=0), metric)
    assert widths_of(model, heads, "attn", 2) == {width}
    assert widths_of(model, neurons, "mlp", 2) == {width}
    assert widths_of(model, neurons, "mlp", 1) == {COLUMNS}


def test_of_the_vocabulary_only_what_the_metric_reads_is_formed(model, tokens, watch):
    some, whole = watch(Unembedding, "some"), watch(Unembedding, "forward")
    sweep(model, tokens, edits.zero("z", layer=0), metrics.logit_diff((1, 3), 2))
    assert {shapes for _, shapes in some} == {((2, 1, 12), (3,))}
    assert whole == []
    some.clear()
    sweep(model, tokens, edits.zero("z", layer=0), metrics.prob(1))
    assert some == []
    assert {shapes for _, shapes in whole} == {((2, 1, 12),)}


def test_edits_that_begin_alike_are_one_forward(model, tokens, watch):
    """All heads of a layer: so many calls as there are layers behind it."""
    heads = watch(Attention, "hidden")
    every = [edits.zero("z", layer=n, head=h) for n in range(LAYERS) for h in range(HEADS)]
    sweep(model, tokens, every, LAST)
    assert len(heads) == 2 + 1
    assert {shapes[0][0] for _, shapes in heads} == {2 * HEADS}
    heads.clear()
    for edit in every:
        sweep(model, tokens, edit, LAST)
    assert len(heads) == HEADS * (2 + 1)


def test_a_sweep_takes_no_more_multiplications_than_its_structure_needs():
    """All heads of six layers, one logit difference: at most a third of whole forwards'."""
    layers, heads, d, d_mlp, vocabulary, prompts, width = 6, 4, 32, 64, 1500, 4, 8
    stack = StackConfig(layers, AttentionConfig(heads, d // heads), MLPConfig(d_mlp))
    model = build_new(Config(d, vocabulary, width, decoder=stack), dtype=torch.float32)
    tokens = torch.arange(prompts * width).reshape(prompts, width)
    every = [edits.zero("z", layer=n, head=h) for n in range(layers) for h in range(heads)]
    mlp, mixed = 2 * d * d_mlp, 2 * width * d  # of one column; of its queries with all keys
    block = 4 * d * d + mixed + mlp
    last = width * 2 * d * d + block  # keys and values of all columns, the rest of one
    left = sum(width * (d * d + mlp + (layers - 2 - n) * block) + last for n in range(layers - 1))
    edited = heads * prompts * (left + d * d + mlp + layers * 2 * d)
    clean = prompts * width * layers * block
    with FlopCounterMode(display=False) as counter:
        table = sweep(model, tokens, every, LAST)
    ours = counter.get_total_flops() / 2
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        for edit in every:
            run(model, tokens, edits=[edit])
    brute = counter.get_total_flops() / 2
    assert table.complete
    assert ours <= 1.05 * (edited + clean)
    assert brute >= 3 * ours
