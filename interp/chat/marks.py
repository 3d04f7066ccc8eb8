r"""Renders messages, and finds which characters of the text are whose.

A template may trim a content, move it, repeat it or leave it out, and may itself write the same
words. So the messages are rendered a second time, with a character of a private-use area before and
after each content:

    plain     <|user|>\n Hi <|end|>          content " Hi "
    marked    <|user|>\n ⟨Hi⟩ <|end|>        the marks stand inside of white space, which may go

If the marked text without marks is the plain one, and what is between two marks is the content,
then what is between them is the message's. White space at an end of a content is the message's if
a mark outside of it does not change the text either, which it would if it were trimmed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from interp.chat.environment import RefusedByTemplate, render
from interp.chat.messages import Message
from interp.errors import InvalidInput, shorten

PRIVATE = range(0xF0000, 0xFFFFE)
"""Characters without a meaning (Supplementary Private Use Area A)."""
PROBES = {
    "system": ("system", "user"),
    "developer": ("developer", "user"),
    "user": ("user",),
    "assistant": ("user", "assistant"),
    "tool": ("user", "assistant", "tool"),
}
"""For each role, chats that end or begin with it, to find whether a template takes it."""


_Ends = tuple[int, int]
"""The start and the end of what is between two marks, in a content."""
_Side = tuple[int, bool]
"""The index of a message, and whether the end of its content is meant, not the start."""
MAX_TRIES = 200
"""Maximum number of renderings to find white space that is not trimmed."""


class Span(NamedTuple):
    """Characters of a rendered text that are those of a message.

    Attributes:
        start: the first of them.
        end: the one after the last.
        message: the index of the message.
    """

    start: int
    end: int
    message: int


@dataclass(frozen=True)
class RenderedChat:
    """Messages as a text.

    Attributes:
        text: the text.
        spans: the parts of it that are contents of messages, in their order.
        problem: why they are not known; ``""`` if they are.
    """

    text: str
    spans: tuple[Span, ...] = ()
    problem: str = ""


class _UnmarkedError(Exception):
    """Characters can't be attributed to messages."""


def render_chat(
    template: str,
    messages: Sequence[Message],
    variables: Mapping[str, Any],
    *,
    continues: bool = False,
) -> RenderedChat:
    """Render messages, and find the contents in the text.

    Args:
        template: a template of Jinja.
        messages: the messages.
        variables: JSON values that the template may read beside the messages.
        continues: whether the text ends with the content of the last message, without what the
            template writes after it.

    Raises:
        InvalidInput: the template refuses the messages, fails, or leaves a message out; or
            the text should end with the last message, whose end is not known.
    """
    chat = _Chat(template, tuple(messages), variables, datetime.now())
    plain = chat.render([message.content for message in messages])
    try:
        spans = chat.spans(plain)
    except _UnmarkedError as error:
        if continues:
            raise InvalidInput(
                f"The text can't end with the last message, since its end is not known: {error}."
            ) from error
        return RenderedChat(plain, problem=str(error))
    if not continues:
        return RenderedChat(plain, spans)
    last = [span for span in spans if span.message == len(messages) - 1]
    if not last:
        raise InvalidInput("The text can't end with the last message, which is empty.")
    end = last[-1].end
    return RenderedChat(plain[:end], tuple(span for span in spans if span.end <= end))


@dataclass(frozen=True)
class _Chat:
    """Messages, and how they are rendered."""

    template: str
    messages: tuple[Message, ...]
    variables: Mapping[str, Any]
    now: datetime

    def render(self, contents: Sequence[str]) -> str:
        """The text with these contents in place of those of the messages."""
        pairs = zip(self.messages, contents, strict=True)
        chat = [{"role": message.role, "content": content} for message, content in pairs]
        try:
            return render(self.template, {**self.variables, "messages": chat}, self.now)
        except RefusedByTemplate as error:
            roles = ", ".join(self.roles_taken()) or "none"
            raise InvalidInput(f"{error} The roles that it takes: {roles}.") from error

    def roles_taken(self) -> list[str]:
        """The roles that the template takes, of those in :data:`PROBES`."""
        roles = list[str]()
        for role, chat in PROBES.items():
            contents = [f"content {number}" for number in range(len(chat))]
            listed = [
                {"role": each, "content": content}
                for each, content in zip(chat, contents, strict=True)
            ]
            try:
                text = render(self.template, {**self.variables, "messages": listed}, self.now)
            except InvalidInput:
                continue
            if contents[chat.index(role)] in text:
                roles.append(role)
        return roles

    def spans(self, plain: str) -> tuple[Span, ...]:
        """The contents in the plain text.

        Raises:
            _UnmarkedError: they are not known.
            InvalidInput: a message is left out.
        """
        marks = self._marks(plain)
        ends = [_without_white_space(message.content) for message in self.messages]
        text = self._marked(marks, ends)
        if marks.removed_from(text) != plain:
            raise _UnmarkedError(
                "the template writes another text if characters without a meaning stand beside the "
                "contents"
            )
        for number, (start, end) in enumerate(ends):
            if start < end and not any(mark in text for mark in marks.pairs[number]):
                raise InvalidInput(
                    f"The chat template leaves out messages[{number}], of the role "
                    f"{shorten(self.messages[number].role)}. The roles that it takes: "
                    f"{', '.join(self.roles_taken()) or 'none'}."
                )
        spans = marks.spans_in(text, self._between(ends))
        wider = self._wider(marks, ends, plain, self._beside(spans, ends, plain))
        if wider == ends:
            return spans
        return marks.spans_in(self._marked(marks, wider), self._between(wider))

    def _beside(self, spans: Sequence[Span], ends: Sequence[_Ends], plain: str) -> list[_Side]:
        """The sides of contents at which the text has the same white space as the content."""
        sides: dict[_Side, bool] = {}
        for start, end, number in spans:
            content, (first, last) = self.messages[number].content, ends[number]
            before, after = content[:first], content[last:]
            same = plain.endswith(before, 0, start), plain.startswith(after, end)
            for is_end, white_space in enumerate((before, after)):
                side = number, bool(is_end)
                sides[side] = bool(white_space) and same[is_end] and sides.get(side, True)
        blank = [
            (number, True)
            for number, message in enumerate(self.messages)
            if message.content and ends[number] == (0, 0)
        ]
        return [*(side for side, is_same in sides.items() if is_same), *blank]

    def _wider(
        self, marks: "_Marks", ends: list[_Ends], plain: str, sides: list[_Side]
    ) -> list[_Ends]:
        """The ends with the white space at those sides of contents at which it is not trimmed.

        All sides are tried at once; where the text changes, each half of them by itself.

        Raises:
            _UnmarkedError: too many would have to be tried.
        """
        groups, tries = [sides] if sides else [], 0
        while groups:
            group, tried = groups.pop(), [*ends]
            for number, is_end in group:
                start, end = tried[number]
                tried[number] = (start, len(self.messages[number].content)) if is_end else (0, end)
            tries += 1
            if tries > MAX_TRIES:
                raise _UnmarkedError("too many contents have white space at their ends")
            if marks.removed_from(self._marked(marks, tried)) == plain:
                ends = tried
            elif len(group) > 1:
                half = len(group) // 2
                groups += [group[half:], group[:half]]
        return ends

    def _between(self, ends: Sequence[_Ends]) -> list[str]:
        """What is between the marks of each content."""
        return [message.content[slice(*e)] for message, e in self._zip(ends)]

    def _marked(self, marks: "_Marks", ends: Sequence[_Ends]) -> str:
        """The text with marks; empty if the template does not take them."""
        contents = [
            marks.around(number, message.content, *e)
            for number, (message, e) in enumerate(self._zip(ends))
        ]
        try:
            return self.render(contents)
        except InvalidInput:
            return ""

    def _zip(self, ends: Sequence[_Ends]) -> list[tuple[Message, _Ends]]:
        return [*zip(self.messages, ends, strict=True)]

    def _marks(self, plain: str) -> "_Marks":
        """Marks of characters that occur nowhere."""
        used = {*plain, *self.template, *"".join(message.content for message in self.messages)}
        unused = (chr(code) for code in PRIVATE if chr(code) not in used)
        characters = [*islice(unused, 2 * len(self.messages))]
        if len(characters) < 2 * len(self.messages):
            raise _UnmarkedError("the contents have too many characters of a private-use area")
        return _Marks(characters)


class _Marks:
    """The marks before and after the content of each message.

    Attributes:
        pairs: the two marks of each message.
    """

    def __init__(self, characters: Sequence[str]) -> None:
        self.pairs = [*zip(characters[::2], characters[1::2], strict=True)]
        self._removal = dict.fromkeys(map(ord, characters))
        self._pattern = re.compile(f"([{''.join(characters)}])")

    def around(self, number: int, content: str, start: int, end: int) -> str:
        """The content of a message with its marks; unchanged if there is nothing between them."""
        opening, closing = self.pairs[number]
        inside = f"{opening}{content[start:end]}{closing}" if start < end else ""
        return f"{content[:start]}{inside}{content[end:]}"

    def removed_from(self, text: str) -> str:
        """The text without marks."""
        return text.translate(self._removal)

    def spans_in(self, text: str, expected: Sequence[str]) -> tuple[Span, ...]:
        """What is between marks, in the text without them.

        Args:
            text: a text with marks.
            expected: what should be between the marks of each message.

        Raises:
            _UnmarkedError: it is something else.
        """
        numbers = {pair: number for number, pair in enumerate(self.pairs)}
        parts = self._pattern.split(text)
        texts, pairs = parts[::2], [*zip(parts[1::4], parts[3::4], strict=False)]
        spans, place = list[Span](), len(texts[0])
        for pair, inside, after in zip(pairs, texts[1::2], texts[2::2], strict=False):
            number = numbers.get(pair)
            if number is None or inside != expected[number]:
                raise _UnmarkedError("the template takes a content apart")
            spans.append(Span(place, place + len(inside), number))
            place += len(inside) + len(after)
        if len(parts) != 1 + 4 * len(pairs):
            raise _UnmarkedError("the template takes a content apart")
        return tuple(spans)


def _without_white_space(content: str) -> _Ends:
    """The ends of a content without white space beside it; equal if there is nothing else."""
    start, length = len(content) - len(content.lstrip()), len(content.strip())
    return (start, start + length) if length else (0, 0)
