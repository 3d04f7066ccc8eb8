"""Streams of tokens alone: what a head would read if no head had written anything.

    x = W_E[token]                              the embedding, with token type 0
    x = W_E[token] + MLP₀(W_E[token])           the effective embedding, behind the first MLP

Norms that the stream passes on the way are applied (of the embedding, and of every earlier step
where they change the stream itself, as with post-norm). Many models only use what the first MLP
makes of an embedding (Wang et al. 2022, "Interpretability in the Wild", where a head's copying is
measured so).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.circuits.folded_heads import norm_of
from interp.model.attention.attention import Attention
from interp.model.batch import Batch
from interp.model.context import Context
from interp.model.residual import Step
from interp.model.stack import Stack
from interp.model.tap import untouched

TOKENS = 4096
"""Tokens whose streams are formed at a time."""
Streams = Float[Tensor, "token d_model"]
Ids = Int[Tensor, " token"]


@torch.no_grad()
def streams_of_tokens(
    stack: Stack, ids: Ids, until: Step | None, position: int | None, *, first_mlp: bool
) -> Streams:
    """The stream before a step, if each token's embedding alone were in it.

    Args:
        stack: the stack.
        ids: the tokens, checked.
        until: the step; ``None`` for the end of the stack, before its final norm.
        position: whose embedding is added to that of every token; ``None`` adds none.
        first_mlp: whether the MLP of block 0 writes too.
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
            written = _by_mlp(step, x, context) if first_mlp and layer == 0 else 0
            x = norm_of(step.norms.sum)(norm_of(step.norms.base)(x) + written)
    return x[:, 0]


def _by_mlp(step: Step, x: Tensor, context: Context) -> Tensor | int:
    """What the MLP of a step writes; 0 if there is none."""
    for branch in step.branches:
        if not isinstance(branch.f, Attention):
            hidden = branch.f.hidden(branch.input(x, untouched), context, untouched)
            return branch.added(hidden, untouched)
    return 0
