"""Direct effects of an MLP's neurons on the logits, and cosines of their input and output weights.

    term of a neuron    post[n] · W_out[n]·w′       w′: the direction of a logit at the MLP's output
    logits of a write   u·w′ for every token         u = W_out[n]: per unit of activation
    cosine              cos(W_in[:, n], W_out[n])

w′ is defined in :mod:`analyses.methods.attribution.logit_terms`: every norm has its divisor from
the run, and the terms of an MLP's neurons sum to the MLP's term. Input weights act on the stream:
they include the gain of the norm before the MLP, and have mean zero if the norm subtracts the mean.
A cosine far from 0 means that a neuron strengthens or erases what it reads (Gurnee et al. 2024,
"Universal Neurons in GPT2 Language Models").
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.attribution import (
    direction_at_mlp,
    logit_direction,
    places_of_terms,
    unembedding_of,
)
from interp.cache import Cache
from interp.errors import InvalidInput
from interp.metrics import at_least_float32
from interp.model import MLP, GatedMLP, Network, Step
from interp.points import Place, Point


@dataclass(frozen=True, eq=False)
class DirectEffects:
    """The direct effect of one neuron on the logits of all tokens, at one column of each row.

    The mean over the vocabulary is subtracted from the effects, as no prediction depends on it.

    Attributes:
        promoted: ids of the tokens whose logits increase most, in descending order.
        promoted_logits: the increases of these logits.
        suppressed: ids of the tokens whose logits decrease most.
        suppressed_logits: the (negative) changes of these logits.
        control: the largest increase of a logit by a random vector with the length of W_out[n].
        sum_error: the largest difference between the sum of all neurons' terms and the MLP's output
            without its bias along the direction of the most promoted token.
    """

    promoted: Int[Tensor, "batch top"]
    promoted_logits: Float[Tensor, "batch top"]
    suppressed: Int[Tensor, "batch top"]
    suppressed_logits: Float[Tensor, "batch top"]
    control: Float[Tensor, " batch"]
    sum_error: float

    @classmethod
    def joined(cls, parts: Sequence["DirectEffects"]) -> "DirectEffects":
        """The rows of several results in one."""
        names = [field.name for field in fields(cls) if field.name != "sum_error"]
        tensors = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
        return cls(**tensors, sum_error=max(part.sum_error for part in parts))


@torch.no_grad()
def direct_effects(  # noqa: PLR0913 - the neurons, their columns, and what to report
    model: Network,
    cache: Cache,
    column: Int[Tensor, " batch"],
    layer: int,
    neurons: Int[Tensor, " batch"],
    *,
    top: int,
    seed: int = 0,
) -> DirectEffects:
    """The direct effects of one neuron of a layer in each row.

    Args:
        model: a model whose logits are linear in (the norm of) its last stream.
        cache: cache of a run that recorded :func:`places_of_neurons`.
        column: the column of each row.
        layer: layer of the MLP, in the last stack.
        neurons: the neuron of each row.
        top: number of tokens to report.
        seed: seed of the random vectors.

    Raises:
        InvalidInput: the model has no logits, or they are not linear in the stream.
    """
    unembed, (_, mlp) = unembedding_of(model), mlp_step(model, layer)
    rows = torch.arange(len(column), device=column.device)
    written = at_least_float32(mlp.W_out[neurons])
    post = at_least_float32(cache[_post_place(model, layer)])[rows, column, neurons, None]
    drawn = torch.randn(written.shape[1], generator=torch.Generator().manual_seed(seed))
    drawn = (drawn / drawn.norm()).to(written) * written.norm(dim=-1, keepdim=True)
    effects, control_effects = (
        _centred(post * logits_of_writes(model, cache, x, column, layer)) for x in (written, drawn)
    )
    most, least = effects.topk(top, dim=-1), (-effects).topk(top, dim=-1)
    w, _ = logit_direction(unembed, most.indices[:, 0])
    return DirectEffects(
        promoted=most.indices.cpu(),
        promoted_logits=most.values.cpu(),
        suppressed=least.indices.cpu(),
        suppressed_logits=-least.values.cpu(),
        control=control_effects.amax(-1).cpu(),
        sum_error=_sum_error(model, cache, w, column, layer),
    )


def _sum_error(model: Network, cache: Cache, w: Tensor, column: Tensor, layer: int) -> float:
    """max |Σ terms − (MLP(x) − b_out)·w′|, with the MLP's output in the run."""
    _, mlp = mlp_step(model, layer)
    rows = torch.arange(len(column), device=column.device)
    written = at_least_float32(cache[_output_place(model, layer)])[rows, column]
    written = written if mlp.b_out is None else written - mlp.b_out
    at_mlp = direction_at_mlp(model, cache, w, column, layer)
    terms = neuron_terms(model, cache, w, column, layer)
    return (terms.sum(-1) - (written * at_mlp).sum(-1)).abs().max().item()


def _centred(logits: Float[Tensor, "batch vocab"]) -> Float[Tensor, "batch vocab"]:
    return logits - logits.mean(-1, keepdim=True)


def _post_place(model: Network, layer: int) -> Place:
    """The place of the activations of the last stack's MLP."""
    stack = model.stacks[-1].name if len(model.stacks) > 1 else None
    return Place(Point.POST, layer, stack=stack)


def _output_place(model: Network, layer: int) -> Place:
    """The place of the output of this MLP, before a norm of it."""
    return replace(_post_place(model, layer), point=mlp_step(model, layer)[1].out)


def places_of_neurons(model: Network, layer: int) -> list[Place]:
    """The places that a run must record for :func:`direct_effects`."""
    return [*places_of_terms(model), _output_place(model, layer)]


def neuron_terms(
    model: Network,
    cache: Cache,
    direction: Float[Tensor, "batch d_model"],
    column: Int[Tensor, " batch"],
    layer: int,
) -> Float[Tensor, "batch neuron"]:
    """The terms of the neurons of a layer's MLP, which sum to the term of the MLP.

    Arguments and errors are those of :func:`~analyses.methods.attribution.logit_terms.logit_terms`.
    """
    w = direction_at_mlp(model, cache, direction, column, layer)
    post = cache[_post_place(model, layer)]
    rows = torch.arange(len(post), device=post.device)
    W_out = mlp_step(model, layer)[1].W_out
    return at_least_float32(post[rows, column]) * (w @ W_out.mT.to(w.dtype))


def logits_of_writes(
    model: Network,
    cache: Cache,
    written: Float[Tensor, "batch d_model"],
    column: Int[Tensor, " batch"],
    layer: int,
) -> Float[Tensor, "batch vocab"]:
    """The change of every logit if a vector is added to the output of a layer's MLP.

    This is the direct effect, before a soft-cap: every norm keeps its divisor from the run, and no
    later part reads the vector.

    Args:
        model: a model with logits.
        cache: cache of a run that recorded ``places_of_terms``.
        written: the vector of each row.
        column: the column of each row.
        layer: layer of the MLP.

    Raises:
        InvalidInput: the model has no logits, or they are not linear in the stream.
    """
    unembed = unembedding_of(model)
    # The direction at the MLP is a linear function of the direction at the logits, w ↦ w′; its
    # transpose, the gradient, maps the vector to the logits.
    with torch.enable_grad():
        w = torch.zeros_like(at_least_float32(written), requires_grad=True)
        product = direction_at_mlp(model, cache, w, column, layer) * written.detach()
        (at_logits,) = torch.autograd.grad(product.sum(), w)
    return at_logits @ at_least_float32(unembed.W_U.detach())


def input_output_cosines(
    model: Network, layer: int, stack: str | None = None
) -> dict[str, tuple[Float[Tensor, " neuron"], Float[Tensor, " neuron"]]]:
    """Cosines of each neuron's input and output weights, and their controls.

    The control of a neuron is the root mean square of the cosine of its first vector with the
    second one of all other neurons of the layer.

    Returns:
        ``in out``; of a gated MLP also ``gate out`` and ``gate in``.
    """
    step, mlp = mlp_step(model, layer, stack)
    out = _unit(mlp.W_out)
    vectors = {"in": _unit(_of_stream(step, mlp.W_in.mT)), "out": out}
    pairs = [("in", "out")]
    if isinstance(mlp, GatedMLP):
        vectors["gate"] = _unit(_of_stream(step, mlp.W_gate.mT))
        pairs += [("gate", "out"), ("gate", "in")]
    return {f"{a} {b}": _cosines(vectors[a], vectors[b]) for a, b in pairs}


def mlp_step(model: Network, layer: int, stack: str | None = None) -> tuple[Step, MLP]:
    """The residual step of a layer's MLP, and the MLP.

    Raises:
        InvalidInput: the layer has no MLP, or a mixture of experts.
    """
    for whole in model.stack(stack).block(layer).steps:
        for step in whole.branches:
            if isinstance(step.f, MLP):
                return step, step.f
    raise InvalidInput(f"Layer {layer} has no MLP with neurons of its own.")


@torch.no_grad()
def _of_stream(step: Step, weights: Float[Tensor, "neuron d_model"]) -> Tensor:
    """Input weights as directions of the stream, with the linear part of the norm folded in."""
    w = at_least_float32(weights)
    return step.input_norm.pull_back(w, w.new_ones(1))[0]


def _unit(vectors: Float[Tensor, "neuron d_model"]) -> Float[Tensor, "neuron d_model"]:
    """The vectors scaled to length 1; zero vectors are unchanged."""
    x = at_least_float32(vectors.detach())
    length = x.norm(dim=-1, keepdim=True)
    return x / length.where(length > 0, 1)


def _cosines(
    a: Float[Tensor, "neuron d_model"], b: Float[Tensor, "neuron d_model"]
) -> tuple[Float[Tensor, " neuron"], Float[Tensor, " neuron"]]:
    """Cosines of each pair, and root mean square cosines of rows of a with other rows of b."""
    cosine = (a * b).sum(-1)
    squares = ((a @ (b.mT @ b)) * a).sum(-1) - cosine.square()
    return cosine, (squares.clamp(min=0) / max(1, len(a) - 1)).sqrt()
