"""Which place of a model does a name mean? Labels, tuples, and the names of TransformerLens.

A misspelt name is refused, and told the nearest that there are.
"""

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches

from interp.errors import UnknownPlace
from interp.points import STACKS, Place, PlaceLike, Point

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
"""Names that TransformerLens has beside its own for a norm's."""

SUBLAYERS = ("attn", "mlp", "a", "m")
"""What may stand behind a layer in the field's idiom without telling anything new."""


class Atlas:
    """All places of one model, in the order of its forward, and the names they answer to."""

    def __init__(self, hooks: dict[Place, str], n_layers: dict[str, int]) -> None:
        """Of a model whose stacks have so many layers each."""
        self.hooks = hooks
        self._n_layers = n_layers
        self._by_name = {str(place): place for place in hooks}
        self._by_name |= {hook: place for place, hook in hooks.items()}
        self._by_name |= {
            other: self._by_name[hook]
            for other, hook in _OTHER_HOOKS.items()
            if hook in self._by_name
        }

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
