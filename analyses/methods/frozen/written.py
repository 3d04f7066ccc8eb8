"""What each part of a model adds to the stream in one run: embeddings, heads, MLPs and biases."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.attribution import Part
from interp.model import MLP, Attention, Linear, Network, ScaledNorm, Step
from interp.points import Place, Point

Vectors = Float[Tensor, "pos d_model"]
At = Callable[[Place], Tensor]
"""The tensor at a place, at the positions of the prompt."""
Outputs = dict[Part, Vectors]


@dataclass(frozen=True, eq=False)
class Branch:
    """A sub-layer.

    Attributes:
        layer: the index of its block.
        step: the sub-layer with its norms.
        before: the number of writers before it, which it reads.
        writers: the indices of its heads, or of its MLP, among the writers.
    """

    layer: int
    step: Step
    before: int
    writers: range


def written_by(model: Network, at: At) -> tuple[Outputs, list[Branch]]:
    """What each part adds to the stream, and the sub-layers, both in the order of the forward."""
    stack, branches = model.stacks[0], list[Branch]()
    written: Outputs = {}
    for place in entry_of(model):
        name = "embed" if place.point is Point.RESID_PRE else place.point.label
        written[Part(name, "embedding")] = at(place)
    for layer in range(len(stack.blocks)):
        for step in stack.block(layer).steps:
            before = len(written)
            for branch in step.branches:
                parts, biases = _of_sublayer(layer, branch, at)
                writers = range(len(written), len(written) + len(parts))
                branches.append(Branch(layer, branch, before, writers))
                written |= parts | biases
    return written, branches


def entry_of(model: Network) -> list[Place]:
    """The places of the embeddings; that of the stream if it is not their plain sum."""
    stack = model.stacks[0]
    if isinstance(stack.embed_norm, ScaledNorm) or isinstance(stack.embed_projection, Linear):
        return [Place(Point.RESID_PRE, 0)]
    return [*stack.terms()]


def output_norm(layer: int, step: Step) -> tuple[ScaledNorm, Place] | None:
    """The norm of a sub-layer's output, and the place of its divisor; ``None`` without one."""
    norm = step.norms.output
    if norm is None or not isinstance(norm.norm, ScaledNorm):
        return None
    return norm.norm, Place(Point.SCALE, layer, norm.name)


def _of_sublayer(layer: int, step: Step, at: At) -> tuple[Outputs, Outputs]:
    """What the heads or the MLP of a sub-layer add to the stream, and what its biases add."""
    f, name = step.f, f"L{layer}"
    parts, biases = dict[Part, Tensor](), dict[Part, Tensor]()
    if isinstance(f, Attention):
        outputs = f.result(at(Place(f.points.z, layer))[None])[0]
        for head, output in enumerate(outputs.unbind(1)):
            parts[Part(f"{name}H{head}", "head", layer, head)] = output
        bias, bias_name = f.b_O, f"{name}.b_O"
    elif isinstance(f, MLP):
        post = at(Place(Point.POST, layer))
        parts[Part(f"{name}MLP", "mlp", layer)] = post @ f.W_out.to(post.dtype)
        bias, bias_name = f.b_out, f"{name}.b_out"
    else:  # a mixture of experts
        parts[Part(f"{name}MLP", "mlp", layer)] = at(Place(f.hidden_point, layer))
        bias, bias_name = None, ""
    if bias is not None:
        like = next(iter(parts.values()))
        biases[Part(bias_name, "bias", layer)] = bias.to(like.dtype).expand_as(like)
    return _through_norm(layer, step, parts, biases, at)


def _through_norm(
    layer: int, step: Step, parts: Outputs, biases: Outputs, at: At
) -> tuple[Outputs, Outputs]:
    """The same after the norm of the output, which is linear with its divisor fixed."""
    normed = output_norm(layer, step)
    if normed is None:
        return parts, biases
    norm, scale = normed[0], at(normed[1])
    zeros = torch.zeros_like(next(iter(parts.values())))

    def normed_at_scale(x: Tensor) -> Tensor:
        return norm.by_scale(x[None], scale[None])[0]

    constant = normed_at_scale(zeros)
    parts, biases = (
        {part: normed_at_scale(x) - constant for part, x in written.items()}
        for written in (parts, biases)
    )
    if norm.bias is not None:
        biases[Part(f"L{layer}.{normed[1].norm}.bias", "bias", layer)] = constant
    return parts, biases
