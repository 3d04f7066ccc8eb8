"""Training histories: the loss of each step, and figures measured during training.

If the weights of a step were saved, ``interp.load("python-2l@400")`` loads them.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from interp.errors import ModelLoadError, reason
from interp.io import (
    UNREADABLE,
    VERSION,
    build,
    parse_json,
    read_bounded,
    without_version,
    write_text_whole,
)

FILE = "history.json"
MAX_BYTES: Final = 2**26
NEWEST: Final = 1
"""The version of the JSON form. Older versions can be read; newer ones raise an error."""


@dataclass
class History:
    """The history of a training run up to its current step.

    Attributes:
        losses: loss of each step's batch in nats, computed before the step's update.
        measured: figures by name, by the number of updates done.
        checkpoints: numbers of updates after which the weights were saved.
        seconds: wall-clock time of training.
        hardware: the processors used, in order.
    """

    losses: list[float] = field(default_factory=list[float])
    measured: dict[int, dict[str, float]] = field(default_factory=dict[int, dict[str, float]])
    checkpoints: list[int] = field(default_factory=list[int])
    seconds: float = 0.0
    hardware: list[str] = field(default_factory=list[str])

    def add(self, step: int, figures: dict[str, float]) -> None:
        """Record the figures measured after ``step`` updates, if there are any."""
        if figures:
            self.measured[step] = figures

    def add_hardware(self, hardware: str) -> "History":
        """Append a processor, unless it is already the last one, and return the history itself."""
        if self.hardware[-1:] != [hardware]:
            self.hardware.append(hardware)
        return self

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """The steps at which a figure was measured, and its values."""
        by_step = {step: at[name] for step, at in self.measured.items() if name in at}
        return list(by_step), list(by_step.values())

    def to_json(self) -> str:
        """JSON text, which :meth:`from_json` reads."""
        return json.dumps({VERSION: NEWEST, **asdict(self)}) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "History":
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: the text is not JSON, or a field is missing, unknown or of the wrong type.
        """
        fields = without_version(parse_json(text), NEWEST, "history")
        if not {"losses", "measured"}.issubset(fields):
            raise ValueError("history lacks losses or measured")
        return build(cls, fields, "history")

    def write(self, folder: Path) -> None:
        """Write ``history.json`` into a model's folder."""
        write_text_whole(folder / FILE, self.to_json())


def read_history(folder: Path) -> History:
    """The history in a model's folder.

    Raises:
        ModelLoadError: there is no history, or it is damaged.
    """
    if not (folder / FILE).exists():
        raise ModelLoadError(f"{folder} holds no {FILE}: the model was not trained by a recipe.")
    try:
        return History.from_json(read_bounded(folder / FILE, MAX_BYTES).decode())
    except UNREADABLE as error:
        raise ModelLoadError(f"{folder / FILE} can't be read: {reason(error)}") from error
