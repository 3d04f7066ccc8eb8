"""Suggestions for a prompt that was entered alone: a distractor, and corrupted prompts.

A corrupted prompt has one word or number swapped for another of its class: a name for the other
name of the prompt, a country for another country, a singular for its plural, a number for one of as
many digits. Only prompts with as many tokens are suggested, since others can't be patched.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

import interp
from analyses import Predictions
from apps.explorer.forward_cost import is_long_forward
from apps.explorer.page import JOBS
from apps.explorer.pages.view_inputs import probable_target, single_token, target_question
from apps.explorer.validate import text_read
from apps.explorer.view import View
from interp.errors import InterpError
from interp.prompts import Template, read_template

MOST = 6
"""The most corrupted prompts that are suggested."""
OTHERS = 2
"""The most words of a class that are tried in place of one."""
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d+")
_SENTENCE_START = re.compile(r"(?:^|[.!?\n]\s*)$")


@dataclass(frozen=True)
class Swap:
    """A corrupted prompt.

    Attributes:
        text: the prompt.
        before: what was swapped, as in the clean prompt.
        after: what stands in its place.
    """

    text: str
    before: str
    after: str


def with_suggestions(view: View, model: interp.Transformer) -> View:
    """The view of a new prompt with a distractor and a corrupted prompt, where it has none.

    A prompt that takes a long forward gets no distractor: pages do not wait for it.
    """
    if len(model.stacks) > 1 or model.tokenizer is None:
        return view
    distractor, corrupt = view.distractor, view.corrupt
    if not distractor and not is_long_forward(view, model):
        distractor = suggested_distractor(view, model)
    if not corrupt:
        corrupt = next((swap.text for swap in suggested_swaps(view, model)), "")
    return replace(view, distractor=distractor, corrupt=corrupt)


def suggested_swaps(view: View, model: interp.Transformer) -> list[Swap]:
    """Corrupted prompts with as many tokens as the view's prompt, the likeliest contrast first."""
    length = None if len(model.stacks) > 1 else _length(view, model, view.text)
    if length is None:
        return []
    aligned = (
        swap
        for swap in dict.fromkeys(swaps(view.text))
        if _length(view, model, swap.text) == length
    )
    return [*islice(aligned, MOST)]


def suggested_distractor(view: View, model: interp.Transformer) -> str:
    """Another word of the prompt of the target's class, or the most probable other token.

    Empty if the model predicts no token, or none that a text has alone.
    """
    view = replace(view, position=None)
    target = view.target or probable_target(view, model)
    if not target:
        return ""
    word, names = target.strip(), {match[0] for match in _names(view.text)}
    rivals = [
        target.replace(word, other)
        for other in dict.fromkeys(_WORD.findall(view.text))
        if word and other != word and (_same_class(word, other) or {word, other} <= names)
    ]
    rivals += [text for text in _probable_texts(view, model) if text != target]
    excluded = {None, single_token(model, target)}
    return next((text for text in rivals if single_token(model, text) not in excluded), "")


def _probable_texts(view: View, model: interp.Transformer) -> list[str]:
    """The texts of the most probable tokens."""
    try:
        prediction = JOBS.run(target_question(view, model))
    except InterpError:
        return []
    if not isinstance(prediction, Predictions):
        return []
    return [str(model.to_string([token])) for token in prediction.top[0, 0].tolist()]


def _length(view: View, model: interp.Transformer, text: str) -> int | None:
    """The number of tokens that the model reads for a text; ``None`` if it can't be read."""
    try:
        return model.to_tokens(text_read(view, model, text)).shape[1]
    except InterpError:
        return None


# ---- swaps of words and numbers ----------------------------------------------------------------


def swaps(text: str) -> Iterator[Swap]:
    """The text with a word or a number swapped for another of its class.

    In order: the last mention of a name that occurs twice becomes the other name (as in indirect
    object identification, Wang et al. 2022); two names change places; a word becomes another of its
    class; a number becomes another.
    """
    names = _names(text)
    different = [*dict.fromkeys(name[0] for name in names)]
    for name in different:
        mentions = [match for match in names if match[0] == name]
        for other in different:
            if other != name and len(mentions) > 1:
                yield Swap(_with(text, mentions[-1], other), name, other)
    if len(different) == 2:  # noqa: PLR2004 - two names
        first, second = different
        exchanged = {first: second, second: first}
        yield Swap(_replaced(text, exchanged.get), f"{first}, {second}", f"{second}, {first}")
    words = dict.fromkeys(_WORD.findall(text))
    for word in words:
        others = [other for other in _others(word) if other not in words]
        for other in others[:OTHERS]:
            yield Swap(_replaced(text, {word: other}.get), word, other)
    for number in _NUMBER.finditer(text):
        other = _other_number(number[0])
        yield Swap(_with(text, number, other), number[0], other)


def _names(text: str) -> list[re.Match[str]]:
    """The mentions of names: of words of the list of names, or capitalized within a sentence."""
    names = {
        match[0]
        for match in _WORD.finditer(text)
        if match[0] in _classes()["name"]
        or (
            match[0].istitle()
            and len(match[0]) > 1
            and not _SENTENCE_START.search(text[: match.start()].rstrip(" "))
        )
    }
    return [match for match in _WORD.finditer(text) if match[0] in names]


def _with(text: str, match: re.Match[str], other: str) -> str:
    return text[: match.start()] + other + text[match.end() :]


def _replaced(text: str, other_of: Callable[[str], str | None]) -> str:
    return _WORD.sub(lambda match: other_of(match[0]) or match[0], text)


def _other_number(number: str) -> str:
    """A number of as many digits: each digit but the first one greater by 5, modulo 10.

    A number of one digit changes by 5 itself; years stay in their century.
    """
    changed = 2 if len(number) == 4 else min(1, len(number) - 1)  # noqa: PLR2004 - a year
    shifted = "".join(str((int(digit) + 5) % 10) for digit in number[changed:])
    return number[:changed] + shifted


# ---- classes of words ---------------------------------------------------------------------------


def _same_class(word: str, other: str) -> bool:
    return any(word in words and other in words for words in _classes().values())


def _others(word: str) -> list[str]:
    """Words that can stand in place of one: its other number, or others of its class."""
    if word in _numbers():
        return [_numbers()[word]]
    return [
        other for words in _classes().values() if word in words for other in words if other != word
    ]


@cache
def _classes() -> dict[str, tuple[str, ...]]:
    """Words by class, from the lists of the bundled prompts."""
    ioi, capitals = read_template("ioi"), read_template("capitals")
    return {
        "name": _texts(ioi, "name"),
        "place": _texts(ioi, "place"),
        "object": _texts(ioi, "object"),
        "country": _texts(capitals, "country", "country"),
        "capital": _texts(capitals, "country", "capital"),
    }


@cache
def _numbers() -> dict[str, str]:
    """Each noun of the bundled prompts of agreement, with its plural, and each plural."""
    nouns = read_template("agreement")
    pairs = [*zip(_texts(nouns, "noun", "singular"), _texts(nouns, "noun", "plural"), strict=True)]
    return dict(pairs) | {plural: singular for singular, plural in pairs}


def _texts(template: Template, name: str, field: str = "") -> tuple[str, ...]:
    """The entries of a list of a template, or a field of them."""
    return tuple(
        entry if isinstance(entry, str) else str(entry[field]) for entry in template.lists[name]
    )
