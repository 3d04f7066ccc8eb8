"""Can a model read a set of prompts, and does it predict their targets?

Each prompt is checked for problems: its text must fit in the context; target and distractor must be
different single tokens; clean and corrupted texts must be aligned token by token. For the prompts
that can be read, at the position where the metrics read the logits:

    accuracy  = share of prompts whose target has the largest logit
    preferred = share of prompts with logit(target) > logit(distractor)

Effects of ablation or patching on a logit difference explain a behaviour only as far as the model
shows it, so both should be well above chance (Wang et al. 2022, "Interpretability in the Wild").
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from analyses.check_prompts.prompt_batches import PromptBatch, prompts_by_length
from analyses.check_prompts.prompt_problems import LENGTH, LengthOf, Problem, problems_of
from interp.errors import InvalidInput
from interp.io import Table
from interp.metrics import Accuracy, LogitDiff, measure_stream
from interp.prompts import FIELDS, Prompt
from interp.transformer import TextNetwork

MOST_PROBLEMS = 1000
"""Number of problems that are kept; all are counted."""
WORDS = {
    "text": ("texts", "readable", "unreadable"),
    "corrupt": ("corrupted texts", "aligned", "not aligned"),
    "prefix": ("prefixes", "readable", "unreadable"),
    "target": ("targets", "single tokens", "not single tokens"),
    "distractor": ("distractors", "single tokens", "not single tokens of their own"),
}
"""For each field, its name in the plural and the descriptions of right and wrong values."""


class Share(NamedTuple):
    """A share of the prompts.

    Attributes:
        n: number of prompts for which a condition holds.
        of: number of prompts for which it was checked.
    """

    n: int
    of: int

    @property
    def value(self) -> float | None:
        """The share ``n / of``; ``None`` if ``of`` is 0."""
        return self.n / self.of if self.of else None

    def __str__(self) -> str:
        return "–" if self.value is None else f"{self.n} of {self.of} ({self.value:.0%})"


@dataclass(frozen=True, eq=False, repr=False)
class PromptCheck:
    """The result of checking a set of prompts.

    Attributes:
        n: number of prompts.
        given: number of prompts that have each field.
        lengths: number of prompts of each length in tokens, BOS included, the shortest first;
            prompts that the model can't encode are excluded.
        context: length of the longest prompt that the model reads, in tokens.
        wrong: number of prompts with a problem in each field, and in ``length``.
        n_wrong: number of prompts with a problem.
        problems: the first ``MOST_PROBLEMS`` problems, in the order of the prompts.
        accuracy: share of prompts whose target has the largest logit.
        preferred: share of prompts whose target has a larger logit than the distractor.
    """

    n: int
    given: Mapping[str, int]
    lengths: Mapping[int, int]
    context: int
    wrong: Mapping[str, int]
    n_wrong: int
    problems: tuple[Problem, ...]
    accuracy: Share
    preferred: Share

    @property
    def holds(self) -> bool:
        """Whether no prompt has a problem; a wrong prediction is not a problem."""
        return self.n_wrong == 0

    @property
    def median_length(self) -> int | None:
        """The lower median of the lengths in tokens."""
        seen, half = 0, (sum(self.lengths.values()) + 1) // 2
        for length, number in self.lengths.items():
            seen += number
            if seen >= half:
                return length
        return None

    def rows(self) -> list[tuple[str, str]]:
        """The result as the rows of a table."""
        rows = [("prompts", str(self.n))]
        if self.lengths:
            lengths, median = list(self.lengths), self.median_length
            span = f"{lengths[0]} to {lengths[-1]}, median {median}" if lengths[1:] else f"{median}"
            rows.append(("tokens", f"{span}; the context is {self.context}"))
        for field, (name, right, wrong) in WORDS.items():
            if field in self.given:
                rows.append(
                    (name, _counted(self.given[field], self.wrong.get(field, 0), right, wrong))
                )
        if LENGTH in self.wrong:
            rows.append(("lengths", f"{self.wrong[LENGTH]} other than that of the first prompt"))
        rows.append(("target predicted", str(self.accuracy)))
        return [*rows, ("target above distractor", str(self.preferred))]

    def __repr__(self) -> str:
        return self._table().to_text()

    def _repr_html_(self) -> str:
        return self._table().to_html()

    def _table(self) -> Table:
        title = f"Prompts with a problem: {self.n_wrong} of {self.n}"
        return Table(title, ("", "found"), self.rows())

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values; ``lengths`` as pairs of a length and a number of prompts."""
        shares = {"accuracy": self.accuracy, "preferred": self.preferred}
        return {
            "holds": self.holds,
            "prompts": self.n,
            "context": self.context,
            "lengths": [list(pair) for pair in self.lengths.items()],
            "given": dict(self.given),
            "wrong": {"prompts": self.n_wrong, **self.wrong},
            **{k: {"n": s.n, "of": s.of, "share": s.value} for k, s in shares.items()},
            "problems": [problem._asdict() for problem in self.problems],
        }


def check_prompts(
    model: TextNetwork,
    prompts: Iterable[Prompt],
    *,
    same_length: bool = False,
    rows: int = 64,
) -> PromptCheck:
    """Check prompts against a model, with a bounded number of them in memory.

    Args:
        model: the model, with a tokenizer.
        prompts: an iterable such as :func:`interp.iter_prompts` returns.
        same_length: whether all texts must have as many tokens as the first.
        rows: largest number of prompts per forward.

    Raises:
        InvalidInput: the model has no tokenizer, or its logits are NaN; a prompt can't be read from
            its file.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> analyses.check_prompts(model, interp.read_prompts("letters"))
        Prompts with a problem: 0 of 24
                                   found
          prompts                  24
          tokens                   9 to 22, median 14; the context is 64
          texts                    24, all readable
          targets                  24, all single tokens
          distractors              24, all single tokens
          target predicted         24 of 24 (100%)
          target above distractor  24 of 24 (100%)
    """
    if model.tokenizer is None:
        raise InvalidInput("This model has no tokenizer, so it can't read prompts of text.")
    totals = _Totals(model, same_length=same_length)
    batches = prompts_by_length(model, totals.predicted(prompts), rows=rows)
    if not model.config.unembeds or model.config.n_classes is not None:
        for _ in batches:  # the model predicts no tokens, so only lengths and pairs are checked
            pass
    else:
        for batch in batches:
            totals.add(batch)
    return totals.result()


class _Totals:
    """Accumulates the result over prompts."""

    def __init__(self, model: TextNetwork, *, same_length: bool) -> None:
        self.model = model
        self.length_of = LengthOf(model, same=same_length)
        self.n = self.n_wrong = 0
        self.given, self.wrong = Counter[str](), Counter[str]()
        self.problems: list[Problem] = []
        self.accuracy, self.preferred = Share(0, 0), Share(0, 0)

    def predicted(self, prompts: Iterable[Prompt]) -> Iterator[Prompt]:
        """Check all prompts, and yield those whose targets are compared with predictions."""
        for prompt in prompts:
            problems = problems_of(self.model, prompt, self.length_of)
            self.n += 1
            self.given.update(prompt.fields().keys())
            wrong = {problem.field for problem in problems}
            self.n_wrong += bool(wrong)
            self.wrong.update(wrong)
            self.problems += problems[: MOST_PROBLEMS - len(self.problems)]
            reads_target = len(self.model.stacks) > 1 and prompt.prefix is None
            if prompt.target is not None and not reads_target and not wrong - {"corrupt", LENGTH}:
                yield prompt

    @torch.no_grad()
    def add(self, batch: PromptBatch) -> None:
        """Compare the model's predictions with the targets of a batch."""
        model, prompts = self.model, batch.prompts
        x, read = model.stream(batch.batches), batch.batches[-1]
        targets = tuple(model.to_single_token(p.target or "") for p in prompts)
        others = tuple(
            target if p.distractor is None else model.to_single_token(p.distractor)
            for p, target in zip(prompts, targets, strict=True)
        )
        top = measure_stream(Accuracy(None, targets), model, x, read)
        larger = measure_stream(LogitDiff(None, targets, others), model, x, read) > 0
        n_both = sum(p.distractor is not None for p in prompts)
        self.accuracy = _added(self.accuracy, int(top.sum()), len(prompts))
        self.preferred = _added(self.preferred, int(larger.sum()), n_both)

    def result(self) -> PromptCheck:
        """The result over all prompts."""
        return PromptCheck(
            n=self.n,
            given={name: self.given[name] for name in FIELDS if self.given[name]},
            lengths=dict(sorted(self.length_of.counts.items())),
            context=self.length_of.context,
            wrong={name: self.wrong[name] for name in (*FIELDS, LENGTH) if self.wrong[name]},
            n_wrong=self.n_wrong,
            problems=tuple(self.problems),
            accuracy=self.accuracy,
            preferred=self.preferred,
        )


def _added(share: Share, n: int, of: int) -> Share:
    return Share(share.n + n, share.of + of)


def _counted(total: int, wrong: int, right: str, not_right: str) -> str:
    return f"{total}, {wrong} {not_right}" if wrong else f"{total}, all {right}"
