"""A story: saved views with a sentence each, and its JSON file.

A file may come from anyone: each part that can't be read is named and left out, and the links in it
are checked like those of an address.
"""

import json
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from apps.explorer.view import DEFAULT, MAX_TEXT, View, from_address
from interp.errors import InterpError, InvalidInput, reason, shorten
from interp.io import as_object, parse_json, value_of, without_version

MAX_VIEWS = 20
MAX_SENTENCE, MAX_TITLE = 2000, 200
"""Largest numbers of characters of a sentence and of the title."""
MAX_CHARACTERS = 2**18
"""Largest number of characters of a file."""
FORMAT, VERSION = "interp story", 1
FIELDS = ("link", "sentence")
"""The fields of a view in the file."""


@dataclass(frozen=True)
class Saved:
    """A view of a story, with the sentence below which it is shown."""

    view: View
    sentence: str = ""

    @property
    def link(self) -> str:
        """The query of the address of the view."""
        return f"?{urlencode(self.view.to_address())}"


@dataclass(frozen=True)
class Story:
    """A title and some views, in their order."""

    title: str = ""
    views: tuple[Saved, ...] = ()

    def with_view(self, view: View, sentence: str) -> "Story":
        """The story with one more view at its end.

        Raises:
            InvalidInput: the story is full, or a prompt is too long for a link.
        """
        if len(self.views) >= MAX_VIEWS:
            raise InvalidInput(f"A story has up to {MAX_VIEWS} views; remove one to add another.")
        pinned = view.pinned or DEFAULT
        if not (view.fits_address and pinned.fits_address):
            raise InvalidInput(
                f"A story saves views as links, which hold prompts of up to {MAX_TEXT:,} "
                "characters; shorten the prompt to add this view."
            )
        saved = Saved(view, sentence[:MAX_SENTENCE])
        return replace(self, views=(*self.views, saved))

    def with_sentence(self, n: int, sentence: str) -> "Story":
        """The story with another sentence for a view."""
        changed = replace(self.views[n], sentence=sentence[:MAX_SENTENCE])
        return replace(self, views=(*self.views[:n], changed, *self.views[n + 1 :]))

    def moved(self, n: int, by: int) -> "Story":
        """The story with a view a number of places later, at most at one of the ends."""
        rest = [*self.views[:n], *self.views[n + 1 :]]
        rest.insert(min(max(n + by, 0), len(rest)), self.views[n])
        return replace(self, views=tuple(rest))

    def without(self, n: int) -> "Story":
        """The story without a view."""
        return replace(self, views=(*self.views[:n], *self.views[n + 1 :]))

    def to_json(self) -> str:
        """The text of the file of the story."""
        views = [{"link": saved.link, "sentence": saved.sentence} for saved in self.views]
        content = {"format": FORMAT, "version": VERSION, "title": self.title, "views": views}
        return json.dumps(content, indent=1)


def read_story(text: str) -> tuple[Story, tuple[str, ...]]:
    """The story of a file, and a note on each part of it that was left out.

    Raises:
        InvalidInput: it is not the file of a story.
    """
    if len(text) > MAX_CHARACTERS:
        raise InvalidInput(
            f"This file has {len(text):,} characters; that of a story has up to {MAX_CHARACTERS:,}."
        )
    try:
        content = without_version(parse_json(text), VERSION, "story")
    except (ValueError, InterpError) as error:
        raise InvalidInput(f"This file can't be read as a story: {reason(error)}.") from error
    if content.pop("format", None) != FORMAT:
        raise InvalidInput(f'This is not the file of a story: its format is not "{FORMAT}".')
    notes = [
        f"{shorten(name)} in this file is no field of a story."
        for name in content
        if name not in ("title", "views")
    ]
    title = _text(content.get("title", ""), "title", MAX_TITLE, notes)
    views = content.get("views", [])
    if not isinstance(views, list):
        notes.append(f"views should be a list, got {shorten(views)}.")
        views = list[Any]()
    if len(views) > MAX_VIEWS:
        notes.append(f"views: the first {MAX_VIEWS} of {len(views)} are read.")
    saved = [_saved(each, f"views[{n}]", notes) for n, each in enumerate(views[:MAX_VIEWS])]
    return Story(title, tuple(each for each in saved if each is not None)), tuple(notes)


def _saved(values: object, path: str, notes: list[str]) -> Saved | None:
    """A view of a file; ``None`` if there is no link to it."""
    try:
        fields = as_object(values, path)
        link = value_of(str, fields.get("link"), f"{path}.link")
    except InterpError as error:
        notes.append(f"{reason(error)}; this view is left out.")
        return None
    notes += [
        f"{path}.{shorten(name)} is no field of a view." for name in fields if name not in FIELDS
    ]
    sentence = _text(fields.get("sentence", ""), f"{path}.sentence", MAX_SENTENCE, notes)
    address = dict(parse_qsl(link.removeprefix("?"), keep_blank_values=True))
    view, of_link = from_address(address)
    notes += [f"{path}.link: {note}" for note in of_link]
    if view.page == "story":
        notes.append(f"{path}.link: a story has no view of a story; this view is left out.")
        return None
    return Saved(view, sentence)


def _text(value: object, path: str, most: int, notes: list[str]) -> str:
    """A text of a file; empty if it is none, and cut if it is too long."""
    if not isinstance(value, str):
        notes.append(f"{path} should be text, got {shorten(value)}.")
        return ""
    if len(value) > most:
        notes.append(f"{path} has {len(value):,} characters; its first {most:,} are kept.")
    return value[:most]
