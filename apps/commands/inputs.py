"""What an analysis is run on: a model, and prompts as an analysis takes them."""

from collections.abc import Sequence
from dataclasses import dataclass

import interp
from analyses.effects import Progress
from apps.defaults import LOSS
from interp.errors import InvalidInput
from interp.metrics import Metric, loss
from interp.metrics.prompts import logit_diff_of_prompts, tokens_of_prompts
from interp.text.prompts import Prompt


@dataclass(frozen=True)
class Inputs:
    """A model and prompts.

    Attributes:
        model: the model.
        prompts: in the order of their file.
        progress: called with what is done and the total.
    """

    model: interp.Transformer
    prompts: Sequence[Prompt]
    progress: Progress | None = None

    @property
    def texts(self) -> list[str]:
        """The text of each prompt."""
        return [prompt.text for prompt in self.prompts]

    @property
    def batch(self) -> list[str] | tuple[list[str], list[str]]:
        """What the model reads: the texts, or of an encoder–decoder ``(sources, targets)``.

        Raises:
            InvalidInput: an encoder–decoder's prompt lacks a target.
        """
        if len(self.model.stacks) == 1:
            return self.texts
        targets = [prompt.target for prompt in self.prompts if prompt.target is not None]
        if len(targets) < len(self.prompts):
            lacks = next(prompt for prompt in self.prompts if prompt.target is None)
            raise InvalidInput(
                f"{lacks.source}: an encoder–decoder's prompt needs a 'target', which its decoder "
                "reads; this prompt has none."
            )
        return self.texts, targets

    @property
    def targets(self) -> tuple[int, ...] | None:
        """The token id of each prompt's target; ``None`` where a prompt has none.

        Of an encoder–decoder, whose targets are texts that the decoder reads, there are none.

        Raises:
            InvalidInput: a target is not a single token.
        """
        given = all(prompt.target is not None for prompt in self.prompts)
        if not given or len(self.model.stacks) > 1:
            return None
        return tokens_of_prompts(self.model.to_single_token, self.prompts, "target")

    def metric(self, name: str) -> Metric:
        """The metric ``loss`` or ``logit-diff``, the latter with the targets of the prompts.

        Raises:
            InvalidInput: a prompt lacks a target or a distractor, or it is not a single token.
        """
        if name == LOSS:
            return loss()
        return logit_diff_of_prompts(self.model.to_single_token, self.prompts)
