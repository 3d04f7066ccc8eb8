"""The loss and accuracy of next tokens, and sampling."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.compat.errors import InvalidInput


def lm_cross_entropy_loss(
    logits: Float[Tensor, "batch pos vocab"],
    tokens: Int[Tensor, "batch pos"],
    attention_mask: Tensor | None = None,
    per_token: bool = False,
) -> Tensor:
    """Cross-entropy of each next token, in nats.

    Args:
        logits: the logits of the model.
        tokens: the input of the model.
        attention_mask: ``[batch pos]``, 1 or True for real tokens. A prediction counts if both the
            position and the predicted token are real.
        per_token: whether to return ``[batch pos−1]`` (0 for predictions that do not count) instead
            of the mean.

    Raises:
        InvalidInput: the mask does not have the shape of the tokens.
    """
    log_probs = logits[..., :-1, :].log_softmax(-1)
    losses = -log_probs.gather(-1, tokens[..., 1:, None])[..., 0]
    n: int | Tensor = losses.numel()
    if attention_mask is not None:
        if attention_mask.shape != tokens.shape:
            raise InvalidInput(
                f"attention_mask must have the shape of the tokens, {tuple(tokens.shape)}; got "
                f"{tuple(attention_mask.shape)}."
            )
        counted = attention_mask[:, :-1].bool() & attention_mask[:, 1:].bool()
        losses, n = losses.masked_fill(~counted, 0.0), counted.sum()
    return losses if per_token else losses.sum() / n


def lm_accuracy(
    logits: Float[Tensor, "batch pos vocab"],
    tokens: Int[Tensor, "batch pos"],
    per_token: bool = False,
) -> Tensor:
    """The fraction of next tokens that are predicted; with ``per_token``, ``[batch pos−1]``."""
    correct = logits[:, :-1].argmax(-1) == tokens[:, 1:]
    return correct if per_token else correct.sum() / correct.numel()


def sample_logits(
    final_logits: Float[Tensor, "batch vocab"],
    top_k: int | None = None,
    top_p: float | None = None,
    temperature: float = 1.0,
    freq_penalty: float = 0.0,
    repetition_penalty: float = 1.0,
    tokens: Int[Tensor, "batch pos"] | None = None,
) -> Int[Tensor, " batch"]:
    """Draw a token for each row with torch's global generator.

    Args:
        final_logits: the logits at the last position; not changed.
        top_k: sample from the k most probable tokens.
        top_p: sample from the most probable tokens whose probabilities sum to ``top_p``; ignored
            with ``top_k``.
        temperature: divides the logits; 0 selects the most probable token.
        freq_penalty: subtracted from a token's logit for each time it occurs in ``tokens``.
        repetition_penalty: divides positive logits of tokens that occurred and multiplies negative
            ones (Keskar et al. 2019, "CTRL").
        tokens: the earlier tokens, for the two penalties.

    Raises:
        InvalidInput: ``freq_penalty`` is given without ``tokens``, or ``top_k`` or ``top_p`` is out
            of range.
    """
    logits = final_logits
    if repetition_penalty != 1.0 and tokens is not None:
        divided, multiplied = logits / repetition_penalty, logits * repetition_penalty
        penalised = torch.where(logits > 0, divided, multiplied)
        logits = torch.where(_counts(tokens, logits) > 0, penalised, logits)
    if temperature == 0.0:
        return logits.argmax(-1)
    logits = logits / temperature
    if freq_penalty > 0:
        if tokens is None:
            raise InvalidInput("freq_penalty counts earlier tokens; pass tokens= [batch pos].")
        logits = logits - freq_penalty * _counts(tokens, logits)
    if top_k is not None:
        logits = _top_k(logits, top_k)
    elif top_p is not None:
        logits = _top_p(logits, top_p)
    return torch.distributions.Categorical(logits=logits.float()).sample()


def _counts(tokens: Tensor, logits: Tensor) -> Tensor:
    """The number of times each token occurs in each row, ``[batch vocab]``."""
    counts = torch.zeros_like(logits)
    return counts.scatter_add(-1, tokens, torch.ones_like(tokens, dtype=logits.dtype))


def _top_k(logits: Tensor, k: int) -> Tensor:
    """Set logits to −∞ except the ``k`` largest of each row, and those equal to the smallest."""
    if k <= 0:
        raise InvalidInput(f"top_k={k} should be a positive number of tokens.")
    smallest = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < smallest, -torch.inf)


def _top_p(logits: Tensor, p: float) -> Tensor:
    """Set logits to −∞ except those of the fewest tokens with total probability ``p``."""
    if not 0.0 < p <= 1.0:
        raise InvalidInput(f"top_p={p} should be in (0, 1].")
    ordered, index = logits.sort(descending=True)
    above = ordered.softmax(-1).cumsum(-1) > p
    removed = torch.cat([torch.zeros_like(above[..., :1]), above[..., :-1]], -1)
    return logits.masked_fill(removed.scatter(-1, index, removed), -torch.inf)
