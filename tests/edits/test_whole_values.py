"""Values of a whole recorded tensor: an edit writes the part of them that it selects."""

import json

import pytest
import torch
from architectures import VARIED, as_where, assert_close, assert_identical, build, padded, tokens_of
from edited import BATCH, D_HEAD, HEADS, MODEL, POS, TOKENS, Z, after, changed, drawn

from interp import edits, metrics, run, sweep
from interp.errors import InvalidEdit, NotRecorded
from interp.metrics import measure

WHOLE = drawn(*Z.shape, seed=1)
PARTS = [
    {"head": 1},
    {"head": (2, 0)},
    {"pos": -2},
    {"pos": (0, 3), "head": 1},
    {"unit": (1, -1)},
    {"batch": 2, "pos": 1},
]


def selected(part: dict[str, object]) -> tuple[object, ...]:
    axes = [part.get(axis) for axis in ("batch", "pos", "head", "unit")]
    every = [range(size) for size in Z.shape]
    chosen = [
        list(all_) if choice is None else [choice] if isinstance(choice, int) else list(choice)
        for choice, all_ in zip(axes, every, strict=True)
    ]
    return torch.meshgrid(*map(torch.tensor, chosen), indexing="ij")


@pytest.mark.parametrize("part", PARTS)
def test_the_part_selected_is_written(part):
    index = selected(part)
    for kind in (edits.replace, edits.mean, edits.resample):
        assert_identical(after(kind("z", WHOLE, layer=0, **part)), changed(index, WHOLE[index]))
    added = changed(index, Z[index] + WHOLE[index])
    assert_identical(after(edits.add("z", WHOLE, layer=0, **part)), added)


def test_a_whole_row_is_written_to_every_row():
    index = selected({"head": 1})
    written = after(edits.replace("z", WHOLE[:1], layer=0, head=1))
    assert_identical(written, changed(index, WHOLE[:1].expand_as(Z)[index]))


def test_values_as_large_as_the_part_are_in_the_order_of_the_selection():
    """The one case in which they may be meant either way."""
    written = after(edits.replace("z", WHOLE, layer=0, head=(2, 1, 0)))
    assert_identical(written, WHOLE.flip(2))


@pytest.mark.parametrize(
    "shape", [(BATCH, POS, HEADS + 1, D_HEAD), (BATCH, POS + 1, HEADS, D_HEAD)]
)
def test_values_of_another_shape_are_not(shape):
    with pytest.raises(InvalidEdit, match=r"fit the selected part.*nor the whole tensor"):
        run(MODEL, *TOKENS, edits=[edits.replace("z", drawn(*shape), layer=0, head=1)])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("memory", [None, 60_000])
def test_a_sweep_of_them_is_that_of_whole_forwards(side, memory):
    rows = [TOKENS[0][0], TOKENS[0][1][:3], TOKENS[0][2][:2]]
    ids, metric = padded(rows, side), metrics.logit((1, 2, 3))
    made = [edits.replace("z", WHOLE, layer=0, **part) for part in PARTS if "batch" not in part]
    made = [edit for edit in made if edit.select.pos is None]
    made += [edits.replace("z", WHOLE, layer=layer, pos=pos) for layer in (0, 1) for pos in (1, -1)]
    table = sweep(MODEL, ids, made, metric, memory=memory)
    for row, edit in enumerate(made):
        forward = run(MODEL, ids, edits=[edit])
        assert_close(table.values[row], measure(metric, forward.logits, forward.batch))


# Patching: the same from a cache, of which an edit holds the part alone.


@pytest.mark.parametrize("name", VARIED)
def test_a_patch_at_every_place_is_the_recorded_part(name):
    """Whatever its axes are: what another run had there is there."""
    model, tokens, other = build(name), tokens_of(name), tokens_of(name, seed=1)
    cache = run(model, *other, record="all").cache
    for place in list(model.layout)[::3]:
        where = as_where(place)
        made = edits.patch(cache, where)
        recorded = run(model, *tokens, record=[place], edits=[made]).cache[place]
        assert_identical(recorded, cache[place])


@pytest.mark.parametrize("part", PARTS)
def test_a_patch_is_the_replacement_by_the_whole(part):
    cache = run(MODEL, *tokens_of("gpt2", BATCH, POS, seed=1), record="z").cache
    patch = edits.patch(cache, "z", layer=0, **part)
    assert patch.values.tensor.numel() == selected(part)[0].numel()
    assert_identical(after(patch), after(edits.replace("z", cache["z", 0], layer=0, **part)))
    assert edits.from_dict(json.loads(json.dumps(patch.to_dict()))) == patch


@pytest.mark.parametrize("sides", [("left", "right"), ("right", "left"), ("right", "right")])
def test_positions_of_a_patch_count_the_tokens_of_each_row(sides):
    rows = [TOKENS[0][0], TOKENS[0][1][:3]]
    theirs, ours = (padded(rows, side, extra=1) for side in sides)
    cache = run(MODEL, theirs.roll(0), record="z").cache
    plain = run(MODEL, ours, record="z").cache["z", 1]
    scaled = run(MODEL, theirs, record="z", edits=[edits.scale("z", 3.0, layer=1)]).cache
    for pos in (0, -1, (1, -1)):
        same = after(edits.patch(cache, "z", layer=1, pos=pos), (ours,), ("z", 1))
        assert_close(same, plain)
        patched = after(edits.patch(scaled, "z", layer=1, pos=pos), (ours,), ("z", 1))
        expected = after(edits.scale("z", 3.0, layer=1, pos=pos), (ours,), ("z", 1))
        assert_close(patched, expected)


def test_a_patch_of_what_was_not_recorded_is_refused():
    cache = run(MODEL, *TOKENS, record=[("z", 0)]).cache
    with pytest.raises(NotRecorded, match="record="):
        edits.patch(cache, "z", layer=1, head=1)
    with pytest.raises(InvalidEdit, match="head 7"):
        edits.patch(cache, "z", layer=0, head=7)
