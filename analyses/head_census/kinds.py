"""What a kind of head is: its name, the statistic that shows it, and where that comes from.

A *family* measures one or more kinds on the same prompts or weights. It is a :class:`Family` at the
end of a module of this folder, listed in ``FAMILIES`` of the package; its function takes a
:class:`Case` and returns the kinds that it measured, each as :class:`Measured`, with a score and a
control of each head on each sample. It raises :class:`NotShown` where the model has no such tokens,
no room or no logits. That may depend on configuration and tokenizer, but not on weights, so that
all steps of a training have the same rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.methods.heads import attentions_of
from interp import Transformer
from interp.errors import InvalidTokens
from interp.metrics import Metric
from interp.model import Batch
from interp.prompts import Prompt
from interp.zoo import trained_tokens

Scores = Float[Tensor, "layer head sample"]


class NotShown(Exception):
    """The reason why a model can't show a kind of head."""


@dataclass(frozen=True)
class Kind:
    """A kind of head.

    Attributes:
        name: the role that such a head has.
        statistic: what its score is, in a line.
        reference: where it comes from.
        unit: unit of the score.
        least: the amount by which a score must exceed its control.
    """

    name: str
    statistic: str
    reference: str
    unit: str = "0 to 1"
    least: float = 0.1


@dataclass(frozen=True, eq=False)
class Task:
    """Prompts and a metric on which heads of a kind are ablated.

    Attributes:
        prompts: the prompts.
        metric: the metric.
        title: both in words.
    """

    prompts: Batch
    metric: str | Metric
    title: str


@dataclass(frozen=True, eq=False)
class Measured:
    """A kind as measured in one model.

    Attributes:
        kind: the kind.
        score: score of each head on each sample; NaN where a head has none.
        control: the same statistic where there is nothing to find.
        agrees: which heads have the further evidence that the kind needs; ``None`` if the score is
            all.
        task: where such heads are ablated; ``None`` if no prompts belong to the kind.
        silent: which heads write nothing; ``None`` if that was not measured.
    """

    kind: Kind
    score: Scores
    control: Scores
    agrees: Bool[Tensor, "layer head"] | None = None
    task: Task | None = None
    silent: Bool[Tensor, "layer head"] | None = None


@dataclass(frozen=True, eq=False)
class Case:
    """What a family measures on.

    Attributes:
        model: the model.
        rows: number of rows that are drawn.
        seed: seed of the draws.
        pairs: minimal pairs with two names.
        done: called with the part that is done, from 0 to 1.
        notes: notes on the measurement, which a family adds to.
        evoked: probabilities of answers without examples, which function vectors add.
    """

    model: Transformer
    rows: int
    seed: int
    pairs: tuple[Prompt, ...]
    done: Callable[[float], None]
    notes: list[str]
    evoked: dict[str, Float[Tensor, " prompt"]]

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of layers and of heads in a layer."""
        layers = attentions_of(self.model).layers
        return len(layers), layers[0].n_heads

    @property
    def predicts_next(self) -> bool:
        """Whether the model predicts next tokens."""
        config = self.model.config
        return config.is_causal and config.unembeds and config.n_classes is None

    @property
    def continues_texts(self) -> bool:
        """Whether it also has a tokenizer."""
        return self.predicts_next and self.model.tokenizer is not None

    @property
    def has_first_mlp(self) -> bool:
        """Whether heads after the first block read embeddings through an MLP."""
        return hasattr(self.model.stacks[0].block(0), "mlp")

    def encoded(self, text: str) -> list[int]:
        """The ids of a text, without special tokens; none if the tokenizer can't write it."""
        try:
            return [] if self.model.tokenizer is None else self.model.tokenizer.encode(text)
        except InvalidTokens:
            return []

    def token_of(self, text: str) -> int | None:
        """The id of a text that is a single trained token."""
        ids = self.encoded(text)
        return ids[0] if len(ids) == 1 and ids[0] in self.trained else None

    @cached_property
    def trained(self) -> frozenset[int]:
        """The ids that the model was trained on; all but special ones if that is not known."""
        return frozenset(trained_tokens(self.model))

    def drawn_tokens(self, n: int) -> Int[Tensor, " token"]:
        """Up to ``n`` distinct trained tokens in random order."""
        ids = torch.tensor(sorted(self.trained))
        generator = torch.Generator().manual_seed(self.seed)
        return ids[torch.randperm(len(ids), generator=generator)[:n]].to(self.model.device)


@dataclass(frozen=True)
class Family:
    """Kinds that are measured together.

    Attributes:
        name: the name by which ``families=`` asks for it.
        measure: measures its kinds, or raises :class:`NotShown`.
    """

    name: str
    measure: Callable[[Case], list[Measured]]
