"""Metrics from the targets and distractors of prompts."""

from collections.abc import Callable, Sequence

import torch

from interp.errors import InvalidInput, InvalidTokens
from interp.io import TensorData
from interp.metrics import NO_MASK_TOKEN, LogitDiff, MaskedLoss
from interp.model import Batch
from interp.prompts.prompt import Prompt


def logit_diff_of_prompts(
    to_single_token: Callable[[str], int], prompts: Sequence[Prompt]
) -> LogitDiff:
    """The metric ``logit(target) − logit(distractor)`` at the default position of each prompt.

    Args:
        to_single_token: maps a text to its single token id, e.g. ``model.to_single_token``.
        prompts: prompts with a target and a distractor.

    Raises:
        InvalidInput: a prompt lacks one of the two, or it is not a single token.
    """
    target, distractor = (
        tokens_of_prompts(to_single_token, prompts, field) for field in ("target", "distractor")
    )
    return LogitDiff(None, target, distractor)


def masked_loss_of_targets(batch: Batch, targets: Sequence[int]) -> MaskedLoss:
    """The loss of each prompt's target at its only mask token.

    Args:
        batch: prompts of an encoder.
        targets: token ids, one per prompt.

    Raises:
        InvalidInput: the model has no mask token, or a prompt has none or several.
    """
    if batch.masked is None:
        raise InvalidInput(NO_MASK_TOKEN)
    counts = batch.masked.sum(-1)
    if bool((counts != 1).any()):
        row = int((counts != 1).nonzero()[0])
        raise InvalidInput(
            f"Prompt {row} holds {int(counts[row])} mask tokens; a target needs exactly one. Give "
            "the true tokens: masked_loss(tokens)."
        )
    hidden = torch.tensor(targets, device=batch.ids.device)[:, None]
    return MaskedLoss(None, TensorData(hidden.where(batch.masked, batch.ids)))


def tokens_of_prompts(
    to_single_token: Callable[[str], int], prompts: Sequence[Prompt], field: str
) -> tuple[int, ...]:
    """The token id of each prompt's ``target`` or ``distractor``.

    Args:
        to_single_token: maps a text to its single token id, e.g. ``model.to_single_token``.
        prompts: prompts that have this field.
        field: ``target`` or ``distractor``.

    Raises:
        InvalidInput: a prompt lacks the field, or it is not a single token.
    """

    def token(prompt: Prompt) -> int:
        text = getattr(prompt, field)
        if text is None:
            raise InvalidInput(
                f"{prompt.source}: comparing logits needs a {field!r}; this prompt has none."
            )
        try:
            return to_single_token(text)
        except InvalidTokens as error:
            raise InvalidInput(f"{prompt.source}: {field}: {error}") from error

    return tuple(map(token, prompts))
