"""Checkpoints: the state of a training run in one file, from which it resumes bit-identically.

    model.*          the weights
    optimizer.i.*    AdamW's state of the i-th weight
    header           ``history``: the history so far; ``what``: the settings of the run

The file is replaced atomically, so an interruption leaves the previous checkpoint valid.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors import safe_open
from torch import Tensor

from interp.errors import MAX_SHOWN, InvalidInput, ModelLoadError, reason, shorten
from interp.io import (
    DAMAGED,
    VERSION,
    parse_json,
    read_header,
    save_tensors,
    value_of,
    verify_checksum,
    write_whole,
)
from interp.transformer import Transformer
from interp.zoo import History

FILE = "checkpoint.safetensors"
NEWEST: Final = 1
"""The version of the file. A run is resumed only from a checkpoint of the same version."""
MOMENTS: Final = ("exp_avg", "exp_avg_sq")
"""The state of AdamW for each weight, besides the step count."""
PER_RUN = 100
"""A checkpoint is saved every ``steps // PER_RUN`` steps; in shorter runs, after each step."""


@dataclass(frozen=True)
class FileCheckpointer:
    """Saves checkpoints to a file and resumes from it.

    Args:
        path: the file.
        settings: the model, data and schedule of the run, as text by name. Resuming from a
            checkpoint with other settings raises an error.
        every: number of steps between checkpoints.
        hardware: name of the processor of this run, for the history.
    """

    path: Path
    settings: Mapping[str, str]
    every: int = 1
    hardware: str = ""

    def save(self, model: Transformer, optimizer: torch.optim.Optimizer, history: History) -> None:
        """Write a checkpoint if the number of steps is a multiple of ``every``."""
        if len(history.losses) % self.every:
            return
        tensors = {f"model.{name}": p.detach() for name, p in model.named_parameters()}
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
        header = {
            VERSION: str(NEWEST),
            "what": json.dumps(dict(self.settings)),
            "history": history.to_json(),
        }
        write_whole(self.path, lambda path: save_tensors(tensors, path, header))

    def resume(self, model: Transformer, optimizer: torch.optim.Optimizer) -> History:
        """Restore model and optimizer from the checkpoint, if there is one.

        Returns:
            The history up to the checkpoint.

        Raises:
            InvalidInput: the checkpoint is of a run with other settings.
            ModelLoadError: the checkpoint is damaged.
        """
        if not self.path.exists():
            return History().add_hardware(self.hardware)
        try:
            saved = _read(self.path)
        except DAMAGED as error:
            raise self._unreadable(reason(error)) from error
        self._check(saved.settings)
        wrong = _mismatch(saved.tensors, model, optimizer)
        if wrong is not None:
            raise self._unreadable(wrong)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(saved.tensors[f"model.{name}"])
        state = optimizer.state_dict()
        state["state"] = _optimizer_states(saved.tensors)
        optimizer.load_state_dict(state)
        return saved.history.add_hardware(self.hardware)

    def _unreadable(self, why: str) -> ModelLoadError:
        return ModelLoadError(
            f"The checkpoint {self.path} can't be read: {why}. Start from scratch with anew=True "
            "(--anew)."
        )

    def _check(self, saved: Mapping[str, str]) -> None:
        differing = [name for name in self.settings if saved.get(name) != self.settings[name]]
        if differing:
            name = differing[0]
            raise InvalidInput(
                f"{self.path.parent} holds the checkpoint of a training with another {name}: "
                f"{_shown(saved.get(name))}, not {_shown(self.settings[name])}. Use the same "
                "settings, start from scratch with anew=True (--anew), or choose another folder."
            )


@dataclass(frozen=True)
class NoCheckpointer:
    """Saves no checkpoints; every run starts at step 0."""

    hardware: str = ""

    def resume(self, model: Transformer, optimizer: torch.optim.Optimizer) -> History:  # noqa: ARG002
        """An empty history; model and optimizer are unchanged."""
        return History().add_hardware(self.hardware)

    def save(self, model: Transformer, optimizer: torch.optim.Optimizer, history: History) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class _Saved:
    """The contents of a checkpoint: settings of the run, history, tensors by name."""

    settings: dict[str, str]
    history: History
    tensors: dict[str, Tensor]


def _read(path: Path) -> _Saved:
    """Read and validate a checkpoint; raises one of :data:`DAMAGED` if it is damaged."""
    header = read_header(path)
    verify_checksum(path, header)
    texts = header.metadata
    if texts.get(VERSION, str(NEWEST)) != str(NEWEST):
        raise ValueError(
            f"it has version {shorten(texts[VERSION])} of its format; this version of interp reads "
            f"version {NEWEST}"
        )
    missing = sorted({"what", "history"} - set(texts))
    if missing:
        raise ValueError(f"its header has no {missing[0]!r}")
    settings = value_of(dict[str, str], parse_json(texts["what"]), "what")
    with safe_open(str(path), framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    return _Saved(settings, History.from_json(texts["history"]), tensors)


def _mismatch(
    tensors: Mapping[str, Tensor], model: Transformer, optimizer: torch.optim.Optimizer
) -> str | None:
    """Describes a tensor that is missing, unknown or of the wrong shape; ``None`` if all match."""
    expected = {f"model.{name}": p.shape for name, p in model.named_parameters()}
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    for index, parameter in enumerate(trained):
        expected[f"optimizer.{index}.step"] = torch.Size()
        expected |= {f"optimizer.{index}.{name}": parameter.shape for name in MOMENTS}
    for name, shape in expected.items():
        if name not in tensors and name.startswith("model."):
            return f"{name} is missing"
        if name in tensors and (
            tensors[name].shape != shape or not tensors[name].is_floating_point()
        ):
            return f"{name} should be {tuple(shape)}, in floating point"
    unknown = sorted(set(tensors) - set(expected))
    return f"{shorten(unknown[0])} belongs to no part of this run" if unknown else None


def _shown(setting: str | None) -> str | None:
    return setting if setting is None or len(setting) <= MAX_SHOWN else f"{setting[:MAX_SHOWN]}…"


def _optimizer_states(tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    states: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        kind, *rest = key.split(".")
        if kind == "optimizer":
            states.setdefault(int(rest[0]), {})[rest[1]] = tensor
    return states
