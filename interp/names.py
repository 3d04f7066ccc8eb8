"""From names to places: labels, tuples and TransformerLens hook names, by one dictionary.

Every call that takes a place (``record``, ``store``, ``cache[...]``, ``keep``, edits, hooks)
resolves it here. A name that means no place of the model is refused with the nearest that it has.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import product
from operator import index
from typing import SupportsIndex

from interp.errors import InvalidInput, UnknownPlace
from interp.points import STACKS, Place, PlaceLike, Point

Request = PlaceLike | Iterable[PlaceLike] | Callable[[str], bool] | None
"""Several places: ``"all"``, a name or several, or a function of the hook name."""

_BY_LABEL = {point.label: point for point in Point}
_SYNONYMS = {
    "attn": Point.PATTERN,
    "attn_logits": Point.SCORES,
    "attn_scores": Point.SCORES,
    "pre_linear": Point.PRE,
    "token_type_embed": Point.TYPE_EMBED,
    "resid_mid_cross": Point.CROSS_RESID_MID,
}
_OTHER_HOOKS = {"hook_full_embed": "embed.ln.hook_normalized"}
"""Second names that TransformerLens gives to a hook."""
_SUBLAYERS = ("attn", "mlp", "a", "m")
"""Accepted after a layer, as in ``cache["pattern", 0, "attn"]``; they add no information."""

Key = tuple[Point, int | None, str | None, str | None]
"""Point, layer, norm and stack, as far as a name gives them."""


class Names:
    """All places of one model, in the order of its forward, and the names that they have.

    Attributes:
        hooks: the TransformerLens name of each place.
    """

    def __init__(self, hooks: dict[Place, str], n_layers: dict[str, int]) -> None:
        """Args: hooks: places and their hook names; n_layers: number of blocks of each stack."""
        self.hooks = hooks
        self._stacks, self._n_layers = tuple(n_layers), n_layers
        self._by_name = {str(place): place for place in hooks}
        self._by_name |= {hook: place for place, hook in hooks.items()}
        self._by_name |= {
            other: self._by_name[hook]
            for other, hook in _OTHER_HOOKS.items()
            if hook in self._by_name
        }
        self._by_key: dict[Key, list[Place]] = {}
        for place in hooks:
            for key in _keys(place, n_layers):
                self._by_key.setdefault(key, []).append(place)

    def __iter__(self) -> Iterator[Place]:
        """The places, in the order of the forward."""
        return iter(self.hooks)

    def __contains__(self, place: object) -> bool:
        """Whether the model has this place."""
        return place in self.hooks

    def __len__(self) -> int:
        """Number of places."""
        return len(self.hooks)

    def resolve(self, name: PlaceLike) -> Place:
        """The place that ``name`` means in this model.

        Args:
            name: a :class:`Place`; a :class:`Point` or label (outside blocks); a tuple of a point,
                a layer (negative counts from the end) and, where needed, a norm and a stack in
                any order; or a TransformerLens hook name.

        Raises:
            UnknownPlace: there is no such place, or the name is ambiguous.
        """
        exact = self._exact(name)
        if exact is not None:
            return exact
        key = self._key(name)
        found = self._by_key.get(key, [])
        if len(found) != 1:
            raise UnknownPlace(self._explain(name, key, found))
        return found[0]

    def resolve_all(self, name: PlaceLike) -> list[Place]:
        """As :meth:`resolve`, but a bare label or point means that point in every layer."""
        exact = self._exact(name)
        if exact is not None:
            return [exact]
        if isinstance(name, Point) or (isinstance(name, str) and "." not in name):
            point = self._key(name)[0]
            found = [place for place in self.hooks if place.point is point]
            if found:
                return found
        return [self.resolve(name)]

    def every_layer(self, name: PlaceLike) -> list[Place] | None:
        """The places of a point in every layer, if ``name`` is of a block's point without a layer.

        Returns:
            The places in the order of the layers; ``None`` if ``name`` means a single place.

        Raises:
            UnknownPlace: there is no such place, or the name leaves norm or stack open.
            InvalidInput: some layers lack the point.
        """
        if self._exact(name) is not None:
            return None
        key = self._key(name)
        point, layer, _, _ = key
        found = self._by_key.get(key, [])
        if layer is not None or not point.in_block or not found:
            return None
        if len({(place.norm, place.stack) for place in found}) > 1:
            raise UnknownPlace(self._explain(name, key, found))
        if len(found) < self._n_layers[found[0].stack or self._stacks[-1]]:
            held = ", ".join(str(place) for place in found[:6])
            raise InvalidInput(
                f"Not every layer has {point.label!r}; read them one by one: {held}."
            )
        return found

    def requested(
        self, request: Request, among: Sequence[Place], absent: Callable[[PlaceLike], Exception]
    ) -> list[Place]:
        """The places ``among`` those given that a request names, in their order.

        Args:
            request: see :data:`Request`.
            among: what can be asked for.
            absent: the error for a name that means none of ``among``.

        Raises:
            UnknownPlace: the model has no such place.
        """
        if request is None:
            return []
        if isinstance(request, str) and request == "all":
            return list(among)
        if callable(request):
            return [place for place in among if request(self.hooks[place])]
        several = [request] if isinstance(request, str | tuple | Place | Point) else list(request)
        offered, wanted = set(among), set[Place]()
        for name in several:
            found = offered.intersection(self.resolve_all(name))
            if not found:
                raise absent(name)
            wanted |= found
        return [place for place in among if place in wanted]

    def _exact(self, name: PlaceLike) -> Place | None:
        """The place of exactly this name, if there is one."""
        if isinstance(name, tuple) and len(name) == 1 and isinstance(name[0], str):
            name = name[0]
        return self._by_name.get(name) if isinstance(name, str) else None

    def _key(self, name: PlaceLike) -> Key:
        if isinstance(name, Place):
            parts: tuple[object, ...] = (name.point, name.layer, name.norm, name.stack)
        else:
            parts = name if isinstance(name, tuple) else (name,)
        if not parts:
            raise UnknownPlace('An empty tuple names no place; write e.g. ("pattern", 0).')
        point = self._point(parts[0], name)
        layers = [number for part in parts[1:] if (number := _as_layer(part)) is not None]
        words = [part for part in parts[1:] if isinstance(part, str)]
        if len(layers) > 1 or len(layers) + len(words) + parts[1:].count(None) < len(parts) - 1:
            raise UnknownPlace(
                f"{name!r} should be a point, a layer, and perhaps a norm or a stack."
            )
        layer = layers[0] if layers else None
        stack = next((word for word in words if word in STACKS), None)
        norm = next((word for word in words if word not in (*STACKS, *_SUBLAYERS)), None)
        if stack is not None and stack not in self._stacks:
            raise UnknownPlace(
                f"{Place(point, layer, norm, stack)}: this model has no {stack}. "
                f"Nearest: {Place(point, layer, norm)}."
            )
        return point, layer, norm, stack

    def _point(self, part: object, name: object) -> Point:
        if isinstance(part, Point):
            return part
        label = str(part)
        found = _BY_LABEL.get(label) or _SYNONYMS.get(label)
        if found is None:
            known = [*_BY_LABEL, *_SYNONYMS, *self._by_name]
            raise UnknownPlace(f"There is no place {name!r}.{_nearest(label, known)}")
        return found

    def _explain(self, name: object, key: Key, found: list[Place]) -> str:
        name = str(name) if isinstance(name, Place) else name
        if found:
            choices = ", ".join(str(place) for place in found[:6])
            return f"{name!r} is ambiguous; give one of: {choices}."
        point = key[0]
        same_point = [str(place) for place in self.hooks if place.point is point]
        if not same_point:
            return (
                f"{name!r}: this model has no {point.label!r}."
                f"{_nearest(point.label, {place.point.label for place in self.hooks})}"
            )
        return f"This model has no place {name!r}.{_nearest(str(Place(*key)), same_point)}"


def _keys(place: Place, n_layers: dict[str, int]) -> Iterator[Key]:
    """Every combination of layer, norm and stack that a name of the place may give."""
    (only,) = n_layers if len(n_layers) == 1 else (None,)
    stack = place.stack or only
    layers = {place.layer, None}
    if place.layer is not None and stack is not None:
        layers.add(place.layer - n_layers[stack])
    for layer, norm, named in product(layers, {place.norm, None}, {place.stack, only, None}):
        yield place.point, layer, norm, named


def _as_layer(part: object) -> int | None:
    """``part`` as an integer of any type; ``None`` if it is none."""
    if isinstance(part, bool) or not isinstance(part, SupportsIndex):
        return None
    try:
        return index(part)
    except TypeError:  # a tensor has __index__ and may hold a fraction
        return None


def _nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    near = get_close_matches(name, known, n=3, cutoff=0.4) or known[:3]
    return f" Nearest: {', '.join(near)}."
