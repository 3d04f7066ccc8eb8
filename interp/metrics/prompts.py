"""Logit difference between the target and the distractor of each prompt."""

from collections.abc import Callable, Sequence

from interp.errors import InvalidInput, InvalidTokens
from interp.metrics.kinds import LogitDiff
from interp.text.prompts import Prompt


def logit_diff_of_prompts(
    to_single_token: Callable[[str], int], prompts: Sequence[Prompt]
) -> LogitDiff:
    """The metric ``logit(target) − logit(distractor)`` at the default position of each prompt.

    Args:
        to_single_token: maps a text to its single token id, e.g. ``model.to_single_token``.
        prompts: each with a target and a distractor.

    Raises:
        InvalidInput: a prompt lacks one of the two, or it is not a single token.
    """
    target, distractor = (
        tokens_of_prompts(to_single_token, prompts, field) for field in ("target", "distractor")
    )
    return LogitDiff(None, target, distractor)


def tokens_of_prompts(
    to_single_token: Callable[[str], int], prompts: Sequence[Prompt], field: str
) -> tuple[int, ...]:
    """The token id of each prompt's ``target`` or ``distractor``.

    Args:
        to_single_token: maps a text to its single token id, e.g. ``model.to_single_token``.
        prompts: each with the field.
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
