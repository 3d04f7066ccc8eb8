"""Where is a training that was killed? In one file, from which it goes on as if nothing had been.

    model.*          the weights
    optimizer.i.*    what AdamW remembers of the i-th of them
    header           the history so far, and what is being trained

The file is written whole or not at all, so the last one that was kept is always sound.
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

FILE = "unfinished.safetensors"
UNSOUND = (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError)
TIMES = 100
"""How often a training is kept, at most."""


@dataclass(frozen=True)
class Unfinished:
    """A training that is kept in a file.

    Args:
        path: the file.
        what: what is trained, by name: its configuration, its data, its schedule. A file that
            tells of another training is refused.
        every: steps from one time to the next.
        hardware: on what it goes on.
    """

    path: Path
    what: Mapping[str, str]
    every: int = 1
    hardware: str = ""

    def save(self, model: Transformer, optimizer: torch.optim.Optimizer, history: History) -> None:
        """Write the file, every so many steps."""
        if len(history.losses) % self.every:
            return
        tensors = {f"model.{name}": p.detach() for name, p in model.named_parameters()}
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
        told = {"what": json.dumps(dict(self.what)), "history": history.to_json()}
        write_whole(self.path, lambda path: save_file(_apart(tensors), path, told))

    def resume(self, model: Transformer, optimizer: torch.optim.Optimizer) -> History:
        """Read the file, if there is one.

        Raises:
            InvalidInput: it is of another training.
            ModelLoadError: it is damaged.
        """
        if not self.path.exists():
            return History().goes_on_with(self.hardware)
        try:
            with safe_open(str(self.path), framework="pt") as file:
                told = file.metadata()
                what, history = json.loads(told["what"]), History.from_json(told["history"])
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            weights = [(p, tensors[f"model.{n}"]) for n, p in model.named_parameters()]
        except UNSOUND as error:
            raise ModelLoadError(
                f"{self.path}, an unfinished training, can't be read: {error}. Begin anew."
            ) from error
        self._check(what)
        with torch.no_grad():
            for parameter, weight in weights:
                parameter.copy_(weight)
        whole = optimizer.state_dict()
        whole["state"] = _states(tensors)
        optimizer.load_state_dict(whole)
        return history.goes_on_with(self.hardware)

    def _check(self, begun: Mapping[str, str]) -> None:
        other = [name for name in self.what if begun.get(name) != self.what[name]]
        if other:
            name = other[0]
            raise InvalidInput(
                f"{self.path.parent} holds an unfinished training with another {name}: "
                f"{begun.get(name)}, not {self.what[name]}. Go on with the same settings, begin "
                "anew, or choose another folder."
            )


@dataclass(frozen=True)
class Unkept:
    """A training that is kept nowhere."""

    hardware: str = ""

    def resume(self, model: Transformer, optimizer: torch.optim.Optimizer) -> History:  # noqa: ARG002
        """Begin at the beginning."""
        return History().goes_on_with(self.hardware)

    def save(self, model: Transformer, optimizer: torch.optim.Optimizer, history: History) -> None:
        """Keep nothing."""


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as safetensors takes them: in order, and no two in one place of memory."""
    return {name: tensor.contiguous().clone() for name, tensor in tensors.items()}


def _states(tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    states: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        kind, *rest = key.split(".")
        if kind == "optimizer":
            states.setdefault(int(rest[0]), {})[rest[1]] = tensor
    return states
