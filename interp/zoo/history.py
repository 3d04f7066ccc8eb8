"""How did a bundled model come to be? The loss of each step, and what was measured on the way.

The steps at which weights were kept can be loaded: ``interp.load("python-2l@400")``.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from interp.errors import ModelLoadError
from interp.files import write_text_whole

FILE = "history.json"


@dataclass
class History:
    """What happened in a training so far.

    Attributes:
        losses: of each step's batch, in nats, before the weights learned from it.
        measured: by the number of steps done: figures by what they are.
        checkpoints: after how many steps weights were kept.
        seconds: how long it has taken.
        hardware: on what, one after the other.
    """

    losses: list[float] = field(default_factory=list[float])
    measured: dict[int, dict[str, float]] = field(default_factory=dict[int, dict[str, float]])
    checkpoints: list[int] = field(default_factory=list[int])
    seconds: float = 0.0
    hardware: list[str] = field(default_factory=list[str])

    def add(self, step: int, figures: dict[str, float]) -> None:
        """Note what was measured after ``step`` steps."""
        if figures:
            self.measured[step] = figures

    def goes_on_with(self, hardware: str) -> "History":
        """Note what it is trained on from here."""
        if self.hardware[-1:] != [hardware]:
            self.hardware.append(hardware)
        return self

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """Steps, and one figure after each of them."""
        found = {step: at[name] for step, at in self.measured.items() if name in at}
        return list(found), list(found.values())

    def to_json(self) -> str:
        """JSON text; :meth:`from_json` reads it back."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "History":
        """The inverse of :meth:`to_json`."""
        fields = json.loads(text)
        measured = {int(step): figures for step, figures in fields.pop("measured").items()}
        return cls(measured=measured, **fields)

    def write(self, folder: Path) -> None:
        """Write ``history.json`` into a model's folder."""
        write_text_whole(folder / FILE, self.to_json())


def read_history(folder: Path) -> History:
    """The history in a model's folder.

    Raises:
        ModelLoadError: there is none, or it is damaged.
    """
    if not (folder / FILE).exists():
        raise ModelLoadError(f"{folder} holds no {FILE}: the model was not trained by a recipe.")
    try:
        return History.from_json((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelLoadError(f"{folder / FILE} can't be read: {error}.") from error
