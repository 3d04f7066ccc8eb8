"""Checks that permute the tokens of each prompt, or the prompts of a batch."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from analyses.methods.symmetries import (
    OUTPUT,
    Observed,
    Part,
    has_order,
    in_order,
    movable_tokens,
    observed,
    other_order,
    permuted,
    token_orders,
)
from analyses.permutation_covariance.check import AT_LAYERS, EVERYWHERE, Case, Rows, Symmetry
from interp.weights import stripped

NOT_MOVED = "P on one side only"


def check_tokens(case: Case) -> Rows:
    """h(Px) = P h(x) and A(Px) = P A(x) Pᵀ without mask and positions; either one breaks it."""
    symmetry = Symmetry("tokens", "h(Px) = P h(x)", "A(Px) = P A(x) Pᵀ")
    stacks = case.model.stacks
    movable = [movable_tokens(case.model, *pair) for pair in zip(stacks, case.batches, strict=True)]
    if min(int(tokens.sum(-1).min()) for tokens in movable) < 2:  # noqa: PLR2004 - two tokens
        case.notes.append("tokens: not checked, since texts of this model have a single token.")
        return
    seed = int(torch.randint(2**31, (), generator=case.generator))
    orders = [token_orders(tokens, "random", seed) for tokens in movable]
    moved = [
        permuted(batch, order, stack.input)
        for batch, order, stack in zip(case.batches, orders, stacks, strict=True)
    ]
    has = has_order(case.model)
    without = {"": {"mask": True, "positions": True}}
    mask = "with windows" if case.model.config.decoder is None else "with the causal mask"
    without |= {mask: {"mask": False, "positions": True}} if has.mask else {}
    without |= {"with positions": {"mask": True, "positions": False}} if has.positions else {}
    for change, left_out in without.items():
        view = stripped(case.model, **left_out)
        before, after = observed(view, case.batches), observed(view, moved)
        yield from symmetry.rows(after, _in_order(before, orders), EVERYWHERE, change)
        if not change:
            yield from symmetry.rows(after, before.__getitem__, EVERYWHERE, NOT_MOVED)


def _in_order(before: Observed, orders: Sequence[Tensor]) -> Callable[[Part], Tensor]:
    """P f(x); for patterns, P A(x) Pᵀ."""

    def expected(part: Part) -> Tensor:
        x = in_order(before[part], orders[part.query])
        return x if part.quantity == OUTPUT else in_order(x.mT, orders[part.key]).mT

    return expected


def check_batch(case: Case) -> Rows:
    """f(x_π) = f(x)_π for a batch x whose prompts are permuted by π."""
    order = other_order(len(case.batches[0].ids), case.generator)
    before = observed(case.model, case.batches)
    after = observed(case.model, [batch.rows(order) for batch in case.batches])
    symmetry = Symmetry("batch", "f(x_π) = f(x)_π")
    yield from symmetry.rows(after, lambda part: before[part][order], AT_LAYERS)
    yield from symmetry.rows(after, before.__getitem__, AT_LAYERS, "π on one side only")
