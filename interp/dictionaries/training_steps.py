"""The steps of a training on a harvest, which can be stopped and continued bit-identically."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from interp.dictionaries.trained_weights import DictionarySettings
from interp.errors import InvalidInput
from interp.harvests import Harvest
from interp.io import ProgressLike, as_progress, check_cancelled, save_tensors, write_whole
from interp.points import PlaceLike

DECAY = 0.2
"""Share of the steps, at the end, in which the learning rate falls to zero."""
CURVES = ("fvu", "l0", "n_dead")
"""What is measured at each step."""
INTEGERS = ("n_features", "k", "steps", "batch", "seed")
"""Settings that are integers."""


@runtime_checkable
class Weights(Protocol):
    """Weights in training: a module."""

    settings: DictionarySettings

    def __call__(self, *rows: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The loss of a step, and the first two of :data:`CURVES`."""
        ...

    def begin(self, *rows: Tensor) -> None:
        """Set scales and biases from the rows of the first step."""
        ...

    def normalize(self, *, gradient: bool) -> None:
        """Scale decoders to norm 1, or project their gradients."""
        ...

    def n_dead(self) -> Tensor:
        """Number of features that have not been active for a while."""
        ...

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """What is trained."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """All tensors."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> object:
        """Take the tensors of another training."""
        ...


@runtime_checkable
class Stopped(Protocol):
    """A training after some steps."""

    @property
    def settings(self) -> DictionarySettings:
        """The settings of the whole training."""
        ...

    @property
    def state(self) -> Mapping[str, Tensor]:
        """The weights in training, and the state of Adam."""
        ...

    @property
    def data(self) -> tuple[str, ...]:
        """Hash of the harvest's index, and the names of the places."""
        ...


@dataclass(frozen=True, eq=False)
class Control:
    """How a call is followed, stopped and continued.

    Attributes:
        progress: called after each step with the number of steps done and of all.
        cancelled: called after each step; if it returns True, the call ends.
        resume: what a call that was cancelled returned.
    """

    progress: ProgressLike = None
    cancelled: Callable[[], bool] | None = None
    resume: Stopped | None = None


def steps_text(settings: DictionarySettings, *curves: Tensor) -> str:
    """How far a training is, and its :data:`CURVES` at the last step, as means over layers."""
    text = f"{len(curves[0])} of {settings.steps} steps"
    if not len(curves[0]):
        return text
    fvu, l0, n_dead = (float(curve[-1].mean()) for curve in curves)
    return f"{text}, FVU {fvu:.3f}, L0 {l0:.1f}, {n_dead:.0f} of {settings.n_features} dead"


def reader_of(
    harvest: Harvest, places: Sequence[PlaceLike], settings: DictionarySettings
) -> Harvest:
    """The rows of a harvest at some places, in batches of the steps.

    Raises:
        InvalidInput: a batch would have more rows than the harvest.
        NotRecorded: the harvest has not stored the places.
    """
    reader = Harvest(
        harvest.folder, places=[*places], batch=settings.batch, seed=settings.seed, drop_last=True
    )
    if not len(reader):
        raise InvalidInput(
            f"batch={settings.batch} should be at most the {reader.n_rows} rows of the harvest."
        )
    return reader


def run_steps(
    weights: Weights,
    reader: Harvest,
    names: Sequence[str],
    data: tuple[str, ...],
    control: Control,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Run the steps that are left.

    Args:
        weights: the weights at the start of the whole training.
        reader: the rows.
        names: the places whose rows a step reads, in the order that the weights take them.
        data: hash of the harvest's index, and the names of the places.
        control: how the call is followed, stopped and continued.

    Returns:
        The curves, of all steps so far, and all that changes in training.

    Raises:
        InvalidInput: a training to be continued had other settings or other data, or the loss is
            not finite.
    """
    settings = weights.settings
    optimizer = torch.optim.Adam(weights.parameters(), lr=settings.lr)
    curves: dict[str, list[object]] = {name: [] for name in CURVES}
    if control.resume is not None:
        _restore(control.resume, weights, optimizer, data)
        curves = {name: getattr(control.resume, name).tolist() for name in CURVES}
    report = as_progress(control.progress, "training steps")
    for step, batch in _steps(reader, settings.steps, len(curves["fvu"])):
        rows = [batch[name].flatten(1).float() for name in names]
        if step == 0:
            weights.begin(*rows)
        for name, value in zip(CURVES, update(weights, optimizer, rows, step), strict=True):
            curves[name].append(value.tolist())
        check_cancelled()
        if report is not None:
            report(step + 1, settings.steps)
        if control.cancelled is not None and control.cancelled():
            break
    tensors = {name: torch.tensor(some, dtype=torch.float64) for name, some in curves.items()}
    return tensors, _state(weights, optimizer)


def _steps(reader: Harvest, steps: int, first: int) -> Iterator[tuple[int, Mapping[str, Tensor]]]:
    """The rows of each step from ``first`` on, from one epoch after another."""
    epoch, batch = divmod(first, len(reader))
    step = first
    while step < steps:
        reader.load_state_dict({"epoch": epoch, "batch": batch})
        for rows in reader:
            yield step, rows
            step += 1
            if step == steps:
                return
        epoch, batch = epoch + 1, 0


def update(
    weights: Weights, optimizer: torch.optim.Adam, rows: Sequence[Tensor], step: int
) -> list[Tensor]:
    """One step; the values of :data:`CURVES`.

    Raises:
        InvalidInput: the loss is not finite.
    """
    settings = weights.settings
    left = (settings.steps - step) / (DECAY * settings.steps)
    optimizer.param_groups[0]["lr"] = settings.lr * min(1.0, left)
    with torch.enable_grad():
        loss, measured = weights(*rows)
        if not bool(loss.isfinite()):
            raise InvalidInput(
                f"The loss of step {step + 1} is not finite; try a lower lr than {settings.lr}."
            )
        optimizer.zero_grad()
        loss.backward()
    weights.normalize(gradient=True)
    optimizer.step()
    weights.normalize(gradient=False)
    return [*measured, weights.n_dead()]


def _state(weights: Weights, optimizer: torch.optim.Adam) -> dict[str, Tensor]:
    """Everything that changes in training, as tensors by name."""
    state = {f"weights.{name}": x.detach().clone() for name, x in weights.state_dict().items()}
    for number, moments in optimizer.state_dict()["state"].items():
        state |= {f"adam.{number}.{name}": x.clone() for name, x in moments.items()}
    return state


def weights_in(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights in training among all that changes."""
    prefix = "weights."
    return {name.removeprefix(prefix): x for name, x in state.items() if name.startswith(prefix)}


def _restore(
    resume: Stopped, weights: Weights, optimizer: torch.optim.Adam, data: tuple[str, ...]
) -> None:
    """Continue where a training stopped.

    Raises:
        InvalidInput: it had other settings or other data.
    """
    settings = weights.settings
    differing = [
        f.name
        for f in fields(settings)
        if getattr(resume.settings, f.name) != getattr(settings, f.name)
    ]
    differing += [] if resume.data == data else ["data"]
    if differing:
        raise InvalidInput(
            f"resume= is of a training with other {', '.join(differing)}; give the arguments of "
            "that call."
        )
    weights.load_state_dict(weights_in(resume.state))
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in resume.state.items():
        if name.startswith("adam."):
            _, number, moment = name.split(".")
            moments.setdefault(int(number), {})[moment] = tensor.clone()
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})


def save_training(training: Stopped, model: str, path: Path) -> None:
    """Write everything that is needed to continue to a safetensors file.

    Raises:
        OutOfResources: the file can't be written.
    """
    curves = {f"curve.{name}": getattr(training, name) for name in CURVES}
    settings = {f.name: str(getattr(training.settings, f.name)) for f in fields(training.settings)}
    metadata = {**settings, "data": "\n".join(training.data), "model": model}
    tensors = {**training.state, **curves}
    write_whole(path, lambda new: save_tensors(tensors, new, metadata))


def settings_in(metadata: Mapping[str, str]) -> DictionarySettings:
    """The settings of a file.

    Raises:
        KeyError, ValueError, InvalidInput: it has none.
    """
    return DictionarySettings(
        kind=metadata["kind"],
        **{name: int(metadata[name]) for name in INTEGERS},
        skip=metadata["skip"] == "True",
        lr=float(metadata["lr"]),
    ).checked()
