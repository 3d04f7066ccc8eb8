"""A metric from prompts: the logit difference of the target and the distractor of each."""

from collections.abc import Callable, Sequence

from interp.errors import InvalidInput, InvalidTokens
from interp.metrics.kinds import LogitDiff
from interp.text.prompts import Prompt


def logit_diff_of(to_single_token: Callable[[str], int], prompts: Sequence[Prompt]) -> LogitDiff:
    """Logit of the target minus logit of the distractor, at each prompt's last token.

    Args:
        to_single_token: the id of a text that is one token, as ``model.to_single_token``.
        prompts: each with a target and a distractor.

    Raises:
        InvalidInput: a prompt lacks one of the two, or it is not a single token.
    """

    def token(prompt: Prompt, field: str) -> int:
        text = getattr(prompt, field)
        if text is None:
            raise InvalidInput(
                f"{prompt.source}: a logit difference needs a {field!r}; none is given."
            )
        try:
            return to_single_token(text)
        except InvalidTokens as error:
            raise InvalidInput(f"{prompt.source}: {field}: {error}") from error

    targets = tuple(token(prompt, "target") for prompt in prompts)
    return LogitDiff(-1, targets, tuple(token(prompt, "distractor") for prompt in prompts))
