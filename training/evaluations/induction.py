"""Induction: previous-token and induction scores of heads, on repeated random tokens.

Previous-token score: mean attention to the previous token. Induction score: mean attention, in the
second copy of a random sequence, to the token after the current token's first occurrence.

Reference: Olsson et al. 2022, "In-context Learning and Induction Heads".
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.execution import run
from interp.metrics import next_token_losses
from interp.model import Batch
from interp.transformer import Transformer


def repeated_tokens(
    allowed: Sequence[int], rows: int, half: int, seed: int, bos: int
) -> Int[Tensor, "batch pos"]:
    """BOS, then two copies of ``half`` random tokens of ``allowed``: ``[rows, 1 + 2·half]``."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(allowed), (rows, half), generator=generator)
    tokens = torch.tensor(allowed)[drawn]
    return torch.cat([torch.full((rows, 1), bos), tokens, tokens], dim=1)


def head_name(scores: Float[Tensor, "layer head"]) -> str:
    """The name of the head with the highest score, such as ``L1H4``."""
    layer, head = divmod(int(scores.argmax()), scores.shape[1])
    return f"L{layer}H{head}"


def repeated_losses(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> tuple[float, float]:
    """Mean loss in nats on the first copy, and on the second without its first token."""
    half = (tokens.shape[1] - 1) // 2
    with torch.no_grad():
        losses, _ = next_token_losses(model(tokens), Batch(tokens))
    return losses[:, :half].mean().item(), losses[:, half + 1 :].mean().item()


def head_scores(
    model: Transformer, tokens: Int[Tensor, "batch pos"], back: int, first: int
) -> Float[Tensor, "layer head"]:
    """Mean attention from positions i ≥ ``first`` to positions i − ``back``."""
    cache = run(model, tokens, record="pattern").cache
    scores = [
        cache["pattern", layer][..., first:, first - back :].diagonal(0, -2, -1).mean((0, -1))
        for layer in range(len(model.blocks))
    ]
    return torch.stack(scores)


def previous_token_scores(
    model: Transformer, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "layer head"]:
    """Mean attention to the previous token."""
    return head_scores(model, tokens, back=1, first=1)


def induction_scores(
    model: Transformer, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "layer head"]:
    """Mean attention from each token of the second copy to its successor in the first.

    Args:
        model: a decoder.
        tokens: from :func:`repeated_tokens`.
    """
    half = (tokens.shape[1] - 1) // 2
    return head_scores(model, tokens, back=half - 1, first=half + 1)


def induction_figures(
    model: Transformer, tokens: Int[Tensor, "batch pos"]
) -> dict[str, float | int | str]:
    """Figures for a card: losses and best heads on :func:`repeated_tokens`."""
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


def induction_sentence(figures: Mapping[str, float | int | str]) -> str:
    """A sentence for a card's ``mechanism``, from :func:`induction_figures`."""
    return (
        f"Induction: {figures['best previous-token head']} attends to the previous token, "
        f"{figures['best induction head']} to the token after an earlier occurrence of the "
        "current one."
    )
