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
Several = Float[Tensor, "writer pos d_model"]
At = Callable[[Place], Tensor]
"""The tensor at a place, at the positions of the prompt."""


@dataclass(frozen=True, eq=False)
class Branch:
    """A sub-layer.

    Attributes:
        layer: the index of its block.
        step: the sub-layer with its norms.
        before: the number of writers before it, which it reads.
        writers: the indices of its heads, or of its MLP, among the writers.
        biases: the indices of its biases and that of its output norm, which follow.
    """

    layer: int
    step: Step
    before: int
    writers: range
    biases: range


def writers_of(model: Network) -> tuple[list[Part], list[Branch]]:
    """What writes to the stream, and the sub-layers, both in the order of the forward."""
    stack, branches = model.stacks[0], list[Branch]()
    written = [
        Part("embed" if place.point is Point.RESID_PRE else place.point.label, "embedding")
        for place in entry_of(model)
    ]
    for layer in range(len(stack.blocks)):
        for step in stack.block(layer).steps:
            before = len(written)
            for branch in step.branches:
                parts, biases = _parts_of(layer, branch), _biases_of(layer, branch)
                first = len(written) + len(parts)
                writers, others = range(len(written), first), range(first, first + len(biases))
                branches.append(Branch(layer, branch, before, writers, others))
                written += [*parts, *biases]
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


def written_by(branch: Branch, at: At, *, has_neurons: bool = True) -> Several:
    """What the heads or the MLP of a sub-layer add to the stream.

    Args:
        branch: the sub-layer.
        at: reads tensors.
        has_neurons: whether an MLP's neurons were recorded, or else its output.
    """
    f, layer = branch.step.f, branch.layer
    if isinstance(f, Attention):
        outputs = f.result(at(Place(f.points.z, layer))[None])[0].movedim(1, 0)
    elif isinstance(f, MLP) and not has_neurons:
        output = at(Place(f.out, layer))
        outputs = (output if f.b_out is None else output - f.b_out.to(output.dtype))[None]
    elif isinstance(f, MLP):
        post = at(Place(Point.POST, layer))
        outputs = (post @ f.W_out.to(post.dtype))[None]
    else:  # a mixture of experts
        outputs = at(Place(f.hidden_point, layer))[None]
    return _after_norm(branch, outputs, at)


def biases_of(branch: Branch, at: At, like: Vectors) -> list[Vectors]:
    """What the biases of a sub-layer, and of the norm of its output, add to the stream.

    Args:
        branch: the sub-layer.
        at: reads tensors.
        like: a tensor of the stream.
    """
    bias, normed = _bias_of(branch.step), output_norm(branch.layer, branch.step)
    biases = [] if bias is None else [bias.to(like.dtype).expand_as(like)]
    if normed is None:
        return biases
    biases = [_after_norm(branch, each[None], at)[0] for each in biases]
    if normed[0].bias is not None:
        biases.append(_constant(normed[0], like, at(normed[1])))
    return biases


def _parts_of(layer: int, step: Step) -> list[Part]:
    """The heads or the MLP of a sub-layer."""
    if not isinstance(step.f, Attention):
        return [Part(f"L{layer}MLP", "mlp", layer)]
    return [Part(f"L{layer}H{head}", "head", layer, head) for head in range(step.f.n_heads)]


def _biases_of(layer: int, step: Step) -> list[Part]:
    """Its biases, in the order of :func:`biases_of`."""
    normed = output_norm(layer, step)
    names = [] if _bias_of(step) is None else ["b_O" if isinstance(step.f, Attention) else "b_out"]
    if normed is not None and normed[0].bias is not None:
        names.append(f"{normed[1].norm}.bias")
    return [Part(f"L{layer}.{name}", "bias", layer) for name in names]


def _bias_of(step: Step) -> Tensor | None:
    """The bias of a sub-layer's output; a mixture of experts has none of its own."""
    f = step.f
    if isinstance(f, Attention):
        return f.b_O
    return f.b_out if isinstance(f, MLP) else None


def _after_norm(branch: Branch, x: Several, at: At) -> Several:
    """The same after the norm of the output, which is linear with its divisor fixed."""
    normed = output_norm(branch.layer, branch.step)
    if normed is None:
        return x
    norm, scale = normed[0], at(normed[1])
    constant = _constant(norm, x[0], scale)
    return torch.stack([norm.by_scale(each[None], scale[None])[0] - constant for each in x])


def _constant(norm: ScaledNorm, like: Vectors, scale: Tensor) -> Vectors:
    """What a norm makes of 0: its bias."""
    return norm.by_scale(torch.zeros_like(like)[None], scale[None])[0]
