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

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from interp.errors import InvalidInput, ModelLoadError
from interp.files import write_whole
from interp.transformer import Transformer
from interp.zoo.history import History

FILE = "checkpoint.safetensors"
DAMAGED = (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError)
"""What reading a damaged checkpoint raises."""
PER_RUN = 100
"""A checkpoint is saved every ``steps // PER_RUN`` steps; after each step of a shorter run."""


@dataclass(frozen=True)
class FileCheckpointer:
    """Saves checkpoints to a file and resumes from it.

    Args:
        path: the file.
        settings: model, data and schedule of the run, as text by name. A checkpoint with other
            settings is refused.
        every: number of steps between checkpoints.
        hardware: the processor of this run, for the history.
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
        header = {"what": json.dumps(dict(self.settings)), "history": history.to_json()}
        write_whole(self.path, lambda path: save_file(_unshared(tensors), path, header))

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
            with safe_open(str(self.path), framework="pt") as file:
                header = file.metadata()
                settings, history = json.loads(header["what"]), History.from_json(header["history"])
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            weights = [(p, tensors[f"model.{n}"]) for n, p in model.named_parameters()]
        except DAMAGED as error:
            raise ModelLoadError(
                f"The checkpoint {self.path} can't be read: {error}. Start from scratch with "
                "anew=True (--anew)."
            ) from error
        self._check(settings)
        with torch.no_grad():
            for parameter, weight in weights:
                parameter.copy_(weight)
        state = optimizer.state_dict()
        state["state"] = _optimizer_states(tensors)
        optimizer.load_state_dict(state)
        return history.add_hardware(self.hardware)

    def _check(self, saved: Mapping[str, str]) -> None:
        differing = [name for name in self.settings if saved.get(name) != self.settings[name]]
        if differing:
            name = differing[0]
            raise InvalidInput(
                f"{self.path.parent} holds the checkpoint of a training with another {name}: "
                f"{saved.get(name)}, not {self.settings[name]}. Use the same settings, start from "
                "scratch with anew=True (--anew), or choose another folder."
            )


@dataclass(frozen=True)
class NoCheckpointer:
    """Saves no checkpoints; every run starts at step 0."""

    hardware: str = ""

    def resume(self, model: Transformer, optimizer: torch.optim.Optimizer) -> History:  # noqa: ARG002
        """An empty history; model and optimizer are unchanged."""
        return History().add_hardware(self.hardware)

    def save(self, model: Transformer, optimizer: torch.optim.Optimizer, history: History) -> None:
        """Nothing is saved."""


def _unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies that share no memory, as safetensors requires."""
    return {name: tensor.contiguous().clone() for name, tensor in tensors.items()}


def _optimizer_states(tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    states: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        kind, *rest = key.split(".")
        if kind == "optimizer":
            states.setdefault(int(rest[0]), {})[rest[1]] = tensor
    return states
