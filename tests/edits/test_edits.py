"""Each kind of edit does what it is named after, to the part selected and to nothing else."""

import pytest
import torch
from architectures import assert_close, assert_identical, padded
from edited import BATCH, CACHE, D_HEAD, HEADS, MODEL, POS, TOKENS, Z, after, changed, drawn
from tables import each

from interp import PAD, Place, Point, edits, run
from interp.errors import InvalidEdit

# The kinds.


def test_zero_writes_zeros():
    assert_identical(after(edits.zero("z", layer=0)), torch.zeros_like(Z))


def test_scale_multiplies():
    assert_identical(after(edits.scale("z", -2.5, layer=0)), Z * -2.5)


@pytest.mark.parametrize(
    "values", [1.5, drawn(), drawn(D_HEAD), drawn(HEADS, 1), drawn(BATCH, 1, 1, D_HEAD)]
)
def test_add_adds_and_replace_writes_what_is_given(values):
    assert_identical(after(edits.add("z", values, layer=0)), Z + values)
    assert_identical(after(edits.replace("z", values, layer=0)), torch.zeros_like(Z) + values)


def test_mean_writes_the_mean_of_the_run_over_rows_and_positions():
    expected = Z.mean((0, 1), keepdim=True).expand_as(Z)
    assert_close(after(edits.mean("z", layer=0)), expected)
    expected = changed((slice(None), slice(None), 1), expected[:, :, 1])
    assert_close(after(edits.mean("z", layer=0, head=1)), expected)


def test_mean_over_rows_alone_where_positions_are_two():
    """Of a pattern: query by query and key by key."""
    A = CACHE["pattern", 0]
    expected = A.mean(0, keepdim=True).expand_as(A)
    assert_close(after(edits.mean("pattern", layer=0), place=("pattern", 0)), expected)


def test_a_mean_counts_real_tokens_alone():
    rows = [TOKENS[0][0], TOKENS[0][1][:2]]
    for side in ("left", "right"):
        ids = padded(rows, side)
        real = ids != PAD
        z = run(MODEL, ids, record=["z"]).cache["z", 0][real]
        written = after(edits.mean("z", layer=0), (ids,))[real]
        assert_close(written, z.mean(0, keepdim=True).expand_as(z))


def test_a_mean_given_is_written():
    assert_identical(
        after(edits.mean("z", drawn(D_HEAD), layer=0, head=2)),
        changed((..., 2, slice(None)), drawn(D_HEAD)),
    )


def test_resample_writes_another_rows_activation_and_no_rows_own():
    """A permutation of the rows without a fixed point, by seed."""
    orders = set()
    for seed in range(12):
        written = after(edits.resample("z", layer=0, seed=seed))
        donors = [next(i for i in range(BATCH) if torch.equal(w, Z[i])) for w in written]
        assert sorted(donors) == list(range(BATCH))
        assert all(donor != row for row, donor in enumerate(donors))
        orders.add(tuple(donors))
        assert_identical(after(edits.resample("z", layer=0, seed=seed)), written)
    assert orders == {(1, 2, 0), (2, 0, 1)}


def test_resample_writes_a_donors_activation_if_given():
    donor = drawn(*Z.shape)
    assert_identical(after(edits.resample("z", donor, layer=0)), donor)
    some = after(edits.resample("z", donor[:, :, 1], layer=0, head=1))
    assert_identical(some, changed((slice(None), slice(None), 1), donor[:, :, 1]))


@pytest.mark.parametrize("ids", [TOKENS[0][:1], padded([TOKENS[0][0], TOKENS[0][1][:3]], "left")])
def test_resampling_among_the_rows_needs_rows_alike(ids):
    with pytest.raises(InvalidEdit, match=r"two prompts, all of one length.*values="):
        run(MODEL, ids, edits=[edits.resample("z", layer=0)])


def test_apply_writes_what_a_function_returns_or_leaves_in_place_or_keeps():
    assert_identical(after(edits.apply("z", lambda z, hook: z + 1, layer=0)), Z + 1)
    assert_identical(after(edits.apply("z", lambda z, hook: None, layer=0)), Z)

    def in_place(z, hook):
        z[:, 1] = 7.0

    assert_identical(after(edits.apply("z", in_place, layer=0)), changed((slice(None), 1), 7.0))


def test_apply_is_handed_its_place_and_the_part_selected():
    calls = []

    def note(z, hook):
        calls.append((tuple(z.shape), hook.place, hook.layer()))
        return z * 2

    written = after(edits.apply("z", note, layer=0, head=[0, 2], pos=-1))
    assert calls == [((BATCH, 1, 2, D_HEAD), Place(Point.Z, 0), 0)]
    part = (slice(None), -1, torch.tensor([0, 2]))
    assert_identical(written, changed(part, Z[part] * 2))


# How values are laid on the part selected.


@pytest.mark.parametrize(
    ("where", "shape"),
    [
        ({}, (BATCH, POS, HEADS, D_HEAD)),
        ({"head": 1}, (BATCH, POS, D_HEAD)),
        ({"head": [1]}, (BATCH, POS, 1, D_HEAD)),
        ({"head": 1}, (BATCH, POS, 1, D_HEAD)),
        ({"head": [0, 2]}, (BATCH, POS, 2, D_HEAD)),
        ({"head": 1, "pos": 2}, (BATCH, D_HEAD)),
        ({"head": 1, "pos": 2}, (D_HEAD,)),
        ({"head": 1, "pos": [2, 3]}, (BATCH, 2, D_HEAD)),
        ({"batch": 0, "head": 1}, (POS, D_HEAD)),
        ({"batch": 0, "pos": 1, "head": 1, "unit": 2}, ()),
        ({"unit": 2}, (BATCH, POS, HEADS)),
        ({"unit": 2, "head": 0}, (BATCH, POS)),
    ],
)
def test_values_are_laid_on_the_part_selected(where, shape):
    """Axes selected by a single index may be there or not; the rest broadcast from the right."""
    values = drawn(*shape)
    index = tuple(where.get(axis, slice(None)) for axis in ("batch", "pos", "head", "unit"))
    part = Z[index]
    laid = (
        values.reshape(part.shape) if values.numel() == part.numel() else values.expand(part.shape)
    )
    written = after(edits.replace("z", values, layer=0, **where))
    assert_identical(written, changed(index, laid))
    assert_identical(after(edits.add("z", values, layer=0, **where)), changed(index, part + laid))


@each(
    "shape",
    [(D_HEAD + 1,), (2, D_HEAD), (BATCH, POS, HEADS + 1, D_HEAD), (1, BATCH, POS, HEADS, D_HEAD)],
)
@each("kind", [edits.add, edits.replace, edits.mean, edits.resample])
def test_values_that_do_not_fit_are_refused(kind, shape):
    with pytest.raises(InvalidEdit, match=r'"z", 0.*shape.*fit'):
        run(MODEL, *TOKENS, edits=[kind("z", drawn(*shape), layer=0)])


def test_values_of_another_dtype_are_refused():
    for kind in (edits.add, edits.replace, edits.mean, edits.resample):
        with pytest.raises(InvalidEdit, match=r'"z", 0.*float32.*float64'):
            run(MODEL, *TOKENS, edits=[kind("z", torch.zeros(D_HEAD), layer=0)])


@each("values", [torch.tensor([1.0, torch.nan]), float("nan")])
@each("kind", [edits.add, edits.replace])
def test_values_that_are_no_numbers_are_refused(kind, values):
    with pytest.raises(InvalidEdit, match="NaN"):
        kind("z", values, layer=0)


def test_a_factor_that_is_no_number_is_refused():
    with pytest.raises(InvalidEdit, match="NaN"):
        edits.scale("z", float("nan"), layer=0)


def test_an_edit_keeps_the_values_that_it_was_given():
    """Later changes of the original do not reach it."""
    values = drawn(D_HEAD)
    edit = edits.replace("z", values, layer=0)
    digest, expected = edit.digest, values.clone()
    values.zero_()
    assert edit.digest == digest
    assert_identical(after(edit), expected.expand_as(Z))
