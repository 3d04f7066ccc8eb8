"""The parts of a template: texts split into pieces, their slots, and the lists of entries."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Formatter
from typing import Any, NamedTuple

from interp.errors import InvalidInput, nearest, shorten
from interp.integers import at_least, integer
from interp.prompts.prompt import FIELDS

Entry = str | Mapping[str, str]
"""A slot is filled with a text, or with a record of texts by name."""
Where = Callable[[str], str]
"""Returns file and line of a key of a template."""
MAX_ENTRY, MAX_LABEL = 24, 100
"""Maximum number of characters of an entry in the label of a filling, and of the whole label."""


class Piece(NamedTuple):
    """A part of a text.

    Attributes:
        literal: the text before the slot.
        slot: name of the slot; ``None`` at the end.
        field: name of the text in a record; ``None`` for an entry that is a text.
    """

    literal: str
    slot: str | None
    field: str | None


Pieces = tuple[Piece, ...]


def filled(pieces: Pieces, entries: Mapping[str, Entry]) -> str:
    """The text with each slot replaced by its entry."""
    return "".join(
        piece.literal + ("" if piece.slot is None else _text_of(entries[piece.slot], piece.field))
        for piece in pieces
    )


def _text_of(entry: Any, field: str | None) -> str:  # noqa: ANN401 - an Entry, checked
    return entry if field is None else entry[field]


def label_of(entries: Mapping[str, Entry], variant: int | None) -> str:
    """A label of a filling, for messages: ``a=Ann, b=Bob``."""
    texts = {
        slot: e if isinstance(e, str) else next(iter(e.values())) for slot, e in entries.items()
    }
    named = [f"{slot}={text[:MAX_ENTRY]}" for slot, text in texts.items()]
    label = ", ".join([*([] if variant is None else [f"text {variant}"]), *named])
    return label if len(label) <= MAX_LABEL else f"{label[: MAX_LABEL - 1]}…"


def check_values(values: Mapping[str, object], where: Where) -> None:
    """Refuse values of the wrong type.

    Args:
        values: values of a template by key; ``None`` means not given.
        where: returns the place of a key, for messages.

    Raises:
        InvalidInput: a value has the wrong type; the message has the key and the value.
    """
    for field in FIELDS:
        if values.get(field) is not None:
            texts_of_field(field, values[field], where)
    if values.get("n") is not None:
        at_least(1, values["n"], f"{where('n')}: n")
    integer(values.get("seed", 0), f"{where('seed')}: seed")
    _check_lists(values.get("lists"), where)
    _check_slots(values.get("slots", {}), where)


def _check_lists(lists: object, where: Where) -> None:
    """Refuse lists that are empty, or that contain an entry twice or of another kind."""
    if not isinstance(lists, Mapping):
        raise InvalidInput(f"{where('lists')}: lists are entries by name, got {shorten(lists)}.")
    for name, entries in lists.items():
        place = where(f"lists.{name}")
        if not isinstance(entries, list | tuple) or not entries:
            raise InvalidInput(
                f"{place}: the list {name!r} should be a list of texts, got {shorten(entries)}."
            )
        _check_kinds(entries, f"{place}: the list {name!r}")
        seen: set[object] = set()
        for entry in entries:
            key = entry if isinstance(entry, str) else tuple(sorted(entry.items()))
            if key in seen:
                raise InvalidInput(f"{place}: the list {name!r} holds {shorten(entry)} twice.")
            seen.add(key)


def _check_slots(slots: object, where: Where) -> None:
    """Refuse slots whose list is not given by name."""
    if not isinstance(slots, Mapping):
        raise InvalidInput(f"{where('slots')}: slots are lists by name, got {shorten(slots)}.")
    for slot, name in slots.items():
        if not isinstance(name, str):
            raise InvalidInput(
                f"{where(f'slots.{slot}')}: the slot {slot!r} should name a list, got "
                f"{shorten(name)}."
            )


def _check_kinds(entries: Sequence[Any], name: str) -> None:
    """Refuse entries that are neither all texts nor all records with the same fields."""
    first = entries[0]
    for entry in entries:
        is_record = isinstance(entry, Mapping) and bool(entry)
        texts: list[Any] = list(entry.values()) if is_record else [entry]
        if not all(isinstance(text, str) for text in texts):
            raise InvalidInput(f"{name} holds {shorten(entry)}, which is not a text.")
        fields, wanted = (set(e) if isinstance(e, Mapping) else None for e in (entry, first))
        if fields != wanted:
            raise InvalidInput(
                f"{name} holds {shorten(first)} and {shorten(entry)}: its entries should all be "
                "texts, or records with the same fields."
            )


def variants_of(fields: Mapping[str, Any], where: Where) -> tuple[Mapping[str, Pieces], ...]:
    """The pieces of each field in each variant.

    Args:
        fields: each field: a text, or one text per variant; ``None`` if not given.
        where: returns the place of a field, for messages.

    Raises:
        InvalidInput: a field is not a text, there is not one per variant, or a text has unmatched
            braces.
    """
    texts = {
        name: texts_of_field(name, value, where)
        for name, value in fields.items()
        if value is not None
    }
    n = len(texts["text"])
    for name, several in texts.items():
        if len(several) not in (1, n):
            raise InvalidInput(
                f"{where(name)}: {name} has {len(several)} texts, but text has {n}; give one, or "
                "as many."
            )
    pieces = {name: [_pieces(t, where(name)) for t in several] for name, several in texts.items()}
    return tuple(
        {name: several[variant % len(several)] for name, several in pieces.items()}
        for variant in range(n)
    )


def texts_of_field(name: str, value: object, where: Where) -> Sequence[str]:
    """The texts of a field: one, or several.

    Raises:
        InvalidInput: it is not a text or a list of texts.
    """
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list | tuple) or not several:
        raise InvalidInput(f"{where(name)}: {name} should be a text, got {shorten(value)}.")
    for text in several:
        if not isinstance(text, str):
            raise InvalidInput(f"{where(name)}: {name} should be a text, got {shorten(text)}.")
    return several


def _pieces(text: str, place: str) -> Pieces:
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise InvalidInput(
            f"{place}: {error} in {shorten(text)}. A slot is written {{name}}; for a literal brace "
            "write {{ or }}."
        ) from error
    return tuple(_piece(*part, place) for part in parsed)


def _piece(
    literal: str, slot: str | None, style: str | None, conversion: str | None, place: str
) -> Piece:
    if slot is None:
        return Piece(literal, None, None)
    name, dot, field = slot.partition(".")
    names = [name, field] if dot else [name]
    if style or conversion or not all(part.isidentifier() for part in names):
        raise InvalidInput(
            f"{place}: {{{slot[:MAX_ENTRY]}…}} is not a slot. A slot is written {{name}}, or "
            "{name.field} if entries are records; for a literal brace write {{ or }}."
        )
    return Piece(literal, name, field if dot else None)


def lists_of_slots(
    variants: Sequence[Mapping[str, Pieces]],
    lists: Mapping[str, Sequence[Entry]],
    slots: Mapping[str, str],
    where: Where,
) -> Mapping[str, tuple[str, ...]]:
    """The slots of each list, in the order in which they occur in the texts.

    Raises:
        InvalidInput: a slot has no list; a list has fewer entries than slots; a list or a slot is
            not used; or a slot has a field that the entries do not have.
    """
    used: dict[str, dict[str, None]] = {}
    for variant in variants:
        for key, pieces in variant.items():
            for piece in pieces:
                if piece.slot is not None:
                    name = _list_of(piece.slot, key, lists, slots, where)
                    _check_field(piece, lists[name][0], where(key))
                    used.setdefault(name, {})[piece.slot] = None
    _check_all_used(used, lists, slots, where)
    for name, names in used.items():
        if len(names) > len(lists[name]):
            raise InvalidInput(
                f"{where(f'lists.{name}')}: the slots {', '.join(names)} draw different entries "
                f"from the list {name!r}, which has only {len(lists[name])}; add some."
            )
    return {name: tuple(names) for name, names in used.items()}


def _list_of(
    slot: str, key: str, lists: Mapping[str, Any], slots: Mapping[str, str], where: Where
) -> str:
    name = slots.get(slot, slot)
    if name in lists:
        return name
    if slot in slots:
        raise InvalidInput(
            f"{where(f'slots.{slot}')}: the slot {slot!r} is filled from {shorten(name)}, which is "
            f"not a list.{nearest(str(name), lists)}"
        )
    raise InvalidInput(
        f"{where(key)}: {key} has the slot {{{slot}}}, but there is no list {slot!r}."
        f"{nearest(slot, [*lists, *slots])} Add the list, or name its list in slots."
    )


def _check_field(piece: Piece, entry: Entry, place: str) -> None:
    written = piece.slot if piece.field is None else f"{piece.slot}.{piece.field}"
    if isinstance(entry, str):
        if piece.field is not None:
            raise InvalidInput(
                f"{place}: {{{written}}} asks for a field, but the entries of {piece.slot!r} are "
                f"texts; write {{{piece.slot}}}."
            )
    elif piece.field not in entry:
        listed = ", ".join(f"{{{piece.slot}.{name}}}" for name in entry)
        raise InvalidInput(f"{place}: {{{written}}} is not a field of its entries; write {listed}.")


def _check_all_used(
    used: Mapping[str, Iterable[str]],
    lists: Mapping[str, object],
    slots: Mapping[str, str],
    where: Where,
) -> None:
    used_slots = {slot for list_slots in used.values() for slot in list_slots}
    for key, names, read in (("lists", lists, set(used)), ("slots", slots, used_slots)):
        for name in names:
            if name not in read:
                raise InvalidInput(
                    f"{where(f'{key}.{name}')}: no text has a slot for {key}.{name}."
                    f"{nearest(name, read)} Use it or leave it out."
                )
