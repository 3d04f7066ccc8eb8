"""The docstring of an analysis's module as text for a report: question, equations and limits."""

import re
import sys
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

import analyses
from analyses import Ablation, Parts, ablate_heads
from analyses.results import Result


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a docstring.

    Attributes:
        text: the lines of an equation, or one line of Markdown.
        is_equation: whether the text is an equation, whose line breaks are kept.
    """

    text: str
    is_equation: bool

    @property
    def plain(self) -> str:
        """The text without Markdown."""
        return self.text if self.is_equation else re.sub(r"`|(?<!\w)\*|\*(?!\w)", "", self.text)


def method_text(result: Result) -> str:
    """The docstring of the module of an analysis, or of the one that has heads by layer."""
    of_heads = isinstance(result, Ablation) and result.by_layer
    kind = kind_of(result)
    module = module_of(ablate_heads if of_heads else kind)
    return (sys.modules[module].__doc__ or f"{kind.__name__}?").strip()


def kind_of(result: Result) -> type[Result]:
    """The class of a result; of one in parts that of the analysis, if it is in :mod:`analyses`."""
    if isinstance(result, Parts):
        return getattr(analyses, result.analysis, Parts)
    return type(result)


def module_of(part: Any) -> str:  # noqa: ANN401 - a function or a class
    """The module that says what an analysis answers: that of its part, or the folder around it."""
    name = part.__module__
    return ".".join(name.split(".")[:2]) if name.startswith("analyses.") else name


def question(text: str) -> str:
    """The question that an analysis answers, with which its docstring begins."""
    return f"{text.split('?', maxsplit=1)[0]}?".replace("\n", " ")


def paragraphs(text: str) -> list[Paragraph]:
    """The paragraphs after the question; indented ones are equations."""
    after = text.split("?", 1)[-1].strip()
    return [_paragraph(block) for block in re.split(r"\n\s*\n", after) if block.strip()]


def _paragraph(lines: str) -> Paragraph:
    if lines.startswith(" "):
        return Paragraph(dedent(lines), is_equation=True)
    text = " ".join(lines.split())
    return Paragraph(re.sub(r":\w+:`([^`]+)`", r"`\1`", text).replace("``", "`"), is_equation=False)
