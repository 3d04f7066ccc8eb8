"""The state of the explorer as one value, from which address, links and questions are made.

A view is read from an address without a model, and then checked against the model that it names
(:mod:`apps.explorer.validate`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from interp.errors import nearest, shorten

PAGES = ("prompt", "heads", "why", "graph", "patch", "weights", "corpus", "report", "story")
ANSWERED = ("", "right", "wrong")
"""Filters of the prompt set that sweeps run over: all, answered right, answered wrong."""
COLOURS = ("surprisal", "change")
"""Values by which the tokens of the prompt can be coloured."""
MAX_STRENGTH, MAX_NEW_TOKENS, MAX_SAMPLES, MAX_TEMPERATURE = 1000.0, 64, 10, 10.0
"""Limits of a continuation."""
MAX_TEXT = 2000
"""Largest number of characters of a text that is written to the address."""
OMITTED = "omitted"
"""The parameter of an address that leaves out the prompt, or the pasted texts."""
LEFT_OUT = {
    "text": "This link holds no prompt, since that had more than {most:,} characters; another "
    "prompt is shown.",
    "pasted": "This link holds no pasted texts, since they had more than {most:,} characters; "
    "paste them again.",
}
"""The notes on what an address leaves out."""
MAX_TEXTS, MAX_OFFSETS = 10_000, 64
"""Limits of a scan of a corpus."""
REQUEST = re.compile(r"[0-9a-f]{12}")
HEAD = re.compile(r"L(\d{1,4})H(\d{1,4})")
COMPONENT = re.compile(r"[\w.]{1,40}", re.ASCII)
TRACED = re.compile(r"[\w.]{1,40}@\d{1,6}(?: → [\w.]{1,40}@\d{1,6})?", re.ASCII)
NODE = re.compile(r"[^\x00-\x1f]{1,200}")
GROUP_NAME = re.compile(r"[\w -]{1,30}")
"""The name of a group of units of a graph."""
UNIT_NAME = re.compile(r"L\d{1,4}(?:[NFH]\d{1,8}|MLP)@\d{1,6}")
"""The name of a unit of a graph: a neuron, a feature, a head or an MLP at a position."""
UNITS = (
    *("heads and MLPs", "neurons", "heads", "heads and neurons"),
    *("features", "heads and features"),
)
"""What the units of a graph may be."""
GROUP = re.compile(rf"{GROUP_NAME.pattern}={UNIT_NAME.pattern}(\+{UNIT_NAME.pattern})*")
MAX_FACTOR = 10.0
"""Largest factor by which units are scaled."""
TERM = re.compile(r"[\w. ]{1,60} × [\w. ]{1,60}", re.ASCII)
ATTENTIONS = ("", "decoder", "cross", "encoder")
"""The attentions of an encoder–decoder; all of them are ``""`` in a model with one stack."""
CONTRASTS = 10
"""Number of steps of the contrast of the map."""
DIRECTIONS = ("denoise", "noise")
"""Directions of patching: clean activations into the corrupted run, or the reverse."""


class Head(NamedTuple):
    """A head, by its layer and its index there; written ``L3H1``."""

    layer: int
    head: int

    def __str__(self) -> str:
        """Its name."""
        return f"L{self.layer}H{self.head}"

    @classmethod
    def of(cls, name: str) -> "Head | None":
        """The head of a name; ``None`` if the name is not that of a head."""
        match = HEAD.fullmatch(name)
        return cls(int(match[1]), int(match[2])) if match else None


def heads_in(text: str) -> list[Head]:
    """The heads that a text mentions, in order."""
    return [Head(int(layer), int(head)) for layer, head in HEAD.findall(text)]


@dataclass(frozen=True)
class View:
    """Everything that is chosen on the pages.

    Attributes:
        page: one of :data:`PAGES`.
        model: the name of the model, as it is offered.
        text: the prompt; in an encoder–decoder, the source text.
        target: the correct answer; ``""`` for none.
        distractor: the token that the target is compared with; ``""`` for none.
        corrupt: the corrupted prompt of a minimal pair; ``""`` for none.
        prefix: the input of the decoder of an encoder–decoder.
        prompts: the prompt set that sweeps run over; ``""`` for this prompt alone.
        answered: filter of that set: prompts answered ``right`` or ``wrong``; ``""`` for all.
        chat: whether the prompt is sent as the user's message through the model's chat template.
        hidden: the prompt before tokens were masked; ``""`` if none were masked here.
        position: the position at which predictions are read; ``None`` for that of the answer.
        head: the chosen head.
        heads: the collected heads.
        query: the chosen query.
        key: the chosen key.
        other_key: the key whose score is subtracted from that of the key; ``None`` for the mean of
            all other keys.
        term: the chosen term of the score, such as ``embed × L0 heads``; ``""`` for none.
        attention: in an encoder–decoder, ``encoder``, ``decoder`` or ``cross``.
        score: the score that the map of heads shows.
        method: the method of ablation, which determines what replaces z of a head.
        metric: the metric of ablations, by its name on the command line.
        contrast: the contrast of the map, in steps.
        component: the component whose upstream components are shown: a head, an MLP, an embedding;
            ``""`` for none.
        trail: the components that were chosen one after another, from the logits upstream.
        traced: the chosen node or edge of the paths, such as ``L1H0@5``; ``""`` for none.
        at: the point that is patched.
        direction: the direction of patching: ``denoise`` or ``noise``.
        edges: the number of edges of the circuit that are drawn.
        ablated: whether predictions are also made with the collected heads ablated.
        asked: names of the long analyses that were requested.
        weights: the section of the page Weights.
        kind: the kind of composition: Q, K or V.
        colour: the colour of the prompt's tokens: ``surprisal``, or its ``change`` by the ablation.
        new_tokens: the number of tokens by which the prompt is continued.
        temperature: the temperature at which continuations without edits are sampled; at 0 there
            is one, of the most probable tokens.
        samples: the number of continuations without edits.
        positive: text towards which a continuation is steered; ``""`` for no steering.
        negative: text away from which it is steered.
        layer: the layer at which the steering vector is added; ``None`` for the last.
        strength: the factor of the steering vector.
        report: the chosen report, of those given on the command line; ``""`` for the first.
        token: the token whose OV and QK circuits are shown; ``""`` for those with the largest
            numbers.
        corpus: the texts of the page Corpus: a prompt set, ``all sets`` or ``pasted``; ``""`` for
            the first that the model has.
        pasted: pasted texts, one per line.
        most: the number of texts that are read at most.
        offsets: the number of positions before the query at which attention is measured.
        effects: whether the effects of ablating each head are measured on the texts.
        down: what heads are ranked by and placed by from top to bottom; ``""`` for the first.
        across: what they are placed by from left to right; ``""`` for the second.
        scanned: the name of the scan that was requested, of which an estimate was shown.
        units: what the nodes of a graph are: one of :data:`UNITS`.
        share: the share of the units' influence that stays when a graph is pruned.
        node: the chosen node, group or edge of the graph; ``""`` for none.
        group: the name of the group that a unit joins.
        groups: groups of units that are drawn as one node: ``name=L1N5@3+L1N6@3``.
        factor: what the activations of the chosen units are multiplied by.
        subtract: whether the differences from the pinned view are shown, in place of both.
        pinned: the view that this view is compared with.
    """

    page: str = "heads"
    model: str = ""
    text: str = ""
    target: str = ""
    distractor: str = ""
    corrupt: str = ""
    prefix: str = ""
    prompts: str = ""
    answered: str = ""
    chat: bool = False
    hidden: str = ""
    position: int | None = None
    head: Head | None = None
    heads: tuple[Head, ...] = ()
    query: int | None = None
    key: int | None = None
    other_key: int | None = None
    term: str = ""
    attention: str = ""
    score: str = ""
    method: str = "mean"
    metric: str = ""
    contrast: int = 0
    component: str = ""
    trail: tuple[str, ...] = ()
    traced: str = ""
    at: str = "resid_pre"
    direction: str = "denoise"
    edges: int = 30
    ablated: bool = False
    asked: tuple[str, ...] = ()
    weights: str = "head"
    kind: str = "K"
    colour: str = "surprisal"
    new_tokens: int = 12
    temperature: float = 1.0
    samples: int = 3
    positive: str = ""
    negative: str = ""
    layer: int | None = None
    strength: float = 1.0
    report: str = ""
    token: str = ""
    corpus: str = ""
    pasted: str = ""
    most: int = 200
    offsets: int = 4
    effects: bool = False
    down: str = ""
    across: str = ""
    scanned: str = ""
    units: str = UNITS[0]
    share: float = 0.8
    node: str = ""
    group: str = "group"
    groups: tuple[str, ...] = ()
    factor: float = 0.0
    subtract: bool = False
    pinned: "View | None" = None

    @property
    def edit(self) -> str:
        """What is ablated in this state, in words; ``""`` for the plain model."""
        if not (self.ablated and self.heads):
            return ""
        return f"{', '.join(map(str, self.heads))} ablated ({self.method})"

    @property
    def fits_address(self) -> bool:
        """Whether no text of the prompt is longer than :data:`MAX_TEXT`."""
        texts = (self.text, self.corrupt, self.prefix, self.hidden)
        return all(len(text) <= MAX_TEXT for text in texts)

    def to_address(self) -> dict[str, str]:
        """The query parameters of an address: all fields that differ from their defaults.

        A prompt that does not fit is left out, with everything that refers to it, and so are pasted
        texts; a field of the address marks this.
        """
        if not self.fits_address:
            return View(page=self.page, model=self.model).to_address() | {OMITTED: "text"}
        if len(self.pasted) > MAX_TEXT:
            return replace(self, pasted="", scanned="").to_address() | {OMITTED: "pasted"}
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: _to_text(value)
            for name, value in values.items()
            if name == "page" or value != getattr(DEFAULT, name)
        }


def from_address(address: Mapping[str, str]) -> tuple[View, tuple[str, ...]]:
    """The view that an address describes, and a note on each parameter that can't be read."""
    view, notes = DEFAULT, list[str]()
    for name, text in address.items():
        read = READERS.get(name)
        if name == OMITTED:
            notes.append(LEFT_OUT.get(text, LEFT_OUT["text"]).format(most=MAX_TEXT))
        elif name == "pinned":
            pinned, more = _pinned(text)
            view, notes = replace(view, pinned=pinned), [*notes, *more]
        elif read is None:
            notes.append(
                f"{shorten(name)} in this link is no field of a view.{nearest(name, READERS)}"
            )
        elif (value := read(text)) is None:
            notes.append(f"{shorten(name)}={shorten(text)} in this link can't be read.")
        else:
            view = replace(view, **{name: value})
    return view, tuple(notes)


# ---- how each field is written and read ------------------------------------------------------


def _to_text(value: object) -> str:
    if isinstance(value, View):
        return urlencode(replace(value, pinned=None).to_address())
    if isinstance(value, tuple) and not isinstance(value, Head):
        return ",".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return str(value)


def _text(text: str) -> str | None:
    return text if len(text) <= MAX_TEXT else None


def _index(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 6 else None  # noqa: PLR2004


def _heads(text: str) -> tuple[Head, ...] | None:
    heads = [Head.of(name) for name in text.split(",")]
    valid = tuple(head for head in heads if head is not None)
    return valid if len(valid) == len(heads) else None


def _page(text: str) -> str | None:
    return text if text in PAGES else None


def _component(text: str) -> str | None:
    return text if COMPONENT.fullmatch(text) else None


def _traced(text: str) -> str | None:
    return text if TRACED.fullmatch(text) else None


def _term(text: str) -> str | None:
    return text if TERM.fullmatch(text) else None


def _node(text: str) -> str | None:
    return text if NODE.fullmatch(text) else None


def _groups(text: str) -> tuple[str, ...] | None:
    groups = tuple(text.split(","))
    names = {group.partition("=")[0] for group in groups}
    valid = all(map(GROUP.fullmatch, groups)) and len(names) == len(groups)
    return groups if valid and len(text) <= MAX_TEXT else None


def _trail(text: str) -> tuple[str, ...] | None:
    names = tuple(text.split(","))
    return names if all(map(COMPONENT.fullmatch, names)) else None


def _direction(text: str) -> str | None:
    return text if text in DIRECTIONS else None


def _count(text: str) -> int | None:
    count = _index(text)
    return count if count and count > 0 else None


def _number_from(low: float, high: float) -> Callable[[str], float | None]:
    def read(text: str) -> float | None:
        try:
            number = float(text)
        except ValueError:
            return None
        return number if low <= number <= high else None

    return read


def _count_to(high: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        number = _index(text)
        return number if number is not None and 1 <= number <= high else None

    return read


def _one_of(*values: str) -> Callable[[str], str | None]:
    return lambda text: text if text in values else None


def _contrast(text: str) -> int | None:
    steps = _index(text)
    return steps if steps is not None and 0 <= steps <= CONTRASTS else None


def _flag(text: str) -> bool | None:
    return {"True": True, "False": False}.get(text)


def _names(text: str) -> tuple[str, ...] | None:
    names = tuple(text.split(","))
    return names if all(name.isidentifier() and len(name) < 32 for name in names) else None  # noqa: PLR2004


def _pinned(text: str) -> tuple[View | None, list[str]]:
    """The pinned view of an address, and notes on why it is left out if it is."""
    address = {name: value for name, value in parse_qsl(text) if name != "pinned"}
    if len(text) > 4 * MAX_TEXT or not address:
        return None, [f"'pinned'={shorten(text)} in this link can't be read."]
    view, notes = from_address(address)
    left_out = [f"pinned: it is left out. {note}" for note in notes]
    return None if notes else view, left_out


DEFAULT = View()
READERS: dict[str, Callable[[str], Any]] = {
    **{field.name: _text for field in fields(View)},
    **dict.fromkeys(("position", "query", "key", "other_key", "layer"), _index),
    "contrast": _contrast,
    "answered": _one_of(*ANSWERED),
    "colour": _one_of(*COLOURS),
    "new_tokens": _count_to(MAX_NEW_TOKENS),
    "samples": _count_to(MAX_SAMPLES),
    "most": _count_to(MAX_TEXTS),
    "offsets": _count_to(MAX_OFFSETS),
    "effects": _flag,
    "scanned": lambda text: text if REQUEST.fullmatch(text) else None,
    "temperature": _number_from(0.0, MAX_TEMPERATURE),
    "share": _number_from(0.01, 1.0),
    "factor": _number_from(-MAX_FACTOR, MAX_FACTOR),
    "units": _one_of(*UNITS),
    "node": _node,
    "group": lambda text: text if GROUP_NAME.fullmatch(text) else None,
    "groups": _groups,
    "strength": _number_from(-MAX_STRENGTH, MAX_STRENGTH),
    "page": _page,
    "head": Head.of,
    "heads": _heads,
    "component": _component,
    "trail": _trail,
    "traced": _traced,
    "term": _term,
    "at": _component,
    "direction": _direction,
    "edges": _count,
    "ablated": _flag,
    "chat": _flag,
    "subtract": _flag,
    "asked": _names,
}
