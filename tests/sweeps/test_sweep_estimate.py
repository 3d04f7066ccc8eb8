"""What a sweep takes is known before it runs: within 20 % of what PyTorch allocates."""

import pytest
import torch
from allocations import BOUND, WIDE, allocated, wide
from architectures import NIGHTLY, build_new, in_turn, padded, tokens_of
from torch import Tensor

from interp import Transformer, edits, estimate_sweep, metrics, sweep
from interp.edits import Edit
from interp.errors import InvalidEdit, OutOfResources
from interp.sweeps.batched import Baseline

METRICS = {
    "one": metrics.logit_diff(1, 2),
    "all": metrics.prob(1),
    "loss": metrics.loss(),
    "kl": metrics.kl(),
}


@pytest.fixture(scope="module", autouse=True)
def specialized_calls():
    """Calls keep their arguments alive for longer until CPython has specialized them."""
    model = build_new(wide("t5"), dtype=torch.float32)
    tokens, made = tokens_of(model.config, batch=4, pos=64), swept_over(model, "z")
    for _ in range(8):
        estimate_sweep(model, tokens, made, metrics.loss())
        sweep(model, tokens, made, metrics.loss())


def swept_over(model: Transformer, label: str) -> list[Edit]:
    """Each head of each layer of the last stack, or each layer."""
    stack = model.stacks[-1].name
    places = [
        place
        for place in model.names
        if place.point.label == label and place.stack in (None, stack) and place.norm is None
    ]
    heads = [{"head": head} for head in range(3)] if "head" in places[0].point.axes else [{}]
    return [edits.scale(place, 0.5, **head) for place in places for head in heads]


def check(
    model: Transformer, tokens: tuple[Tensor, ...], *arguments: object, memory: object
) -> None:
    inputs = tokens if len(tokens) > 1 else tokens[0]
    estimated = estimate_sweep(model, inputs, *arguments, memory=memory).peak
    peak, _ = allocated(lambda: sweep(model, inputs, *arguments, memory=memory))
    assert abs(estimated - peak) <= BOUND * peak, (estimated / peak, memory)


SHAPES = [(4, 64), (1, 200)]
KINDS = [("z", "one"), ("z", "loss"), ("pattern", "one"), ("resid_pre", "all"), ("v", "kl")]
CASES = [
    (*kind, SHAPES[(number + turn) % 2]) for turn in range(2) for number, kind in enumerate(KINDS)
]


@pytest.mark.parametrize(("name", "case"), in_turn(WIDE, CASES, ["gpt2", "t5"], 1, NIGHTLY))
def test_the_estimate_of_a_sweep_is_what_it_allocates(name, case):
    """With room for many edited forwards, and with room for one."""
    label, metric, (batch, pos) = case
    model = build_new(wide(name), dtype=torch.float32)
    made = swept_over(model, label)
    tokens = tokens_of(model.config, batch=batch, pos=pos)
    with pytest.raises(OutOfResources) as caught:
        estimate_sweep(model, _inputs(tokens), made, METRICS[metric], memory=1)
    assert "memory=" in str(caught.value)
    for memory in (2**28, 2**23):
        check(model, tokens, made, METRICS[metric], memory=memory)


def _inputs(tokens: tuple[Tensor, ...]) -> object:
    return tokens if len(tokens) > 1 else tokens[0]


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_and_positions_are_counted(side):
    model = build_new(wide("gpt2"), dtype=torch.float32)
    (ids,) = tokens_of(model.config, batch=4, pos=64)
    tokens = padded([row[: 64 - number] for number, row in enumerate(ids)], side)
    made = [edits.scale("z", 0.5, layer=0, pos=pos) for pos in (3, -1)]
    check(model, (tokens,), made, METRICS["one"], memory=2**28)


def test_a_smaller_budget_takes_less():
    model = build_new(wide("gpt2"), dtype=torch.float32)
    tokens, made = tokens_of(model.config, batch=4, pos=64)[0], swept_over(model, "z")
    peaks = [
        estimate_sweep(model, tokens, made, METRICS["one"], memory=memory).peak
        for memory in (2**28, 3 * 2**20, 2**21)
    ]
    assert peaks[0] > peaks[1] > peaks[2]
    assert peaks[2] <= 2**21


def test_nothing_is_computed_and_the_same_is_refused(monkeypatch):
    model, (tokens,) = build_new("gpt2"), tokens_of("gpt2")
    called: list[object] = []
    edit = edits.apply("z", lambda z, hook: called.append(hook), layer=0)
    before = Baseline.of

    def on_shapes(restart_map, job, batches=None):
        assert restart_map.model is not model
        return before(restart_map, job, batches)

    monkeypatch.setattr(Baseline, "of", on_shapes)
    assert estimate_sweep(model, tokens, [edit], called.append).peak > 0
    assert called == []
    with pytest.raises(InvalidEdit):
        estimate_sweep(model, tokens, edits.zero("z", layer=0, head=9), metrics.logit(1))
