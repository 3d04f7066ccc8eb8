"""Sensitivity to the order of tokens, of a model with and without its mask and its positions.

A view without the mask or positions shares the model's weights; see :mod:`interp.weights.stripped`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count, product

import torch
from jaxtyping import Bool
from torch import Tensor

from analyses.methods.symmetries import (
    Order,
    OwnInputs,
    has_order,
    in_order,
    movable_tokens,
    own_inputs,
    permuted,
    token_orders,
)
from analyses.order_sensitivity.responses import (
    Responder,
    Responses,
    of_own_inputs,
    of_prompts,
    sensitivity,
)
from interp.errors import InvalidInput, shorten
from interp.execution import first_nan
from interp.io import ProgressLike, as_progress
from interp.model import Batch, Network
from interp.weights import stripped

SCOPES = ("whole", "own")
BAG = "bag"
MASK, POSITIONS, BOTH, NEITHER = "mask", "positions", "mask and positions", "neither"
NAMES = {
    (True, True): BOTH,
    (True, False): MASK,
    (False, True): POSITIONS,
    (False, False): NEITHER,
}
"""The name of each variant, by whether it has the mask and whether it has positions."""
CHUNK = 2**26
"""Largest number of stream elements recorded at a time."""


def order_variants(
    model: Network, *, mask: bool | None, positions: bool | None
) -> dict[str, Network]:
    """The model with and without its mask and its positions, by name; the model itself is first.

    Args:
        model: the model.
        mask: ``True`` for variants with the mask, ``False`` without it, ``None`` for both.
        positions: likewise.

    Raises:
        InvalidInput: ``mask`` or ``positions`` is ``True``, but the model has none; or its weights
            are parametrized.
    """
    has = has_order(model)
    choices: list[tuple[bool, ...]] = []
    for name, asked, exists in (("mask", mask, has.mask), ("positions", positions, has.positions)):
        if not isinstance(asked, bool | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"{name}={shorten(asked)} should be True, False, or None for both.")
        if asked and not exists:
            raise InvalidInput(f"{name}=True: this model has no {name}; leave {name}= out.")
        choices.append(((True, False) if exists else (False,)) if asked is None else (asked,))
    views: dict[str, Network] = {}
    for choice in product(*choices):
        left_out = {
            "mask": has.mask and not choice[0],
            "positions": has.positions and not choice[1],
        }
        view = stripped(model, **left_out) if any(left_out.values()) else model
        views[NAMES[choice[0], choice[1]]] = view
    return views


@dataclass(frozen=True, eq=False)
class PermutedPrompts:
    """A comparison of a model on prompts and on permutations of them.

    Attributes:
        model: the unchanged model.
        batches: the prompts, one batch per stack.
        parts: the parts whose outputs are compared.
        scope: ``whole``, to permute the prompts; ``own``, to permute each part's own input.
        seeds: one seed for each permutation of a kind.
        forward_done: called after each forward.
    """

    model: Network
    batches: Sequence[Batch]
    parts: Sequence[Responder]
    scope: str
    seeds: range
    forward_done: Callable[[], None] = lambda: None

    def measure(
        self,
        views: Iterable[Network],
        kinds: Sequence[str],
        progress: ProgressLike = None,
    ) -> tuple[Tensor, Tensor]:
        """The sensitivity s of each part in each view of the model, and its control.

        The control is s of an output that does not change when the tokens are permuted. Both are
        NaN where a prompt has fewer than two tokens to permute; the control of ``bag`` is NaN.

        Returns:
            s and its control, both ``[variant permutation part prompt]``.
        """
        progress = as_progress(progress, "forwards")
        views, width = list(views), self.batches[-1].ids.shape[1]
        size = width * self.model.config.d_model * len(self.parts)
        rows = torch.arange(len(self.batches[0].ids), device=self.model.device)
        chunks, done = rows.split(max(1, CHUNK // size)), count(1)
        total = len(chunks) * len(views) * (1 + len(kinds) * len(self.seeds))

        def forward_done() -> None:
            if progress is not None:
                progress(next(done), total)

        measured = [
            replace(
                self,
                batches=[batch.rows(chunk) for batch in self.batches],
                forward_done=forward_done,
            )._measure(views, kinds)
            for chunk in chunks
        ]
        values, unmoved = (torch.cat(tensors, -1).cpu() for tensors in zip(*measured, strict=True))
        return values, unmoved

    def _measure(self, views: Iterable[Network], kinds: Sequence[str]) -> tuple[Tensor, Tensor]:
        inputs = own_inputs(self.model, self.batches) if self.scope == "own" else None
        table: list[list[tuple[Tensor, Tensor]]] = []
        for view in views:
            before = self._responses(view, inputs)
            table.append([self._of_kind(view, kind, inputs, before) for kind in kinds])
        values, unmoved = (
            torch.stack([torch.stack([pair[n] for pair in row]) for row in table]) for n in (0, 1)
        )
        return values, unmoved

    def _of_kind(
        self, view: Network, kind: str, inputs: OwnInputs | None, before: Responses
    ) -> tuple[Tensor, Tensor]:
        """The means of s and of its control over the seeds, both ``[part prompt]``."""
        movable, read = self._movable(kind)
        values: list[Tensor] = []
        unmoved: list[Tensor] = []
        for seed in self.seeds:
            orders = [
                token_orders(where, "random" if kind == BAG else kind, 2 * seed + stack)
                for stack, where in enumerate(movable)
            ]
            after = self._responses(view, inputs, orders)
            pairs = [self._compare(part, before, after, orders, read) for part in self.parts]
            s, control = (torch.stack(each) for each in zip(*pairs, strict=True))
            values.append(s)
            unmoved.append(torch.full_like(s, torch.nan) if kind == BAG else control)
        has = torch.stack([where.sum(-1) > 1 for where in movable]).any(0)
        s, control = (torch.stack(each).mean(0) for each in (values, unmoved))
        if bool((s.isnan() & has).any()):
            place = first_nan(view, self.batches)
            raise InvalidInput(f"The model computes NaN on these prompts, first at {place}.")
        return s.where(has, torch.nan), control.where(has, torch.nan)

    def _movable(self, kind: str) -> tuple[list[Tensor], list[Tensor]]:
        """The tokens of each stack that are permuted, and those whose outputs are compared."""
        movable = [
            movable_tokens(self.model, *pair)
            for pair in zip(self.model.stacks, self.batches, strict=True)
        ]
        if kind != BAG:
            return movable, movable
        last = [
            batch.is_real & (batch.is_real.cumsum(-1) == batch.is_real.sum(-1, keepdim=True))
            for batch in self.batches
        ]
        return [tokens & ~end for tokens, end in zip(movable, last, strict=True)], last

    def _responses(
        self, view: Network, inputs: OwnInputs | None, orders: Sequence[Order] | None = None
    ) -> Responses:
        if inputs is not None:
            responses = of_own_inputs(view, inputs, orders)
        elif orders is None:
            responses = of_prompts(view, self.batches)
        else:
            stacks = zip(self.batches, orders, self.model.stacks, strict=True)
            moved = [permuted(batch, order, stack.input) for batch, order, stack in stacks]
            responses = of_prompts(view, moved)
        self.forward_done()
        return responses

    def _compare(
        self,
        part: Responder,
        before: Responses,
        after: Responses,
        orders: Sequence[Order],
        read: Sequence[Bool[Tensor, "batch pos"]],
    ) -> tuple[Tensor, Tensor]:
        """The sensitivity s of one part, and its control, both ``[prompt]``."""
        f, where = part.of(before), read[part.stack]
        moved = in_order(f, orders[part.stack])
        s, control = (
            sensitivity(x, moved, where, before[part.stream]) for x in (part.of(after), f)
        )
        return s, control
