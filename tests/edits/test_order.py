"""An edit that a later one writes over entirely is refused; one that something reads is not."""

from collections.abc import Iterator
from itertools import product

import pytest
import torch
from architectures import build, padded, tokens_of
from edited import CACHE, D_HEAD, HEADS, MODEL, TOKENS, drawn

from interp import Place, Point, edits, metrics, run, sweep
from interp.edits import Edit, EditSite
from interp.errors import InvalidEdit
from interp.model.context import Context

FIRST = [
    edits.zero("z", layer=0, head=1),
    edits.scale("z", 0.5, layer=0, head=(1, -1), pos=2),
    edits.add("z", 1.0, layer=0, head=1, batch=0),
    edits.replace("z", drawn(2), layer=0, head=-2, unit=(0, 3)),
    edits.mean("z", layer=0, head=1),
    edits.resample("z", layer=0, head=(1, 2)),
    edits.mean("z", drawn(D_HEAD), layer=0, head=1, pos=(0, -1)),
    edits.apply("z", lambda z, hook: z + 1, layer=0, head=1),
]
SECOND = [
    edits.zero("z", layer=0),
    edits.zero("z", layer=0, head=(0, 1, 2)),
    edits.zero("z", layer=0, head=1),
    edits.replace("z", 2.0, layer=0, head=(-1, -2)),
    edits.mean("z", drawn(D_HEAD), layer=0, pos=2),
    edits.resample("z", drawn(3), layer=0, unit=(0, 1, 3)),
    edits.mean("z", layer=0),
    edits.resample("z", layer=0, head=1),
    edits.scale("z", 0.5, layer=0),
    edits.add("z", 1.0, layer=0),
    edits.apply("z", lambda z, hook: z * 2, layer=0),
]


def others(edit: Edit) -> Iterator[Edit]:
    """The same selection written by other edits: what becomes of it, if anything reads it."""
    select, where = edit.select, ("z", 0)
    named = {name: getattr(select, name) for name in ("batch", "pos", "head", "unit")}
    for value in (7.0, -3.0):
        yield edits.replace(where, value, **named)


@pytest.mark.parametrize(("first", "second"), list(product(FIRST, SECOND)))
def test_an_edit_is_refused_exactly_if_nothing_depends_on_it(first, second):
    """Not on what it writes, either: another edit of the same part would do."""
    changes = [
        not torch.equal(made_of([other, second]), made_of([second])) for other in others(first)
    ]
    if first.kind == "apply" or any(changes):
        run(MODEL, *TOKENS, edits=[first, second])
    else:
        with pytest.raises(InvalidEdit, match="no effect"):
            run(MODEL, *TOKENS, edits=[first, second])


def made_of(made: list[Edit]) -> torch.Tensor:
    """What the edits make of z, without the check."""
    z = CACHE["z", 0]
    site = EditSite(Place(Point.Z, 0), Context.plain(z[:, :, 0]))
    for edit in made:
        z = edit(z, site)
    return z


VOID = [edits.add("z", 1.0, layer=0, head=1), edits.zero("z", layer=0)]


@pytest.mark.parametrize(
    "use",
    [
        lambda made: run(MODEL, *TOKENS, edits=made),
        lambda made: MODEL.generate(*TOKENS, max_new_tokens=1, edits=made),
        lambda made: sweep(MODEL, *TOKENS, [edits.zero("z", layer=1), made], metrics.logit(1)),
    ],
    ids=["run", "generate", "sweep"],
)
def test_wherever_edits_are_made_the_order_is_checked(use):
    with pytest.raises(InvalidEdit, match=r'\("z", 0\): edit 1 there \(zero\) .* edit 0 \(add\)'):
        use(VOID)
    use(VOID[::-1])
    use([VOID[0], edits.zero("z", layer=1)])


def test_what_a_function_has_read_in_between_is_not_void():
    seen: list[torch.Tensor] = []
    look = edits.apply("z", lambda z, hook: seen.append(z.clone()), layer=0)
    run(MODEL, *TOKENS, edits=[VOID[0], look, VOID[1]])
    assert not torch.equal(seen[0], CACHE["z", 0])


def test_what_a_mean_has_read_in_between_is_not_void():
    first = edits.replace("z", 9.0, layer=0, pos=1)
    mean, zero = edits.mean("z", layer=0, pos=0), edits.zero("z", layer=0, pos=1)
    run(MODEL, *TOKENS, edits=[first, mean, zero])
    assert not torch.equal(made_of([first, mean, zero]), made_of([mean, zero]))


def test_hooks_are_never_void():
    calls: list[int] = []
    hook = ("blocks.0.attn.hook_z", lambda z, hook: calls.append(1))
    MODEL.run_with_hooks(*TOKENS, fwd_hooks=[hook, hook])
    assert len(calls) == 2


def test_positions_from_the_end_may_be_others_in_each_row():
    """Position −1 is position 4 in one of the rows alone."""
    ids = padded([TOKENS[0][0], TOKENS[0][1][:3]], "right")
    made = [edits.add("z", 1.0, layer=0, pos=2), edits.zero("z", layer=0, pos=-1)]
    run(MODEL, ids, edits=made)
    with pytest.raises(InvalidEdit, match="no effect"):
        run(MODEL, ids, edits=[made[0], edits.zero("z", layer=0, pos=(2, 0))])


def test_heads_are_counted_at_their_own_place():
    """Keys and values may have fewer heads than queries."""
    model, tokens = build("llama"), tokens_of("llama")
    for name, last in (("q", 3), ("k", 1)):
        with pytest.raises(InvalidEdit, match="no effect"):
            run(
                model,
                *tokens,
                edits=[
                    edits.add(name, 1.0, layer=0, head=last),
                    edits.zero(name, layer=0, head=-1),
                ],
            )
    assert HEADS == 3
