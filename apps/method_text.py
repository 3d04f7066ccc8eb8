"""The docstring of an analysis's module as text to be read: its question, equations and limits."""

import re
import sys
from dataclasses import dataclass
from textwrap import dedent

from analyses.result import Result


@dataclass(frozen=True)
class Paragraph:
    """A paragraph.

    Attributes:
        text: lines of an equation; else one line, with the marks of Markdown.
        is_equation: whether its lines stand as they are.
    """

    text: str
    is_equation: bool

    @property
    def plain(self) -> str:
        """The text without marks."""
        return self.text if self.is_equation else re.sub(r"`|(?<!\w)\*|\*(?!\w)", "", self.text)


def method_text(result: Result | type[Result]) -> str:
    """The docstring of the module that the result comes from."""
    kind = result if isinstance(result, type) else type(result)
    return (sys.modules[kind.__module__].__doc__ or f"{kind.__name__}?").strip()


def question(text: str) -> str:
    """The question that an analysis answers: how its docstring begins."""
    return f"{text.split('?', maxsplit=1)[0]}?".replace("\n", " ")


def paragraphs(text: str) -> list[Paragraph]:
    """What follows the question; what is indented are equations."""
    after = text.split("?", 1)[-1].strip()
    return [_paragraph(one) for one in re.split(r"\n\s*\n", after) if one.strip()]


def _paragraph(lines: str) -> Paragraph:
    if lines.startswith(" "):
        return Paragraph(dedent(lines), is_equation=True)
    text = " ".join(lines.split())
    return Paragraph(re.sub(r":\w+:`([^`]+)`", r"`\1`", text).replace("``", "`"), is_equation=False)
