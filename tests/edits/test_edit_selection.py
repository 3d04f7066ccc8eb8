"""An edit changes the part selected, counted among each row's own tokens, and nothing else."""

import numpy as np
import pytest
import torch
from architectures import assert_identical, build, padded
from edited import BATCH, CACHE, D_HEAD, HEADS, MODEL, POS, TOKENS, Z, after, changed
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each

from interp import PAD, InterpError, edits, run
from interp.errors import InvalidEdit

SELECTIONS = [
    ({"batch": 1}, (1,)),
    ({"batch": -1}, (-1,)),
    ({"batch": [0, 2]}, ([0, 2],)),
    ({"pos": 0}, (slice(None), 0)),
    ({"pos": -2}, (slice(None), -2)),
    ({"pos": (1, -1)}, (slice(None), [1, -1])),
    ({"head": 1}, (..., 1, slice(None))),
    ({"head": [2, 0]}, (..., [2, 0], slice(None))),
    ({"unit": 3}, (..., 3)),
    ({"unit": [0, -1]}, (..., [0, -1])),
    ({"batch": 1, "pos": 2, "head": 0, "unit": 1}, (1, 2, 0, 1)),
    ({"batch": [0, 2], "head": 1}, ([0, 2], slice(None), 1)),
]


@pytest.mark.parametrize(("where", "part"), SELECTIONS)
def test_an_edit_changes_the_part_selected_and_nothing_else(where, part):
    assert_identical(after(edits.zero("z", layer=0, **where)), changed(part, 0.0))
    assert_identical(after(edits.scale("z", 2.0, layer=0, **where)), changed(part, Z[part] * 2))
    assert_identical(after(edits.replace("z", 9.0, layer=0, **where)), changed(part, 9.0))


def test_several_indices_along_several_axes_select_their_grid():
    """Rows 0, 2 × positions 1, 3 × heads 0, 1: all eight, not pairs."""
    expected = Z.clone()
    for row in (0, 2):
        for pos in (1, 3):
            for head in (0, 1):
                expected[row, pos, head] = 0.0
    written = after(edits.zero("z", layer=0, batch=[0, 2], pos=[1, 3], head=[0, 1]))
    assert_identical(written, expected)


def test_queries_and_keys_of_a_pattern_are_selected_by_pos_and_key():
    A = CACHE["pattern", 0].clone()
    A[:, 1, 3, 2] = 0.0
    written = after(edits.zero("pattern", layer=0, head=1, pos=3, key=2), place=("pattern", 0))
    assert_identical(written, A)


@settings(max_examples=15)
@given(
    lengths=st.lists(st.integers(3, 6), min_size=2, max_size=3),
    side=st.sampled_from(["left", "right"]),
    pos=st.sampled_from([0, 2, -1, -3, (0, -1), (-2, 1, 2)]),
)
def test_positions_count_among_a_rows_own_tokens(lengths, side, pos):
    """Wherever padding put them, in every row: pos=-1 is a row's last token."""
    generator = torch.Generator().manual_seed(sum(lengths))
    rows = [torch.randint(13, (n,), generator=generator) for n in lengths]
    ids = padded(rows, side, extra=1)
    plain = run(MODEL, ids, record=["z"]).cache["z", 0]
    wanted = [pos] if isinstance(pos, int) else pos
    if any(len({p % n for p in wanted}) < len(wanted) for n in lengths):
        # The same position by two names: what is written there, and its gradient, would be double.
        with pytest.raises(InvalidEdit, match="twice"):
            after(edits.zero("z", layer=0, pos=pos), (ids,))
        return
    written = after(edits.zero("z", layer=0, pos=pos), (ids,))
    for row, n in enumerate(lengths):
        columns = (ids[row] != PAD).nonzero()[:, 0]
        zeroed = {int(columns[p % n]) for p in wanted}
        for column in range(ids.shape[1]):
            expected = plain[row, column] * (0.0 if column in zeroed else 1.0)
            assert_identical(written[row, column], expected)


def test_keys_count_among_a_rows_own_tokens_too():
    ids = padded([TOKENS[0][0], TOKENS[0][1][:3]], "left")
    plain = run(MODEL, ids, record=["pattern"]).cache["pattern", 0]
    written = after(edits.add("pattern", 1.0, layer=0, pos=-1, key=0), (ids,), ("pattern", 0))
    expected = plain.clone()
    expected[0, :, 4, 0] += 1.0
    expected[1, :, 4, 2] += 1.0
    assert_identical(written, expected)


def test_keys_of_a_source_count_among_its_own_tokens():
    model = build("marian")
    source = padded([torch.tensor([1, 2, 3]), torch.tensor([4, 5])], "left")
    target, place = torch.tensor([[1, 2], [3, 4]]), ("cross_v", 0)
    plain = run(model, source, target, record=[place]).cache[place]
    edit = edits.zero("cross_v", layer=0, key=0)
    written = run(model, source, target, record=[place], edits=[edit]).cache[place]
    expected = plain.clone()
    expected[0, 0] = expected[1, 1] = 0.0
    assert_identical(written, expected)


@each(
    ("point", "where", "message"),
    [
        ("z", {"key": 0}, r"\"z\", 0.*no 'key'"),
        ("resid_pre", {"head": 0}, r"no 'head'"),
        ("pattern", {"unit": 0}, r"no 'unit'"),
        (("scale", 0, "ln1"), {"unit": 0}, r"no 'unit'"),
        ("z", {"head": HEADS}, r"head 3 is outside 0..2"),
        ("z", {"head": [0, -4]}, r"head -4 is outside 0..2"),
        ("z", {"batch": BATCH}, r"batch 3 is outside 0..2"),
        ("z", {"pos": POS}, r"pos 5 is outside 0..4"),
        ("z", {"unit": D_HEAD}, r"d_head 4 is outside 0..3"),
        ("pattern", {"pos": POS}, r"query 5 is outside 0..4"),
        ("pattern", {"key": -6}, r"key -6 is outside 0..4"),
    ],
)
def test_a_selection_that_is_not_there_is_refused(point, where, message):
    layer = {} if isinstance(point, tuple) else {"layer": 0}
    with pytest.raises(InvalidEdit, match=message):
        run(MODEL, *TOKENS, edits=[edits.zero(point, **layer, **where)])


def test_a_position_that_a_padded_row_lacks_is_refused():
    ids = padded([TOKENS[0][0], TOKENS[0][1][:2]], "right")
    for pos in (2, -3):
        with pytest.raises(InvalidEdit, match=rf"position {pos} of row 1.*only 2 tokens"):
            run(MODEL, ids, edits=[edits.zero("z", layer=0, pos=pos)])


@each("several", [[], [0, 0], (1, 1, 2)])
def test_a_selection_of_none_or_of_one_twice_is_refused(several):
    with pytest.raises(InvalidEdit, match="different indices"):
        edits.zero("z", layer=0, head=several)


@each("axis", ["batch", "pos", "head", "key", "unit", "expert"])
@each(
    "mask",
    [
        True,
        False,
        [True, False, True],
        (0, True),
        np.array([True, False, True]),
        np.bool_(1),
        torch.tensor([True, False, True]),
        torch.tensor(True),
        [torch.tensor(True), 2],
    ],
)
def test_a_boolean_mask_is_not_read_as_indices(axis, mask):
    """Of head=[True, False, True] those would be heads 1 and 0."""
    unchecked = getattr(edits.zero, "__wrapped__", edits.zero)
    with pytest.raises(InvalidEdit, match=rf"{axis}=.*whole numbers.*mask\.nonzero"):
        unchecked("z", layer=0, **{axis: mask})


def test_the_indices_of_a_mask_select_what_it_marks():
    mask = torch.tensor([True, False, True])
    made = edits.zero("z", layer=0, head=mask.nonzero()[:, 0])
    assert made == edits.zero("z", layer=0, head=np.flatnonzero(mask.numpy()))
    assert_identical(after(made), changed((..., [0, 2], slice(None)), 0.0))


def test_a_keyword_that_no_edit_has_is_refused():
    with pytest.raises(InterpError, match="heads"):
        edits.zero("z", layer=0, heads=1)


def test_only_the_rows_selected_need_to_have_the_position():
    ids = padded([TOKENS[0][0], TOKENS[0][1][:3]], "right")
    plain = run(MODEL, ids, record=["z"]).cache["z", 0]
    written = after(edits.zero("z", layer=0, batch=0, pos=4), (ids,))
    assert (written[0, 4] == 0).all()
    assert_identical(written[1], plain[1])
    with pytest.raises(InvalidEdit, match="row 1"):
        after(edits.zero("z", layer=0, batch=1, pos=4), (ids,))


def test_one_head_by_two_names_is_refused():
    with pytest.raises(InvalidEdit, match="twice"):
        after(edits.scale("z", 2.0, layer=0, head=(0, -HEADS)))
