"""A row has the logits that it has alone, whatever else is in the batch, however it is padded."""

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    D_VOCAB,
    N_CTX,
    PAIRS,
    assert_close,
    assert_identical,
    build,
    build_new,
    covering,
    distance,
    in_turn,
    padded,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from interp import PAD, run

FLOAT64, FLOAT32, BFLOAT16 = 1e-12, 1e-5, 0.1
SINGLE = [name for name in ARCHITECTURES if name not in PAIRS]
LENGTHS = [4, 1, 6]


def rows_of(lengths: list[int], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(D_VOCAB, (length,), generator=generator) for length in lengths]


def sources_and_targets() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    return rows_of([3, 7, 5]), rows_of(LENGTHS, seed=1)


@settings(max_examples=4)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    extra=st.integers(0, 3),
    side=st.sampled_from(["left", "right"]),
)
@pytest.mark.parametrize("name", SINGLE)
def test_padding_and_company_do_not_change_a_row(name, lengths, extra, side):
    model, rows = build(name), rows_of(lengths)
    ids = padded(rows, side, extra)
    with torch.no_grad():
        logits = model(ids)
        for row, tokens in enumerate(rows):
            assert_close(logits[row, ids[row] != PAD], model(tokens)[0], FLOAT64)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", SINGLE)
def test_padding_does_not_change_a_row_in_single_precision(name, side):
    model, rows = build(name, dtype=torch.float32), rows_of(LENGTHS)
    ids = padded(rows, side)
    with torch.no_grad():
        logits = model(ids)
        for row, tokens in enumerate(rows):
            assert_close(logits[row, ids[row] != PAD], model(tokens)[0], FLOAT32)


@pytest.mark.parametrize("sides", [("left", "right"), ("right", "left"), ("right", "right")])
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, FLOAT64), (torch.float32, FLOAT32)])
def test_padded_sources_and_targets_do_not_change_a_row(name, sides, dtype, bound):
    model, (sources, targets) = build(name, dtype=dtype), sources_and_targets()
    source, target = padded(sources, sides[0]), padded(targets, sides[1])
    with torch.no_grad():
        logits = model(source, target)
        for row, (s, t) in enumerate(zip(sources, targets, strict=True)):
            assert_close(logits[row, target[row] != PAD], model(s, t)[0], bound)


@pytest.mark.parametrize(
    ("name", "side"), in_turn(ARCHITECTURES, ["left", "right"], kinds_a_name=1)
)
def test_padding_does_not_change_an_activation(name, side):
    """Every activation at a row's real tokens (in scores and pattern: real queries and keys)."""
    model = build(name)
    sources, targets = sources_and_targets()
    stacks = [sources, targets] if name in PAIRS else [targets]
    together = run(model, *(padded(rows, side) for rows in stacks), record="all").cache
    real = {s.name: padded(rows, side) != PAD for s, rows in zip(model.stacks, stacks, strict=True)}
    for row in range(len(targets)):
        alone = run(model, *(rows[row] for rows in stacks), record="all").cache
        for place in alone:
            mask = real[place.stack or model.stacks[-1].name][row]
            value = together[place][row]
            if "query" in place.point.axes:
                keys = real["encoder"][row] if place.point.label.startswith("cross") else mask
                value = value[:, mask][..., keys]
            else:
                over_source = place.point.axes[1] == "source"
                value = value[real["encoder"][row] if over_source else mask]
            assert_close(value, alone[place][0], FLOAT64)


@pytest.mark.parametrize("name", SINGLE)
def test_padding_within_a_row_counts_for_nothing_either(name):
    """A token's position is its index among the real tokens of its row: [a PAD b] is [a b]."""
    model, (row,) = build(name), rows_of([5])
    holes = torch.tensor([[PAD, row[0], row[1], PAD, PAD, row[2], row[3], PAD, row[4], PAD]])
    with torch.no_grad():
        assert_close(model(holes)[holes != PAD], model(row)[0], FLOAT64)


@pytest.mark.parametrize("name", SINGLE)
def test_a_mask_is_equivalent_to_padding(name):
    """model(ids, mask=m) is model of the ids with PAD where m is 0."""
    model, rows = build(name), rows_of(LENGTHS)
    ids = padded(rows, "right")
    mask, filled = (ids != PAD).long(), ids.where(ids != PAD, 7)
    with torch.no_grad():
        assert_identical(model(filled, mask=mask), model(ids))
        assert_identical(run(model, filled, mask=mask).logits, model(ids))
        assert distance(model(filled)[1, 0], model(ids)[1, 0]) > 1e-3 or model.config.decoder


@pytest.mark.parametrize("name", PAIRS)
def test_a_mask_is_equivalent_to_padding_the_source(name):
    model, (sources, targets) = build(name), sources_and_targets()
    source, target = padded(sources, "right"), padded(targets, "right")
    filled, mask = source.where(source != PAD, 7), source != PAD
    with torch.no_grad():
        assert_identical(model(filled, target, mask=mask), model(source, target))
        assert distance(model(filled, target), model(source, target)) > 1e-3


@pytest.mark.parametrize("name", SINGLE)
def test_without_a_mask_left_fillers_are_tokens_like_any_other(name):
    """The converse: what is not marked as padding does change the row."""
    model, (row,) = build(name), rows_of([4])
    ids = padded([row], "left", extra=2)
    with torch.no_grad():
        assert distance(model(ids.where(ids != PAD, 7))[:, 2:], model(ids)[:, 2:]) > 1e-3


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_logits_at_padding_are_finite(name):
    model = build(name)
    sources, targets = sources_and_targets()
    stacks = [sources, targets] if name in PAIRS else [targets]
    for side in ("left", "right"):
        with torch.no_grad():
            assert bool(model(*(padded(rows, side) for rows in stacks)).isfinite().all())


@pytest.mark.parametrize("name", SINGLE)
def test_padding_over_the_context_costs_nothing(name):
    """Only real tokens count against the context."""
    model, (row,) = build(name), rows_of([3])
    with torch.no_grad():
        long = model(padded([row], "left", extra=N_CTX))
        assert_close(long[:, -3:], model(row), FLOAT64)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtype", "bound"),
    [(torch.float64, FLOAT64), (torch.float32, FLOAT32), (torch.bfloat16, BFLOAT16)],
)
@pytest.mark.parametrize("name", SINGLE)
def test_padding_does_not_change_a_row_on_a_gpu(name, dtype, bound):
    model, rows = build_new(name, dtype=dtype).cuda(), rows_of(LENGTHS)
    ids = padded(rows, "left")
    with torch.no_grad():
        logits = model(ids)
        for row, tokens in enumerate(rows):
            assert_close(logits[row, ids[row] != PAD], model(tokens)[0], bound)
