"""Model cards: training data, measured figures, and limits of a model.

The recipe that builds the model measures the figures. A card is written twice: to ``card.json`` for
programs and to ``README.md`` for people.
"""

import json
import re
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from interp.errors import ModelLoadError, reason, shorten
from interp.io import UNREADABLE, VERSION, build, read_json, without_version, write_text_whole
from interp.prompts import bundled_prompts
from interp.zoo.circuit import Circuit

FILE, README = "card.json", "README.md"
BREAKS = re.compile(r"\n\s+(?=\d)|(?<=\d)\n\s+(?=\])")
"""Line breaks within lists of numbers, which are written on one line."""
MAX_BYTES: Final = 2**22
NEWEST: Final = 1
"""The version of ``card.json``. Older versions can be read; newer ones raise an error."""


@dataclass(frozen=True)
class Card:
    """The card of one model.

    Attributes:
        name: name of the model.
        summary: one-line summary.
        mechanism: how the model computes its output, as far as known, with the evidence.
        data: the training data.
        recipe: how the model was built, with the command that builds it again.
        limits: what the model can't do.
        prompts: name of the bundled prompt set for this model.
        figures: measured values by name; the name includes the unit.
        metric: default metric of ablations, ``loss`` or ``logit-diff``.
        circuit: the circuit, if the weights were set and not trained; otherwise ``None``.
        pairs: name of the bundled set of minimal pairs; ``""`` if there is none.
        trained_tokens: ids of the tokens that occur often enough in training to have meaningful
            weights, without special tokens; ``()`` if the card does not list them. Random prompts
            should be drawn from these.
    """

    name: str
    summary: str
    mechanism: str
    data: str
    recipe: str
    limits: str
    prompts: str
    figures: dict[str, float | int | str]
    metric: Literal["loss", "logit-diff"] = "loss"
    circuit: Circuit | None = None
    pairs: str = ""
    trained_tokens: tuple[int, ...] = ()

    def write(self, folder: Path) -> None:
        """Write ``card.json`` and ``README.md`` into the model's folder."""
        fields = json.dumps({VERSION: NEWEST, **asdict(self)}, indent=2) + "\n"
        for name, text in ((FILE, BREAKS.sub(" ", fields)), (README, self.to_markdown())):
            write_text_whole(folder / name, text)

    def to_markdown(self) -> str:
        """The card as a Markdown page."""
        rows = "\n".join(
            f"| {name} | {_format_value(value)} |" for name, value in self.figures.items()
        )
        pairs = f" Minimal pairs: `{self.pairs}`." if self.pairs else ""
        circuit = {} if self.circuit is None else {"Circuit": str(self.circuit)}
        sections = {
            "Mechanism": self.mechanism,
            **circuit,
            "Data": self.data,
            "Recipe": self.recipe,
            "Prompts": f"The bundled set `{self.prompts}`.{pairs}",
            "Figures": f"| figure | value |\n| --- | --- |\n{rows}",
            "Limits": self.limits,
        }
        body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())
        return f"# {self.name}\n\n{self.summary}\n\n{body}\n"


def read_card(folder: Path) -> Card:
    """The card in a model's folder.

    Raises:
        ModelLoadError: there is no card, it is damaged or of a newer version, or it names prompts
            that are not bundled: a model's card must not choose which files are read.
    """
    if not (folder / FILE).exists():
        raise ModelLoadError(f"{folder} holds no {FILE}: this model has no card.")
    try:
        changed = (folder / FILE).stat()
        card = _read(folder / FILE, changed.st_mtime_ns, changed.st_size)
    except UNREADABLE as error:
        raise ModelLoadError(f"{folder / FILE} can't be read: {reason(error)}") from error
    bundled = bundled_prompts()
    for name in (card.prompts, card.pairs or card.prompts):
        if name not in bundled:
            raise ModelLoadError(
                f"{folder / FILE} names the prompts {shorten(name)}; it must name a bundled set: "
                f"{', '.join(bundled)}."
            )
    return card


@lru_cache(64)
def _read(file: Path, _modified: int, _size: int) -> Card:
    """The card in a file; the explorer asks for it several times a page."""
    fields = without_version(read_json(file, MAX_BYTES), NEWEST, "card")
    return build(Card, _current_fields(fields), "card")


def _current_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a card, under their names in this version.

    In older cards, ``mechanism`` is called ``circuit``, and ``circuit`` is called ``truth``.
    """
    if not isinstance(fields.get("circuit"), str):
        return fields
    mechanism, circuit = fields.pop("circuit"), fields.pop("truth", None)
    return {**fields, "mechanism": mechanism, "circuit": circuit}


def _format_value(value: float | int | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
