"""The activations of a shard: forwards of its texts, stopped at the last place.

The forwards of a shard are determined by the index: its texts, sorted by length, in batches of at
most ``forward_texts`` texts and ``forward_tokens`` tokens. A text that reaches into the next shard
is run for both. So a shard does not depend on the process that computes it, nor on other shards.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InvalidInput, shorten
from interp.execution import precision, run
from interp.harvests.index import DTYPES, IDS, Computation, Index, StoredPlace
from interp.harvests.pieces import Pieces, TextsOfPiece
from interp.model import Batch, Network, TokenInput, weight_hash
from interp.names import Request
from interp.points import Place
from interp.prompts import by_length
from interp.transformer import TextNetwork

FORWARD_TOKENS = {"cpu": 2**12, "cuda": 2**14}
"""Tokens of a forward by device, padding included, unless a single text is longer."""
ROWS = 256
"""Texts of a forward, by default."""
CELLS = 2**24
"""The most attention weights of a head over all texts of a forward, which may be one text alone."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What is recorded of a model.

    Attributes:
        model: the model.
        places: the places, in the order of the forward.
        stack: the index of the stack whose tokens are the rows.
        dtype: the name of the dtype that activations are stored in.
        stop_at_layer: the layer before which a forward may stop; ``None`` runs to the end.
    """

    model: TextNetwork
    places: tuple[Place, ...]
    stack: int
    dtype: str
    stop_at_layer: int | None

    @property
    def stack_name(self) -> str:
        """The name of the stack whose tokens are the rows."""
        return self.model.stacks[self.stack].name

    @property
    def forward_tokens(self) -> int:
        """The most tokens of a forward, padding included."""
        return FORWARD_TOKENS.get(self.model.device.type, FORWARD_TOKENS["cuda"])

    @property
    def stored_places(self) -> tuple[StoredPlace, ...]:
        """The places as an index lists them."""
        model = self.model
        two = torch.zeros(1, 2, dtype=torch.long)
        batches = [Batch(two) for _ in model.stacks]
        return tuple(
            StoredPlace(model.names.hooks[p], p.to_json(), model.shape_at(batches, p)[2:])
            for p in self.places
        )

    def computation(self) -> Computation:
        """What the activations are computed with."""
        model = self.model
        return Computation(
            model=model.config.name or "unnamed",
            config=model.config.digest,
            weights=weight_hash(model),
            dtype=str(model.dtype).removeprefix("torch."),
            device=model.device.type,
            products=model.products,
            precision=precision(model),
            torch=torch.__version__,
        )

    def rows(self, batches: Sequence[Batch]) -> list[Float[Tensor, "row ..."]]:
        """The activations at each place of some texts, a row for each token, as they are stored.

        Raises:
            InvalidInput: an activation is not finite, or too large for the dtype.
        """
        stop, real = self.stop_at_layer, batches[self.stack].real
        cache = run(self.model, *batches, store=[*self.places], stop_at_layer=stop).cache
        return [
            as_stored(
                cache[place].flatten(0, 1) if real is None else cache[place][real],
                DTYPES[self.dtype],
                place,
            )
            for place in self.places
        ]


def planned(model: Any, record: Request, dtype: object) -> Plan:  # noqa: ANN401 - checked here
    """What is recorded of a model.

    Args:
        model: the model.
        record: the places, as for :func:`interp.run`.
        dtype: the dtype to store activations in, or its name; ``None``: that of the model.

    Raises:
        UnknownPlace: the model has no such place.
        InvalidInput: the model reads images; a place has no value at each token; the places are of
            two stacks; there is none; or the dtype can't be stored.
    """
    if not isinstance(model, TextNetwork) or not all(
        isinstance(stack.input, TokenInput) for stack in model.stacks
    ):
        raise InvalidInput(
            f"A harvest reads texts or token ids; {shorten(model)} is not a model that reads them."
        )
    places = tuple(model.names.requested(record, list(model.layout), _absent))
    if not places:
        raise InvalidInput(
            f'record={shorten(record)} names no place to store; give e.g. ("resid_post", 3).'
        )
    stacks = {_stack_of(model, place) for place in places}
    if len(stacks) > 1:
        raise InvalidInput(
            f"{places[0]} and {places[-1]} have tokens of different stacks, so they have no common "
            "rows. Harvest each stack into a folder of its own."
        )
    return Plan(model, places, stacks.pop(), _dtype_name(model, dtype), _stop(model, places))


def _absent(name: object) -> InvalidInput:
    return InvalidInput(f"{shorten(name)} can't be recorded by this model.")


def _stack_of(model: Network, place: Place) -> int:
    """The index of the stack whose tokens a place has values at."""
    axes = place.point.axes
    if axes[1] not in ("pos", "source") or place.point.is_matrix:
        raise InvalidInput(
            f"{place} has the axes [{' '.join(axes)}], so it has no row for each token. Record q "
            "and k, from which patterns are computed, or a place with one position axis."
        )
    names = [stack.name for stack in model.stacks]
    last = len(names) - 1
    return 0 if axes[1] == "source" else names.index(place.stack or names[last])


def _dtype_name(model: Network, dtype: object) -> str:
    name = str(model.dtype if dtype is None else dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise InvalidInput(f"dtype={shorten(dtype)} must be one of {', '.join(DTYPES)}.")
    return name


def _stop(model: Network, places: Sequence[Place]) -> int | None:
    """The layer before which a forward of the last stack may stop."""
    last = model.stacks[-1]
    stop = 0
    for place in places:
        if place.stack != last.name_in_places and place.point.value.region != "exit":
            continue
        if place.point.value.region == "exit":
            return None
        stop = max(stop, 0 if place.layer is None else place.layer + 1)
    return stop


class ShardForwards:
    """Computes shards.

    Args:
        plan: what is recorded.
        index: the index of the harvest.
        pieces: the token ids of its texts.
    """

    def __init__(self, plan: Plan, index: Index, pieces: Pieces) -> None:
        self.plan, self.index, self.pieces = plan, index, pieces

    def tensors(self, shard: int, report: Callable[[int], None]) -> dict[str, Tensor]:
        """The tensors of a shard: one for each place, and the integers beside each row.

        Args:
            shard: the number of the shard.
            report: called after each forward with the number of rows so far.

        Raises:
            InvalidInput: an activation is not finite, or too large for the dtype.
        """
        rows = self.index.rows_of(shard)
        dtype = DTYPES[self.index.dtype]
        tensors = {
            place.name: torch.empty(len(rows), *place.shape, dtype=dtype)
            for place in self.index.places
        }
        tensors |= {name: torch.empty(len(rows), dtype=dtype) for name, dtype in IDS.items()}
        n_rows = 0
        for part in self.pieces.overlapping(self.plan.model, rows):
            batches = by_length(
                part.batches, self.index.forward_texts, CELLS, self.index.forward_tokens
            )
            for chosen, some in batches:
                n_rows += self._add(tensors, rows, part, chosen.cpu(), some)
                report(n_rows)
        return tensors

    def _add(
        self,
        tensors: Mapping[str, Tensor],
        rows: range,
        part: TextsOfPiece,
        chosen: Int[Tensor, " text"],
        batches: Sequence[Batch],
    ) -> int:
        """Run some texts, and copy their activations into the rows of a shard, so many."""
        batch = batches[self.plan.stack]
        real = batch.is_real.cpu()
        position = torch.arange(real.shape[1]).expand_as(real)[real]
        text = chosen[:, None].expand_as(real)[real]
        target = part.first_rows[text] + position - rows.start
        inside = ((target >= 0) & (target < len(rows))).nonzero()[:, 0]
        ids = {"token": batch.ids.cpu()[real], "text": text + part.first_text, "position": position}
        activations = zip(self.index.places, self.plan.rows(batches), strict=True)
        values = {**ids, **{place.name: x for place, x in activations}}
        for name, x in values.items():
            some = x if len(inside) == len(x) else x[inside]
            tensors[name][target[inside]] = some.to(tensors[name].dtype)
        return len(inside)


def as_stored(
    x: Float[Tensor, "row ..."], dtype: torch.dtype, place: Place
) -> Float[Tensor, "row ..."]:
    """Activations in the dtype of a harvest, on the CPU.

    Raises:
        InvalidInput: one is not finite, or becomes infinite in this dtype.
    """
    stored = x.to(dtype)
    if not bool(stored.isfinite().all()):
        if not bool(x.isfinite().all()):
            raise InvalidInput(f"{place} is not finite: the model computes NaN on these texts.")
        name = str(dtype).removeprefix("torch.")
        raise InvalidInput(
            f"{place} has the value {float(x.abs().max()):.4g}, beyond the largest of {name}, "
            f'{torch.finfo(dtype).max:.4g}. Give dtype="bfloat16" or "float32", and another folder.'
        )
    return stored.cpu()
