"""Where in a Transformer can a tensor be read or replaced?

:class:`Point` is the list of them: ``for point in Point: print(point.describe())``. A
:class:`Place` is a point in one layer of one model (and, where a model has two stacks or a block
several norms, which one). The names in use since TransformerLens are understood everywhere:
``"blocks.0.attn.hook_pattern"`` is ``("pattern", 0)``.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import Enum
from typing import NamedTuple

from interp.errors import UnknownPlace


class PointSpec(NamedTuple):
    """What the documentation of one point says."""

    label: str
    axes: tuple[str, ...]
    hook: str
    meaning: str


_STREAM = ("batch", "pos", "d_model")
_HEADS = ("batch", "pos", "head", "d_head")
_KEYS = ("batch", "key", "head", "d_head")
_SQUARE = ("batch", "head", "query", "key")
_WRITES = ("batch", "pos", "head", "d_model")
_NEURONS = ("batch", "pos", "d_mlp")
_SCALE = ("batch", "pos", "one")


class Point(Enum):
    """A kind of place: its label, axes, field name and meaning.

    The order is the order of the forward. ``hook`` is the TransformerLens name below
    ``blocks.{layer}.`` (or at the top for the entry and the exit).
    """

    EMBED = PointSpec("embed", _STREAM, "hook_embed", "token embedding")
    POS_EMBED = PointSpec("pos_embed", _STREAM, "hook_pos_embed", "position embedding added to it")

    RESID_PRE = PointSpec("resid_pre", _STREAM, "hook_resid_pre", "the stream entering a block")
    ATTN_IN = PointSpec("attn_in", _STREAM, "hook_attn_in", "what attention reads, before its norm")
    SCALE = PointSpec("scale", _SCALE, "hook_scale", "what a norm divides by")
    NORMALIZED = PointSpec("normalized", _STREAM, "hook_normalized", "what a norm gives out")
    Q = PointSpec("q", _HEADS, "attn.hook_q", "queries")
    K = PointSpec("k", _HEADS, "attn.hook_k", "keys (key/value heads)")
    V = PointSpec("v", _HEADS, "attn.hook_v", "values (key/value heads)")
    ROT_Q = PointSpec("rot_q", _HEADS, "attn.hook_rot_q", "queries after rotary positions")
    ROT_K = PointSpec("rot_k", _HEADS, "attn.hook_rot_k", "keys after rotary positions")
    SCORES = PointSpec("scores", _SQUARE, "attn.hook_attn_scores", "q·k / scale, -inf where masked")
    PATTERN = PointSpec("pattern", _SQUARE, "attn.hook_pattern", "A, the softmax of scores")
    Z = PointSpec("z", _HEADS, "attn.hook_z", "A·v per head")
    RESULT = PointSpec("result", _WRITES, "attn.hook_result", "z·W_O, what each head writes")
    ATTN_OUT = PointSpec("attn_out", _STREAM, "hook_attn_out", "what attention writes")
    RESID_MID = PointSpec("resid_mid", _STREAM, "hook_resid_mid", "the stream + attn_out")

    CROSS_ATTN_IN = PointSpec(
        "cross_attn_in", _STREAM, "hook_cross_attn_in", "what cross-attention reads for its queries"
    )
    CROSS_Q = PointSpec("cross_q", _HEADS, "cross_attn.hook_q", "queries of cross-attention")
    CROSS_K = PointSpec("cross_k", _KEYS, "cross_attn.hook_k", "keys, from the encoder")
    CROSS_V = PointSpec("cross_v", _KEYS, "cross_attn.hook_v", "values, from the encoder")
    CROSS_SCORES = PointSpec(
        "cross_scores", _SQUARE, "cross_attn.hook_attn_scores", "scores over the source"
    )
    CROSS_PATTERN = PointSpec(
        "cross_pattern", _SQUARE, "cross_attn.hook_pattern", "attention over the source"
    )
    CROSS_Z = PointSpec("cross_z", _HEADS, "cross_attn.hook_z", "A·v per head of cross-attention")
    CROSS_RESULT = PointSpec(
        "cross_result", _WRITES, "cross_attn.hook_result", "what each cross head writes"
    )
    CROSS_ATTN_OUT = PointSpec(
        "cross_attn_out", _STREAM, "hook_cross_attn_out", "what cross-attention writes"
    )
    CROSS_RESID_MID = PointSpec(
        "cross_resid_mid", _STREAM, "hook_resid_mid_cross", "the stream + cross_attn_out"
    )

    MLP_IN = PointSpec("mlp_in", _STREAM, "hook_mlp_in", "what the MLP reads, before its norm")
    GATE = PointSpec("gate", _NEURONS, "mlp.hook_gate", "x·W_gate before its activation")
    PRE = PointSpec("pre", _NEURONS, "mlp.hook_pre", "x·W_in before the activation")
    POST = PointSpec("post", _NEURONS, "mlp.hook_post", "the neurons' activations")
    MLP_OUT = PointSpec("mlp_out", _STREAM, "hook_mlp_out", "what the MLP writes")
    RESID_POST = PointSpec("resid_post", _STREAM, "hook_resid_post", "the stream + the last write")

    FINAL_SCALE = PointSpec("final_scale", _SCALE, "ln_final.hook_scale", "final norm's divisor")
    FINAL_NORMALIZED = PointSpec(
        "final_normalized", _STREAM, "ln_final.hook_normalized", "the final norm's output"
    )
    LOGITS = PointSpec("logits", ("batch", "pos", "vocab"), "hook_logits", "one score a token")

    @property
    def label(self) -> str:
        """The short name, as in ``cache["pattern", 0]``."""
        return self.value.label

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes of the tensor found here."""
        return self.value.axes

    @property
    def in_block(self) -> bool:
        """Whether the point belongs to a layer (the entry and the exit do not)."""
        return self not in _OUTSIDE

    def describe(self) -> str:
        """One line: label, axes, meaning, the TransformerLens name."""
        axes = " ".join(self.axes)
        return f"{self.label:<16} [{axes}]  {self.value.meaning}  ({self.value.hook})"


_OUTSIDE = frozenset(
    {Point.EMBED, Point.POS_EMBED, Point.FINAL_SCALE, Point.FINAL_NORMALIZED, Point.LOGITS}
)
_BY_LABEL = {point.label: point for point in Point}
_SYNONYMS = {
    "attn": Point.PATTERN,
    "attn_logits": Point.SCORES,
    "attn_scores": Point.SCORES,
    "pre_linear": Point.PRE,
    "resid_mid_cross": Point.CROSS_RESID_MID,
}


STACKS = ("encoder", "decoder")
SUBLAYERS = ("attn", "mlp", "a", "m")
"""What may stand behind a layer in the field's idiom without telling anything new."""


@dataclass(frozen=True)
class Place:
    """One point of one model, e.g. the pattern of layer 0.

    Attributes:
        point: which tensor.
        layer: the block, from 0; ``None`` at the entry and the exit.
        norm: ``"ln1"``, ``"ln2"``, … for the points of a block's norms.
        stack: ``"encoder"`` or ``"decoder"``; ``None`` in a model that has only one stack.
    """

    point: Point
    layer: int | None = None
    norm: str | None = None
    stack: str | None = None

    def __str__(self) -> str:
        """As it is written in ``cache[...]``: ``pattern,0`` or ``encoder.scale,4,ln1``."""
        parts = [self.point.label, self.layer, self.norm]
        name = ",".join(str(part) for part in parts if part is not None)
        return f"{self.stack}.{name}" if self.stack else name

    def to_json(self) -> list[str | int | None]:
        """``[label, layer, norm, stack]``."""
        return [self.point.label, self.layer, self.norm, self.stack]


PlaceLike = Place | Point | str | tuple[object, ...]
"""Anything :meth:`Atlas.find` understands: ``("pattern", 0)``, a hook name, a :class:`Place`."""


class Atlas:
    """All places of one model, in the order of its forward, and the names they answer to."""

    def __init__(self, hooks: dict[Place, str], n_layers: dict[str, int]) -> None:
        """Of a model whose stacks have so many layers each."""
        self.hooks = hooks
        self._n_layers = n_layers
        self._by_name = {str(place): place for place in hooks}
        self._by_name |= {hook: place for place, hook in hooks.items()}

    def __iter__(self):  # noqa: ANN204 - Iterator[Place]; pyright infers it
        """The places, in order."""
        return iter(self.hooks)

    def __contains__(self, place: object) -> bool:
        """Whether this model has that place."""
        return place in self.hooks

    def __len__(self) -> int:
        """How many places there are."""
        return len(self.hooks)

    def find(self, name: PlaceLike) -> Place:
        """The place that ``name`` means in this model.

        Args:
            name: a :class:`Place`; a :class:`Point` or label (entry and exit); a tuple of a point,
                a layer (negative counts from the end) and, where needed, a norm and a stack in
                any order; or a TransformerLens hook name.

        Raises:
            UnknownPlace: there is no such place, or the name leaves open which one is meant.
        """
        if isinstance(name, tuple) and len(name) == 1 and isinstance(name[0], str):
            name = name[0]
        if isinstance(name, str) and name in self._by_name:
            return self._by_name[name]
        wanted = self._read(name)
        candidates = [place for place in self.hooks if self._agrees(place, wanted)]
        if len(candidates) == 1:
            return candidates[0]
        raise UnknownPlace(self._explain(name, wanted, candidates))

    def find_all(self, name: PlaceLike) -> list[Place]:
        """Like :meth:`find`, but a bare label or point means that point in every layer."""
        if isinstance(name, Point) or (isinstance(name, str) and "." not in name):
            wanted = self._read(name)
            found = [place for place in self.hooks if place.point is wanted.point]
            if found:
                return found
        return [self.find(name)]

    def _read(self, name: PlaceLike) -> Place:
        if isinstance(name, Place):
            parts: tuple[object, ...] = (name.point, name.layer, name.norm, name.stack)
        else:
            parts = name if isinstance(name, tuple) else (name,)
        if not parts:
            raise UnknownPlace('An empty tuple names no place; write e.g. ("pattern", 0).')
        point = self._point(parts[0], name)
        layers = [p for p in parts[1:] if isinstance(p, int) and not isinstance(p, bool)]
        names = [part for part in parts[1:] if isinstance(part, str)]
        if len(layers) + len(names) + parts[1:].count(None) < len(parts) - 1 or len(layers) > 1:
            raise UnknownPlace(f"{name!r} should be a point, a layer, and perhaps a norm or stack.")
        stack = next((n for n in names if n in STACKS), None)
        norm = next((n for n in names if n not in (*STACKS, *SUBLAYERS)), None)
        wanted = Place(point, layers[0] if layers else None, norm, stack)
        if stack is not None and stack not in self._n_layers:
            here = replace(wanted, stack=None)
            raise UnknownPlace(f"{wanted}: this model has no {stack}. Nearest: {here}.")
        return wanted

    def _agrees(self, place: Place, wanted: Place) -> bool:
        """Whether ``place`` is what ``wanted`` says, as far as it says something."""
        only = len(self._n_layers) == 1
        layer = wanted.layer
        if layer is not None and layer < 0:
            (name,) = self._n_layers if only else (place.stack or "",)
            layer += self._n_layers.get(name, 0)
        return (
            place.point is wanted.point
            and layer in (None, place.layer)
            and wanted.norm in (None, place.norm)
            and (only or wanted.stack in (None, place.stack))
        )

    def _point(self, part: object, name: object) -> Point:
        if isinstance(part, Point):
            return part
        label = str(part)
        found = _BY_LABEL.get(label) or _SYNONYMS.get(label)
        if found is None:
            known = [*_BY_LABEL, *_SYNONYMS, *self._by_name]
            raise UnknownPlace(f"There is no place {name!r}.{_nearest(label, known)}")
        return found

    def _explain(self, name: object, wanted: Place, candidates: list[Place]) -> str:
        name = str(name) if isinstance(name, Place) else name
        if candidates:
            choices = ", ".join(str(place) for place in candidates[:6])
            return f"{name!r} leaves open which place is meant; say one of: {choices}."
        same_point = [str(place) for place in self.hooks if place.point is wanted.point]
        if not same_point:
            return (
                f"{name!r}: this model has no {wanted.point.label!r}."
                f"{_nearest(wanted.point.label, {p.point.label for p in self.hooks})}"
            )
        return f"This model has no place {name!r}.{_nearest(str(wanted), same_point)}"


def _nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    near = get_close_matches(name, known, n=3, cutoff=0.4) or known[:3]
    return f" Nearest: {', '.join(near)}."
