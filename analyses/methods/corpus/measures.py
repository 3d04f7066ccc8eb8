"""Measures of a corpus: one value per token, or per pair of a query and a key.

    head, attention    A_ij                  the attention of query i to key j
    head, write        ‖z_i W_O‖             the norm of the head's output at token i
    neuron             its activation
    place              ‖x_i‖                 the norm over all axes except batch and position

The output of a head is taken before any norm. A query that sees a single key has attention 1
whatever the weights are, so it is excluded.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from analyses.methods.components import Component, components_of
from analyses.methods.heads import (
    AttentionName,
    Attentions,
    attentions_of,
    pattern_at,
    visible_keys,
)
from interp.cache import Cache
from interp.errors import InvalidInput, shorten
from interp.metrics import at_least_float32
from interp.model import PAD, Batch, Network
from interp.points import Place, PlaceLike, Point

BY = ("attention", "write")
COMPONENT = re.compile(r"(\w+\.)?L\d+[A-Z]+\d*(:\w+)?", re.ASCII)
Cells = Float[Tensor, "unit row pos key"]
"""Values at the tokens of each row. The key axis has size 1 except for attention."""


@dataclass(frozen=True, eq=False)
class Measure:
    """A quantity measured on a corpus.

    Attributes:
        model: the model.
        name: name of the head, neurons or place, such as ``L0H1``, ``L0N12`` or ``resid_post 1``.
        by: ``attention``, ``write``, ``activation`` or ``norm``.
        place: the place that is recorded.
        stack: index of the stack whose tokens have values; for attention, the stack of the
            queries.
    """

    model: Network
    name: str
    by: str
    place: Place
    stack: int

    @property
    def key_stack(self) -> int | None:
        """Index of the stack whose tokens are the keys; ``None`` except for attention."""
        return None

    @property
    def units(self) -> int:
        """Number of units, each with its own value at every cell."""
        return 1

    def values(self, cache: Cache) -> Cells:
        """The values, in float32 or float64."""
        raise NotImplementedError

    def counted(self, batches: Sequence[Batch]) -> Bool[Tensor, "row pos key"]:
        """The cells that count: those of real tokens, not of padding."""
        return batches[self.stack].is_real[:, :, None]

    def at_bos(self, batches: Sequence[Batch]) -> Bool[Tensor, "row _ _"]:
        """The cells of BOS tokens; for attention, those whose key is BOS."""
        at = self.stack if self.key_stack is None else self.key_stack
        bos = self.model.config.tokens.bos
        is_bos = batches[at].tokens == (PAD if bos is None else bos)
        return is_bos[:, :, None] if self.key_stack is None else is_bos[:, None]

    @property
    def stop_at_layer(self) -> int | None:
        """The layer before which a run may stop; ``None`` if it must run to the end."""
        last = self.model.stacks[-1]
        if self.stack < len(self.model.stacks) - 1 or self.place.layer is None:
            return None
        return self.place.layer + 1 if self.place.layer + 1 < len(last.blocks) else None

    def _recorded(self, cache: Cache) -> Tensor:
        """The tensor at the place, in float32 or float64.

        Raises:
            InvalidInput: the tensor is not finite.
        """
        x = at_least_float32(cache[self.place])
        if not bool(x.isfinite().all()):
            raise InvalidInput(f"{self.place} is not finite: the model computes NaN on this text.")
        return x


@dataclass(frozen=True, eq=False)
class AttentionOf(Measure):
    """The attention weights of one head.

    Attributes:
        head: index of the head in its layer.
        attention: the attentions of all layers.
    """

    head: int
    attention: Attentions

    @property
    def key_stack(self) -> int:
        """Index of the stack of the keys."""
        return self.attention.key

    def values(self, cache: Cache) -> Cells:
        """A_ij."""
        return pattern_at(cache, self.place)[None, :, self.head]

    def counted(self, batches: Sequence[Batch]) -> Bool[Tensor, "row pos key"]:
        """The keys that each query sees, for queries that see more than one."""
        context = self.model.contexts(batches)[self.stack]
        attn = self.attention.layers[self.place.layer or 0]
        keys = batches[self.attention.key]
        visible = visible_keys(attn, context, keys.ids.shape[1]) & keys.is_real[:, None]
        return visible & super().counted(batches) & (visible.sum(-1, keepdim=True) > 1)


@dataclass(frozen=True, eq=False)
class WriteOf(Measure):
    """The norm of the output of one head.

    Attributes:
        head: index of the head in its layer.
        W_O: output weights of the head.
    """

    head: int
    W_O: Float[Tensor, "d_head d_model"]

    def values(self, cache: Cache) -> Cells:
        """‖z W_O‖."""
        z = self._recorded(cache)[:, :, self.head]
        return (z @ self.W_O.to(z.dtype)).norm(dim=-1)[None, :, :, None]


@dataclass(frozen=True, eq=False)
class ActivationsOf(Measure):
    """The activations of neurons of one MLP.

    Attributes:
        neurons: indices of the neurons.
    """

    neurons: tuple[int, ...]

    @property
    def units(self) -> int:
        """Number of neurons."""
        return len(self.neurons)

    def values(self, cache: Cache) -> Cells:
        """post[n] of each neuron n."""
        return self._recorded(cache)[..., list(self.neurons)].movedim(-1, 0)[..., None]


@dataclass(frozen=True, eq=False)
class NormOf(Measure):
    """The norm of the tensor at a place."""

    def values(self, cache: Cache) -> Cells:
        """‖x‖ over all axes except row and position."""
        return self._recorded(cache).flatten(2).norm(dim=-1)[None, :, :, None]


def measure_of(model: Network, of: PlaceLike, by: str | None = None) -> Measure:
    """The measure of a head, a neuron or a place.

    Args:
        model: the model.
        of: the name of a head, neuron, feature or sub-layer as in
            :mod:`analyses.methods.components.components` (``L0H1``, ``L0N12``, ``L0MLP``,
            ``cross.L1H0``), or a place such as ``("resid_post", 1)``.
        by: for a head, ``attention`` (the default) or ``write``.

    Raises:
        InvalidInput: ``by`` is unknown, or given although ``of`` is not a head; or the place has
            no position axis, or two.
        UnknownPlace: the model has no component or place of this name.
    """
    component = (
        components_of(model).named(of) if isinstance(of, str) and COMPONENT.fullmatch(of) else None
    )
    if component is not None and component.head is not None:
        if by not in (None, *BY):
            raise InvalidInput(f"by={shorten(by)} is not one of {', '.join(BY)}.")
        return _of_head(model, component, component.head, by or BY[0])
    if by is not None:
        raise InvalidInput(f"by={shorten(by)} applies to heads only; {shorten(of)} is not a head.")
    if component is not None and component.unit is not None:
        return activations_of(model, component.name, component.place, (component.unit,))
    place = model.names.resolve(of) if component is None else component.place
    axes = place.point.axes
    if axes[1] not in ("pos", "source") or place.point.is_matrix:
        raise InvalidInput(
            f"{place} has the axes {' '.join(axes)}, so it has no value per token. To measure the "
            "attention of a head, give its name, such as L0H1."
        )
    stack = 0 if axes[1] == "source" else _stack(model, place)
    parts = (str(part) for part in place.to_json() if part is not None)
    name = " ".join(parts) if component is None else component.name
    return NormOf(model, name, "norm", place, stack)


def activations_of(
    model: Network, name: str, place: Place, neurons: tuple[int, ...]
) -> ActivationsOf:
    """The measure of several neurons, or features, whose activations are at ``place``."""
    return ActivationsOf(model, name, "activation", place, _stack(model, place), neurons)


def _of_head(model: Network, component: Component, head: int, by: str) -> Measure:
    layer, place = component.layer, component.place
    which: AttentionName | None = None
    if len(model.stacks) > 1:
        which = "cross" if place.point is Point.CROSS_Z else _attention_name(place)
    attention = attentions_of(model, which)
    if by == "write":
        W_O = attention.layers[layer].W_O[head]
        return WriteOf(model, component.name, by, place, attention.query, head, W_O)
    pattern, _ = attention.places(layer)
    return AttentionOf(model, component.name, by, pattern, attention.query, head, attention)


def _attention_name(place: Place) -> AttentionName:
    return "encoder" if place.stack == "encoder" else "decoder"


def _stack(model: Network, place: Place) -> int:
    """The index of the stack that a place is in."""
    names = [stack.name for stack in model.stacks]
    return names.index(place.stack) if place.stack in names else len(names) - 1
