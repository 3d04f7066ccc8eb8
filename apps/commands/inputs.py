"""The inputs of an analysis: a model, prompts in the form that analyses take, and run settings."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import Any

import interp
from analyses.methods.components import Batches, aligned_prompts
from analyses.results import Progress, Result
from apps.defaults import LOGIT_DIFF, MASKED_LOSS
from interp.errors import InvalidInput
from interp.metrics import Metric, logit, prob
from interp.prompts import (
    Prompt,
    logit_diff_of_prompts,
    masked_loss_of_targets,
    read_prompt_file,
    tokens_of_prompts,
)


class OptionWithoutEffect(InvalidInput):
    """``--rows`` or ``--memory`` was given to an analysis that takes no such setting.

    Attributes:
        option: the name of the option.
    """

    option: str = ""


class RowsWithoutEffect(OptionWithoutEffect):
    """``--rows`` has no effect."""

    option = "rows"


class MemoryWithoutEffect(OptionWithoutEffect):
    """``--memory`` has no effect."""

    option = "memory"


@dataclass(frozen=True)
class Inputs:
    """A model, prompts, and the settings with which an analysis runs.

    Attributes:
        model: the model.
        prompts: the prompts, in the order of their file.
        seed: seed of random draws.
        rows: prompts per forward; ``None`` leaves it to the analysis.
        memory: bytes that a sweep may use; ``None`` leaves it to ``budget``.
        budget: bytes that a sweep may use if ``memory`` is not given.
        progress: called with ``(done, total)``.
        cancelled: as for :func:`interp.sweep`.
        resume: as for :func:`interp.sweep`, or what else the analysis is resumed from.
        checkpoint: called by an analysis that can be resumed with its state so far.
        earlier: results of other analyses on the same model and prompts, by their commands, which
            some analyses can use instead of measuring the same again.
    """

    model: interp.Transformer
    prompts: Sequence[Prompt]
    seed: int = 0
    rows: int | None = None
    memory: int | None = None
    budget: int | None = None
    progress: Progress | None = None
    cancelled: Callable[[], bool] | None = None
    resume: Any = None
    checkpoint: Callable[[Any], None] | None = None
    earlier: Mapping[str, Result] = field(default_factory=dict[str, Result])

    def how(self, analysis: Callable[..., object], *excluded: str) -> dict[str, Any]:
        """Those of ``seed``, ``rows``, ``memory`` and ``progress`` that an analysis takes.

        Args:
            analysis: the function.
            excluded: names of its parameters that mean something else, and so are left out.

        Raises:
            OptionWithoutEffect: ``rows`` or ``memory`` is given and the analysis does not take it.
        """
        takes = inspect.signature(analysis).parameters.keys() - set(excluded)
        called = analysis.__name__
        if self.rows is not None and "rows" not in takes:
            raise RowsWithoutEffect(
                f"{called} runs all prompts in one forward pass and takes no --rows; give fewer "
                "prompts if they do not fit into memory."
            )
        if self.memory is not None and "memory" not in takes:
            raise MemoryWithoutEffect(f"{called} runs no sweep and takes no --memory.")
        values = {
            "seed": self.seed,
            "rows": self.rows,
            "memory": float(self.memory or self.budget or 0) or None,
            "progress": self.progress,
        }
        return {
            name: value for name, value in values.items() if name in takes and value is not None
        }

    def how_resumable(self, analysis: Callable[..., object], *excluded: str) -> dict[str, Any]:
        """As :meth:`how`, with what stops and resumes it; the result may then be partial."""
        how = {"cancelled": self.cancelled, "resume": self.resume, "checkpoint": self.checkpoint}
        takes = inspect.signature(analysis).parameters
        return self.how(analysis, *excluded) | {name: how[name] for name in how if name in takes}

    @property
    def texts(self) -> list[str]:
        """The text of each prompt."""
        return [prompt.text for prompt in self.prompts]

    @property
    def batch(self) -> list[str] | tuple[list[str], list[str]]:
        """The input of the model: the texts, or of an encoder–decoder ``(sources, prefixes)``.

        The decoder reads the ``prefix`` of a prompt, or its whole ``target`` if it has no prefix.

        Raises:
            InvalidInput: a prompt of an encoder–decoder has neither.
        """
        if self.has_one_stack:
            return self.texts
        return self.texts, [prompt.decoder_text for prompt in self.prompts]

    @property
    def targets(self) -> tuple[int, ...] | None:
        """The token id of each prompt's target; ``None`` if a prompt has no target.

        Also ``None`` for an encoder–decoder whose decoder reads the targets as its input.

        Raises:
            InvalidInput: a target is not a single token.
        """
        if self.all_have("target") and (self.has_one_stack or self.all_have("prefix")):
            return self.tokens("target")
        return None

    @property
    def distractors(self) -> tuple[int, ...] | None:
        """The token id of each prompt's distractor; ``None`` if a prompt has none.

        Raises:
            InvalidInput: a distractor is not a single token.
        """
        return self.tokens("distractor") if self.all_have("distractor") else None

    def of_file(self, source: str) -> "Inputs":
        """The same inputs with the prompts of a file or a bundled set.

        Raises:
            InvalidInput: there is no such file or set, or it can't be read.
        """
        return replace(self, prompts=read_prompt_file(source, self.model.chat).prompts)

    def divided(self, share: float) -> tuple["Inputs", "Inputs"]:
        """Split the prompts at random: the rest, and the share, each with at least one prompt.

        Raises:
            InvalidInput: there is a single prompt.
        """
        n = len(self.prompts)
        if n == 1:
            raise InvalidInput("A single prompt can't be split in two; give more prompts.")
        n_drawn = min(max(round(share * n), 1), n - 1)
        drawn = set(Random(self.seed).sample(range(n), n_drawn))
        parts: tuple[list[Prompt], list[Prompt]] = [], []
        for number, prompt in enumerate(self.prompts):
            parts[number in drawn].append(prompt)
        rest, drawn_inputs = (replace(self, prompts=part) for part in parts)
        return rest, drawn_inputs

    @property
    def labels(self) -> list[str]:
        """The ``target`` of each prompt, as a label that need not be a token.

        Raises:
            InvalidInput: a prompt has no target.
        """
        for prompt in self.prompts:
            if prompt.target is None:
                raise InvalidInput(
                    f"{prompt.source}: the label is read from 'target', which is missing."
                )
        return [str(prompt.target) for prompt in self.prompts]

    @property
    def has_one_stack(self) -> bool:
        """Whether the model has a single stack, that is, is not an encoder–decoder."""
        return len(self.model.stacks) == 1

    def all_have(self, field: str) -> bool:
        """Whether every prompt has a field."""
        return all(getattr(prompt, field) is not None for prompt in self.prompts)

    def tokens(self, field: str) -> tuple[int, ...]:
        """The token id of each prompt's ``target`` or ``distractor``.

        Raises:
            InvalidInput: a prompt lacks the field, or it is not a single token.
        """
        return tokens_of_prompts(self.model.to_single_token, self.prompts, field)

    @cached_property
    def pairs(self) -> tuple[Batches, Batches]:
        """The clean and the corrupted prompts, for each stack.

        Raises:
            InvalidInput: a prompt has no ``corrupt`` text, or one with another number of tokens.
        """
        return aligned_prompts(self.model, self.prompts)

    def metric(self, name: str) -> str | Metric:
        """The metric of a name; a metric of tokens gets the targets and distractors of the prompts.

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
