"""Resolves names to places: labels, tuples and TransformerLens hook names, in one dictionary.

Every call that takes a place (``record``, ``store``, ``cache[...]``, ``keep``, edits, hooks)
resolves it here. An unknown name raises an error that lists the nearest names of the model.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from interp.errors import InvalidInput, UnknownPlace, nearest, shorten
from interp.integers import as_integer
from interp.points import PART_OF, STACKS, Place, PlaceLike, Point

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
"""Alternative names of hooks in TransformerLens."""
_BY_HOOK = {point.value.hook: point for point in Point}
_BEFORE_HOOK = re.compile(r"^(?:\w+\.\d+\.(?:ln\d\w*\.)?|encoder\.|decoder\.)")
"""The prefix of a point's own hook name: block and norm, or the stack of an encoder–decoder."""
_SUBLAYERS = ("attn", "mlp", "a", "m")
"""Accepted after a layer, as in ``cache["pattern", 0, "attn"]``; they add no information."""

Key = tuple[Point, int | None, str | None, str | None]
"""Point, layer, norm and stack, as far as a name specifies them."""


class Names:
    """All places of one model, in the order of its forward, and their names.

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
        """The place of this model that ``name`` refers to.

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
        matches = self._by_key.get(key, [])
        if len(matches) != 1:
            raise UnknownPlace(self._explain(name, key, matches))
        return matches[0]

    def resolve_all(self, name: PlaceLike) -> list[Place]:
        """Like :meth:`resolve`, but a bare label or point means that point in every layer."""
        exact = self._exact(name)
        if exact is not None:
            return [exact]
        if isinstance(name, Point) or (isinstance(name, str) and "." not in name):
            point = self._key(name)[0]
            places = self._places_of(point)
            if places:
                return places
        return [self.resolve(name)]

    def every_layer(self, name: PlaceLike) -> list[Place] | None:
        """The places of a point in every layer, if ``name`` is a block's point without a layer.

        Returns:
            The places in the order of the layers; ``None`` if ``name`` refers to a single place.

        Raises:
            UnknownPlace: there is no such place, or the name does not specify norm or stack.
            InvalidInput: some layers lack the point.
        """
        if self._exact(name) is not None:
            return None
        key = self._key(name)
        point, layer, _, _ = key
        matches = self._by_key.get(key, [])
        if layer is not None or not point.in_block or not matches:
            return None
        if len({(place.norm, place.stack) for place in matches}) > 1:
            raise UnknownPlace(self._explain(name, key, matches))
        if len(matches) < self._n_layers[matches[0].stack or self._stacks[-1]]:
            listed = ", ".join(str(place) for place in matches[:6])
            raise InvalidInput(
                f"Not every layer has {point.label!r}; read them one by one: {listed}."
            )
        return matches

    def requested(
        self, request: Request, among: Sequence[Place], absent: Callable[[PlaceLike], Exception]
    ) -> list[Place]:
        """The requested places among those available, in the order of the latter.

        Args:
            request: see :data:`Request`.
            among: the available places.
            absent: returns the error for a name that refers to none of ``among``.

        Raises:
            UnknownPlace: the model has no such place.
        """
        if request is None:
            return []
        if isinstance(request, str) and request == "all":
            return list(among)
        if callable(request):
            return [place for place in among if request(self.hooks[place])]
        offered, wanted = set(among), set[Place]()
        for name in _several(request):
            named = offered.intersection(self.resolve_all(name))
            if not named:
                raise absent(name)
            wanted |= named
        return [place for place in among if place in wanted]

    def _exact(self, name: PlaceLike) -> Place | None:
        """The place with exactly this name, if there is one."""
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
        layers = [number for part in parts[1:] if (number := as_integer(part)) is not None]
        words = [part for part in parts[1:] if isinstance(part, str)]
        if len(layers) > 1 or len(layers) + len(words) + parts[1:].count(None) < len(parts) - 1:
            raise UnknownPlace(
                f"{shorten(name)} should be a point, a layer, and perhaps a norm or a stack."
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
        if not isinstance(part, str):
            raise UnknownPlace(f'{shorten(name)} names no place; write e.g. ("pattern", 0).')
        point = _BY_LABEL.get(part) or _SYNONYMS.get(part)
        if point is None:
            raise UnknownPlace(self._explain_label(part, name))
        return point

    def _explain_label(self, label: str, name: object) -> str:
        """The error message for a name whose first part is not a label."""
        hooked = _BY_HOOK.get(_BEFORE_HOOK.sub("", label))
        if hooked is not None and not self._places_of(hooked):
            return _absent(hooked, name)
        names = [*_BY_LABEL, *_SYNONYMS, *self._by_name]
        return f"There is no place {shorten(name)}.{_nearest(label, names)}"

    def _explain(self, name: object, key: Key, matches: list[Place]) -> str:
        """The error message for a name that matches no place, or several."""
        if matches:
            choices = ", ".join(str(place) for place in matches[:6])
            return f"{shorten(name)} is ambiguous; give one of: {choices}."
        places = [str(place) for place in self._places_of(key[0])]
        if not places:
            return _absent(key[0], name)
        layer, n_layers = key[1], self._n_layers[key[3] or self._stacks[-1]]
        if layer is not None and key[0].in_block and not -n_layers <= layer < n_layers:
            return (
                f"{shorten(name)}: this model has no layer {layer}; its {n_layers} layers are "
                f"0..{n_layers - 1}, or -{n_layers}..-1 from the end."
            )
        return f"This model has no place {shorten(name)}.{_nearest(str(Place(*key)), places)}"

    def _places_of(self, point: Point) -> list[Place]:
        """The places of one point, in the order of the forward."""
        return [place for place in self.hooks if place.point is point]


def _keys(place: Place, n_layers: dict[str, int]) -> Iterator[Key]:
    """Every combination of layer, norm and stack that a name of the place may specify."""
    (only,) = n_layers if len(n_layers) == 1 else (None,)
    stack = place.stack or only
    layers = {place.layer, None}
    if place.layer is not None and stack is not None:
        layers.add(place.layer - n_layers[stack])
    for layer, norm, named in product(layers, {place.norm, None}, {place.stack, only, None}):
        yield place.point, layer, norm, named


def _several(request: object) -> list[Any]:
    """The names in a request; a single name gives a list of one.

    Raises:
        UnknownPlace: the request is neither a name nor a list of names.
    """
    if isinstance(request, str | bytes | tuple | Place | Point):
        return [request]
    try:
        return list(request)  # pyright: ignore[reportArgumentType, reportUnknownVariableType]
    except TypeError as error:
        raise UnknownPlace(
            f'{shorten(request)} names no place; write e.g. ("pattern", 0), several, or "all".'
        ) from error


def _absent(point: Point, name: object) -> str:
    part = PART_OF.get(point, "another architecture")
    return f"{shorten(name)}: this model has no {point.label!r}, which needs {part}."


def _nearest(name: str, names: Sequence[str]) -> str:
    return nearest(name, names, cutoff=0.4) or f" Nearest: {', '.join(names[:3])}."
