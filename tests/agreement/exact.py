"""Run models of Hugging Face in float64, and record what their modules compute.

These models compute angles, norms and softmaxes in float32 whatever the dtype of their weights. To
compare to 1e-9, ``torch.float32`` is replaced by ``torch.float64`` while they are built and run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

IN_FLOAT = Tensor.float


def _in_double(self: Tensor, *args, **kwargs) -> Tensor:
    return self.double(*args, **kwargs)


@contextmanager
def exact() -> Iterator[None]:
    """Inside this context, casts to float32 are casts to float64."""
    before = torch.float32, torch.float, torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    Tensor.float = _in_double
    try:
        yield
    finally:
        torch.float32, torch.float, default = before
        Tensor.float = IN_FLOAT
        torch.set_default_dtype(default)


def randomised(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model in float64, with noise added to every weight, so that none stays at 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    model = model.double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.add_(noise * (0.1 if weight.ndim > 1 else 0.3))
    return model


@dataclass
class Seen:
    """Inputs and outputs of the modules of a model in one forward pass.

    Attributes:
        inputs: the first input of each module, by the module's name.
        outputs: the first output of each module, by the module's name.
        scores: the inputs of the softmaxes of attention, in order.
    """

    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    scores: list[Tensor] = field(default_factory=list)


@contextmanager
def watched(model: nn.Module) -> Iterator[Seen]:
    """Record inputs and outputs of every module of ``model``, and inputs of softmaxes."""
    seen = Seen()
    handles = [
        module.register_forward_hook(_noting(seen, name), with_kwargs=True)
        for name, module in model.named_modules()
    ]
    softmax = F.softmax

    def noted(x: Tensor, *args, **kwargs) -> Tensor:
        if x.ndim == 4:
            seen.scores.append(x.detach().clone())
        return softmax(x, *args, **kwargs)

    F.softmax = noted
    try:
        yield seen
    finally:
        F.softmax = softmax
        for handle in handles:
            handle.remove()


def _noting(seen: Seen, name: str) -> Callable[..., None]:
    def note(module, args, kwargs, output) -> None:
        first_input = next((x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)), None)
        if first_input is not None:
            seen.inputs[name] = first_input.detach()
        first = output[0] if isinstance(output, tuple | list) else output
        if isinstance(first, Tensor):
            seen.outputs[name] = first.detach().clone()  # which later code may change in place

    return note
