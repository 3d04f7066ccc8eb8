"""What reads a stream at one position, along one direction: a logit, a score or a neuron."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.attribution import (
    Head,
    PromptScores,
    StreamWalk,
    logit_direction,
    places_of_stream,
    walk_from_logits,
)
from analyses.methods.heads import AttentionName
from interp.cache import Cache
from interp.errors import InvalidInput, UnknownPlace, shorten
from interp.integers import within
from interp.metrics import at_least_float32
from interp.model import MLP, Attention, Batch, Network, Stack, Step, unembedding_of
from interp.points import Place

LOGITS = "logits"
PATTERN = re.compile(r"(?:decoder\.)?L(\d+)(?:H(\d+)\.([qk])|N(\d+))")
Columns = Int[Tensor, " batch"]
Directions = Float[Tensor, "batch d_model"]


@dataclass(frozen=True, eq=False)
class Reader:
    """A logit, one end of a head's score, or a neuron's input.

    Attributes:
        model: the model; the stream that is read is that of its last stack.
        until: the layer and the step that read; ``None`` for the logits.
        head: the head whose score is read.
        letter: ``Q`` or ``K``, the end of the score.
        neuron: the neuron.
    """

    model: Network
    until: tuple[int, Step] | None = None
    head: Head | None = None
    letter: str = ""
    neuron: int | None = None

    @classmethod
    def of(cls, model: Network, name: str, *, other: bool, target: bool) -> "Reader":
        """The reader of a name.

        Args:
            model: the model.
            name: ``logits``, ``L1H0.q``, ``L1H0.k`` or ``L1N5``.
            other: whether the position of the other end of a score is given.
            target: whether a target is given.

        Raises:
            UnknownPlace: the name has another form.
            InvalidInput: there is no such layer, head or neuron; or what the reader needs is not
                given, or is given without need.
        """
        match = PATTERN.fullmatch(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if name != LOGITS and match is None:
            raise UnknownPlace(
                f"reader={shorten(name)} should be logits, one end of a head's score, as L1H0.q or "
                "L1H0.k, or a neuron, as L1N5."
            )
        if target != (name == LOGITS):
            raise InvalidInput(f"target= is the token of reader='logits' alone; got {name!r}.")
        is_score = match is not None and match[3] is not None
        if other != is_score:
            raise InvalidInput(
                "other= is the position of a score's other end, of the key for queries (L1H0.q), "
                f"of the query for keys (L1H0.k); got reader={name!r}."
            )
        if match is None:
            unembedding_of(model)
            return cls(model)
        layer = within(0, len(model.stacks[-1].blocks) - 1, int(match[1]), "the layer of reader")
        if is_score:
            stack: AttentionName | None = "decoder" if len(model.stacks) > 1 else None
            head = Head.of(model, layer, int(match[2]), stack)
            return cls(model, (layer, head.step), head, match[3].upper())
        step, neuron = _neuron(model.stacks[-1], layer, int(match[4]))
        return cls(model, (layer, step), neuron=neuron)

    @property
    def stack(self) -> Stack:
        """The stack whose stream is read."""
        return self.model.stacks[-1]

    @property
    def unit(self) -> str:
        """The unit of what is read."""
        if self.until is None:
            return "logits"
        return "nats" if self.head is not None else "units of its input"

    @property
    def places(self) -> list[Place]:
        """The places that a run must record."""
        stack, at = self.stack, self.stack.name_in_places
        attentions = [f for _, step in stack.branches() if isinstance(f := step.f, Attention)]
        patterns = {f.points.pattern for f in attentions if not f.is_cross}
        extra = [
            place for place in self.model.layout if place.point in patterns and place.stack == at
        ]
        scores = [] if self.head is None else self.head.places
        return list(dict.fromkeys([*places_of_stream(self.model, stack), *extra, *scores]))

    def directions(
        self,
        cache: Cache,
        batches: Sequence[Batch],
        columns: Columns,
        others: Columns | None,
        ids: Sequence[Tensor],
    ) -> Directions:
        """What the stream after the reader's norm is multiplied by, in each row.

        Args:
            cache: cache of a run that recorded :attr:`places`.
            batches: the prompts of each stack.
            columns: the column that is read in each row.
            others: for a score, the column of the other end.
            ids: for a logit, the target of each row, and the distractor if there is one.

        Raises:
            InvalidInput: the cell of a score is masked.
        """
        if self.until is None:
            return logit_direction(unembedding_of(self.model), *ids)[0]
        if self.head is None or others is None:
            f = self.until[1].f
            if not isinstance(f, MLP):
                raise InvalidInput("The inputs of a mixture of experts are not neurons.")
            return at_least_float32(f.W_in[:, self.neuron]).expand(len(columns), -1)
        real = batches[-1].is_real.cumsum(-1) - 1
        rows: list[Tensor] = []
        for row, (column, other) in enumerate(zip(columns, others, strict=True)):
            at, end = int(real[row, column]), int(real[row, other])
            query, key = (at, end) if self.letter == "Q" else (end, at)
            scores = PromptScores(self.head, cache, batches, row)
            if not bool(scores.visible[query, key]):
                raise InvalidInput(
                    f"Key {key} of prompt {row} is masked for query {query}, so there is no score."
                )
            rows.append(scores.directions_read(self.letter, query, key))
        return torch.stack(rows)

    def walk(self, cache: Cache, columns: Columns, directions: Directions) -> StreamWalk:
        """The directions pulled back from the reader to the embeddings.

        Raises:
            InvalidInput: the logits are not linear in the stream.
        """
        if self.until is None:
            return walk_from_logits(self.model, cache, directions, columns)
        rows = torch.arange(len(columns), device=columns.device)
        walk = StreamWalk(self.stack, cache, rows, columns)
        return walk.from_step(*self.until, directions[:, None])


def _neuron(stack: Stack, layer: int, neuron: int) -> tuple[Step, int]:
    """The step of a neuron, and its checked index.

    Raises:
        InvalidInput: the layer has no such neuron.
    """
    for at, step in stack.branches():
        if at == layer and isinstance(step.f, MLP):
            return step, within(0, step.f.W_in.shape[1] - 1, neuron, "the neuron of reader")
    raise InvalidInput(f"Layer {layer} has no MLP whose neurons could read.")
