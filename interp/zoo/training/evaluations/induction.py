"""Does a model copy what it has seen, and which heads do it? On random tokens, said twice.

Previous-token score: mean attention to the token before. Induction score: mean attention, in the
second copy of a random sequence, to the token after the same token's first occurrence.

Reference: Olsson et al. 2022, "In-context Learning and Induction Heads".
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.execution.run import run
from interp.metrics import next_token_losses
from interp.model.batch import Batch
from interp.transformer import Transformer


def repeated_tokens(
    allowed: Sequence[int], rows: int, half: int, seed: int, bos: int
) -> Int[Tensor, "batch pos"]:
    """BOS, then random ``allowed`` tokens, twice: ``[rows, 1 + 2·half]``."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(allowed), (rows, half), generator=generator)
    tokens = torch.tensor(allowed)[drawn]
    return torch.cat([torch.full((rows, 1), bos), tokens, tokens], dim=1)


def head_name(scores: Float[Tensor, "layer head"]) -> str:
    """The head with the highest score, as ``L1H4``."""
    layer, head = divmod(int(scores.argmax()), scores.shape[1])
    return f"L{layer}H{head}"


def repeated_losses(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> tuple[float, float]:
    """Loss in nats on the first and on the second copy (whose first token can't be foreseen)."""
    half = (tokens.shape[1] - 1) // 2
    with torch.no_grad():
        losses, _ = next_token_losses(model(tokens), Batch(tokens))
    return losses[:, :half].mean().item(), losses[:, half + 1 :].mean().item()


def head_scores(
    model: Transformer, tokens: Int[Tensor, "batch pos"], back: int, first: int
) -> Float[Tensor, "layer head"]:
    """Mean attention from each position, from ``first`` on, to the one ``back`` before it."""
    cache = run(model, tokens, record="pattern").cache
    scores = [
        cache["pattern", layer][..., first:, first - back :].diagonal(0, -2, -1).mean((0, -1))
        for layer in range(len(model.blocks))
    ]
    return torch.stack(scores)


def previous_token_scores(
    model: Transformer, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "layer head"]:
    """Mean attention to the token before."""
    return head_scores(model, tokens, back=1, first=1)


def induction_scores(
    model: Transformer, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "layer head"]:
    """Mean attention of the second copy's tokens to what followed each in the first.

    On :func:`repeated_tokens`.
    """
    half = (tokens.shape[1] - 1) // 2
    return head_scores(model, tokens, back=half - 1, first=half + 1)


def induction_figures(
    model: Transformer, tokens: Int[Tensor, "batch pos"]
) -> dict[str, float | int | str]:
    """The losses and the best heads on :func:`repeated_tokens`, as a card tells them."""
    first, second = repeated_losses(model, tokens)
    previous, induction = previous_token_scores(model, tokens), induction_scores(model, tokens)
    return {
        "loss on random tokens (nats)": first,
        "loss on their repetition (nats)": second,
        "best previous-token head": head_name(previous),
        "its previous-token score": previous.max().item(),
        "best induction head": head_name(induction),
        "its induction score": induction.max().item(),
    }
