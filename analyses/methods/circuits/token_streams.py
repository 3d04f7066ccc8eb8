"""Streams of single tokens: the input of a head if no other head had written anything.

    x = W_E[token]                              the embedding, with token type 0
    x = W_E[token] + MLP₀(W_E[token])           the effective embedding, after the first MLP

Norms of the stream are applied (the norm of the embedding, and norms of earlier steps that change
the stream itself, as with post-norm). Many models mainly use the embedding after the first MLP
(Wang et al. 2022, "Interpretability in the Wild", measure the copying of heads in this way).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.circuits.folded_heads import norm_of
from interp.model import Attention, Batch, Context, Stack, Step, untouched

TOKENS = 4096
"""Number of tokens whose streams are formed at a time."""
Streams = Float[Tensor, "token d_model"]
Ids = Int[Tensor, " token"]


@torch.no_grad()
def streams_of_tokens(
    stack: Stack, ids: Ids, until: Step | None, position: int | None, *, first_mlp: bool
) -> Streams:
    """The stream before a step, if it only contained each token's embedding.

    Args:
        stack: the stack.
        ids: the checked tokens.
        until: the step; ``None`` for the end of the stack, before its final norm.
        position: position whose embedding is added to every token; ``None`` for none.
        first_mlp: whether the output of the MLP of block 0 is added.
    """
    batch = Batch(ids[:, None])
    context = Context(torch.full_like(batch.ids, position or 0))
    x = stack.tokens(batch, context, stack.weight_e)
    x = x if position is None else stack.entry(x, batch, context, untouched)
    x = stack.embed_projection(stack.embed_norm(stack.types(x, batch, context, untouched)))
    for layer in range(len(stack.blocks)):
        for step in stack.block(layer).steps:
            if step is until:
                return x[:, 0]
            written = _mlp_output(step, x, context) if first_mlp and layer == 0 else 0
            x = norm_of(step.norms.sum)(norm_of(step.norms.base)(x) + written)
    return x[:, 0]


def _mlp_output(step: Step, x: Tensor, context: Context) -> Tensor | int:
    """The output of the MLP of a step; 0 if there is none."""
    for branch in step.branches:
        if not isinstance(branch.f, Attention):
            out = branch.f(branch.read(x, untouched), context, untouched)
            return branch.write(out, untouched)
    return 0
