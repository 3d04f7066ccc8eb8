"""What an analysis is run on: a model, prompts as an analysis takes them, and how it is run."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import interp
from analyses.effects import Progress
from apps.defaults import LOGIT_DIFF, MASKED_LOSS
from interp.errors import InvalidInput
from interp.interventions.minimal_pairs import Batches, aligned_prompts
from interp.metrics import Metric, logit, prob
from interp.metrics.prompts import (
    logit_diff_of_prompts,
    masked_loss_of_targets,
    tokens_of_prompts,
)
from interp.text.prompts import Prompt, read_prompt_file


@dataclass(frozen=True)
class Inputs:
    """A model and prompts, and how an analysis of them is run.

    Attributes:
        model: the model.
        prompts: in the order of their file.
        seed: of what is drawn.
        rows: prompts a forward; ``None`` leaves it to the analysis.
        memory: bytes that a sweep may take; ``None`` likewise.
        budget: bytes that a sweep takes at most if ``memory`` is not given.
        progress: called with what is done and the total.
        cancelled: as of :func:`interp.sweep`.
        resume: likewise.
    """

    model: interp.Transformer
    prompts: Sequence[Prompt]
    seed: int = 0
    rows: int | None = None
    memory: int | None = None
    budget: int | None = None
    progress: Progress | None = None
    cancelled: Callable[[], bool] | None = None
    resume: interp.Sweep | None = None

    def how(self, analysis: Callable[..., object], *own: str) -> dict[str, Any]:
        """Those of ``seed``, ``rows``, ``memory`` and ``progress`` that an analysis takes.

        Args:
            analysis: the function.
            own: parameters of these names that mean something else to it.

        Raises:
            InvalidInput: ``rows`` or ``memory`` is given and the analysis does not take it.
        """
        takes = inspect.signature(analysis).parameters.keys() - set(own)
        called = analysis.__name__
        if self.rows is not None and "rows" not in takes:
            raise InvalidInput(
                f"{called} runs all prompts in one forward and takes no --rows; give fewer prompts "
                "where they don't fit."
            )
        if self.memory is not None and "memory" not in takes:
            raise InvalidInput(f"{called} runs no sweep and takes no --memory.")
        given = {
            "seed": self.seed,
            "rows": self.rows,
            "memory": float(self.memory or self.budget or 0) or None,
            "progress": self.progress,
        }
        return {name: value for name, value in given.items() if name in takes and value is not None}

    def how_resumable(self, analysis: Callable[..., object]) -> dict[str, Any]:
        """As :meth:`how`, with ``cancelled`` and ``resume``, for a result that may be partial."""
        return {**self.how(analysis), "cancelled": self.cancelled, "resume": self.resume}

    @property
    def texts(self) -> list[str]:
        """The text of each prompt."""
        return [prompt.text for prompt in self.prompts]

    @property
    def batch(self) -> list[str] | tuple[list[str], list[str]]:
        """What the model reads: the texts, or of an encoder–decoder ``(sources, prefixes)``.

        Its decoder reads the ``prefix`` of a prompt, or the whole ``target`` where there is none.

        Raises:
            InvalidInput: an encoder–decoder's prompt has neither.
        """
        if self.has_one_stack:
            return self.texts
        return self.texts, [prompt.decoder_text for prompt in self.prompts]

    @property
    def targets(self) -> tuple[int, ...] | None:
        """The token id of each prompt's target; ``None`` where a prompt has none.

        Nor has an encoder–decoder any whose decoder reads the targets.

        Raises:
            InvalidInput: a target is not a single token.
        """
        if self.all_have("target") and (self.has_one_stack or self.all_have("prefix")):
            return self.tokens("target")
        return None

    def of_file(self, source: str) -> "Inputs":
        """The same model, with the prompts of a file or a bundled set.

        Raises:
            InvalidInput: there is none, or it can't be read.
        """
        return replace(self, prompts=read_prompt_file(source).prompts)

    def divided(self, share: float) -> tuple["Inputs", "Inputs"]:
        """Two parts of the prompts: the rest, and a share drawn by the seed, of one or more each.

        Raises:
            InvalidInput: there is a single prompt.
        """
        n = len(self.prompts)
        if n == 1:
            raise InvalidInput("A single prompt can't be divided in two; give more prompts.")
        n_drawn = min(max(round(share * n), 1), n - 1)
        drawn = set(Random(self.seed).sample(range(n), n_drawn))
        parts: tuple[list[Prompt], list[Prompt]] = [], []
        for number, prompt in enumerate(self.prompts):
            parts[number in drawn].append(prompt)
        rest, held = (replace(self, prompts=part) for part in parts)
        return rest, held

    @property
    def labels(self) -> list[str]:
        """The ``target`` of each prompt, as a label that need not be a token.

        Raises:
            InvalidInput: a prompt lacks it.
        """
        for prompt in self.prompts:
            if prompt.target is None:
                raise InvalidInput(f"{prompt.source}: a label is read from 'target'; it has none.")
        return [str(prompt.target) for prompt in self.prompts]

    @property
    def has_one_stack(self) -> bool:
        """Whether the model is no encoder–decoder."""
        return len(self.model.stacks) == 1

    def all_have(self, field: str) -> bool:
        """Whether every prompt has that field."""
        return all(getattr(prompt, field) is not None for prompt in self.prompts)

    def tokens(self, field: str) -> tuple[int, ...]:
        """The token id of each prompt's ``target`` or ``distractor``.

        Raises:
            InvalidInput: a prompt lacks it, or it is not a single token.
        """
        return tokens_of_prompts(self.model.to_single_token, self.prompts, field)

    @property
    def pairs(self) -> tuple[Batches, Batches]:
        """The clean and the corrupted prompts, of each stack.

        Raises:
            InvalidInput: a prompt has no ``corrupt`` text, or one of another length.
        """
        return aligned_prompts(self.model, self.prompts)

    def metric(self, name: str) -> str | Metric:
        """The metric of that name, for an analysis; those of tokens have those of the prompts.

        Raises:
            InvalidInput: a prompt lacks a target or a distractor, or it is not a single token.
        """
        of_tokens = (LOGIT_DIFF, MASKED_LOSS, "logit", "prob")
        return self.token_metric(name) if name in of_tokens else name

    def token_metric(self, name: str) -> Metric:
        """The metric ``logit-diff``, ``masked-loss``, ``logit`` or ``prob`` of the prompts' tokens.

        Raises:
            InvalidInput: as for :meth:`metric`.
        """
        if name == LOGIT_DIFF:
            return logit_diff_of_prompts(self.model.to_single_token, self.prompts)
        if name == MASKED_LOSS:
            return masked_loss_of_targets(self.model.batch(self.texts), self.tokens("target"))
        return {"logit": logit, "prob": prob}[name](self.tokens("target"))
