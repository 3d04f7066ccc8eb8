"""What should be known of a bundled model before its numbers are trusted? Its card.

The facts are measured by the recipe that made the model, and written twice: ``card.json`` for
programs and ``README.md`` for people.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from interp.errors import ModelLoadError
from interp.files import write_text_whole
from interp.zoo.circuit import Truth

FILE, README = "card.json", "README.md"


@dataclass(frozen=True)
class Card:
    """The facts about one model.

    Attributes:
        name: of the model.
        summary: one line.
        circuit: what circuit it holds, and what shows it.
        data: what it was trained on.
        recipe: how it was made; the command that makes it again.
        limits: what it can't do.
        prompts: the bundled prompt set that was written for it.
        figures: measured numbers by what they are, units included in the name.
        metric: what ablations of it measure unless told otherwise: ``loss`` or ``logit-diff``.
        truth: the circuit, if it was set and not trained.
    """

    name: str
    summary: str
    circuit: str
    data: str
    recipe: str
    limits: str
    prompts: str
    figures: dict[str, float | int | str]
    metric: str = "loss"
    truth: Truth | None = None

    def write(self, folder: Path) -> None:
        """Write ``card.json`` and ``README.md`` into the model's folder."""
        for name, text in (
            (FILE, json.dumps(asdict(self), indent=2) + "\n"),
            (README, self.to_markdown()),
        ):
            write_text_whole(folder / name, text)

    def to_markdown(self) -> str:
        """The card as a page."""
        rows = "\n".join(f"| {name} | {_shown(value)} |" for name, value in self.figures.items())
        sections = {
            "Circuit": self.circuit + ("" if self.truth is None else f"\n\n{self.truth}"),
            "Data": self.data,
            "Recipe": self.recipe,
            "Prompts": f"The bundled set `{self.prompts}`.",
            "Figures": f"| what | value |\n| --- | --- |\n{rows}",
            "Limits": self.limits,
        }
        body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())
        return f"# {self.name}\n\n{self.summary}\n\n{body}\n"


def read_card(folder: Path) -> Card:
    """The card in a model's folder.

    Raises:
        ModelLoadError: there is none, or it is damaged.
    """
    if not (folder / FILE).exists():
        raise ModelLoadError(f"{folder} holds no {FILE}: nothing is told of this model.")
    try:
        fields = json.loads((folder / FILE).read_text(encoding="utf-8"))
        truth = fields.pop("truth", None)
        return Card(**fields, truth=None if truth is None else Truth.from_dict(truth))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelLoadError(f"{folder / FILE} can't be read: {error}.") from error


def _shown(value: float | int | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
