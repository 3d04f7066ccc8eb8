"""The corpus as token ids, and the rows that the Python models are trained on.

On this corpus alone, induction heads do not form within minutes, so a share of the rows repeats a
span until the row is full. Half of these spans are text; the other half are tokens drawn by
frequency, which can be predicted only by copying.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers
import torch
from jaxtyping import Float, Int, Int32
from torch import Tensor

from interp.errors import InvalidInput
from interp.metrics import next_token_losses
from interp.model import Batch
from interp.transformer import Transformer
from training.bpe import BOS, encode_corpus, train_bpe
from training.corpus import Corpus, read_corpus
from training.evaluations.induction import repeated_tokens
from training.evaluations.tables import (
    bigram_loss,
    bits_per_byte,
    held_out_loss,
    unigram_loss,
)
from training.loop import Schedule, StepLoss

SHORTEST_SPAN = 8
FREQUENT = 200
"""Smallest number of occurrences in the training text of a frequent token."""


@dataclass(frozen=True, eq=False)
class PythonText:
    """The corpus in the tokens of one model.

    Attributes:
        corpus: the texts.
        backend: the tokenizer, trained on the training text.
        train: ids of the training text, with a BOS before each document.
        held_out: ids of the held-out text, likewise.
    """

    corpus: Corpus
    backend: tokenizers.Tokenizer
    train: Int32[Tensor, " token"]
    held_out: Int32[Tensor, " held_out"]

    @classmethod
    def of(cls, corpus: Corpus, backend: tokenizers.Tokenizer) -> "PythonText":
        """Encode the corpus with ``backend``."""
        train, held_out = (
            encode_corpus(backend, [document.text for document in documents])
            for documents in (corpus.train, corpus.held_out)
        )
        return cls(corpus, backend, train, held_out)

    @classmethod
    def for_model(cls, model: Transformer) -> "PythonText":
        """This machine's corpus, encoded by the tokenizer of a model.

        Raises:
            InvalidInput: this Python has no source of its standard library, or the model has no
                tokenizer.
        """
        if model.tokenizer is None:
            raise InvalidInput("The model has no tokenizer to encode the corpus with.")
        return cls.of(read_corpus(), model.tokenizer.backend)

    @property
    def d_vocab(self) -> int:
        """Number of tokens in the vocabulary."""
        return self.backend.get_vocab_size()

    @property
    def description(self) -> str:
        """The ``data`` of a card: version, sizes, hash, tokenizer."""
        corpus = self.corpus
        return (
            f"Source and documentation of the Python {corpus.python} standard library: "
            f"{corpus.train_bytes / 1e6:.2f} MB ({len(self.train) / 1e6:.2f} million tokens) for "
            f"training, {corpus.held_out_bytes / 1e6:.2f} MB held out by file. SHA-256 of the "
            f"corpus: `{corpus.sha256}`. Byte-level BPE of {self.d_vocab} tokens, trained on the "
            "training text."
        )

    def description_with_repeats(self, repeated: float) -> str:
        """The ``data`` of a card for :class:`Rows` of which a share ``repeated`` repeats a span."""
        return (
            f"{self.description} Of the training rows, {repeated:.0%} hold a span of at least "
            f"{SHORTEST_SPAN} tokens that is repeated to fill the row; half of these spans are "
            "text, half are tokens drawn by frequency."
        )

    def losses(self, model: Transformer) -> dict[str, float]:
        """The loss of a decoder on the held-out text, and the losses of n-gram tables."""
        return {
            "held-out loss (nats per token)": held_out_loss(model, self.held_out),
            "held-out loss (bits per byte)": bits_per_byte(model, self.held_out),
            "bigram table's loss (nats per token)": bigram_loss(
                self.train, self.held_out, self.d_vocab
            ),
            "unigram table's loss (nats per token)": unigram_loss(
                self.train, self.held_out, self.d_vocab
            ),
        }

    def frequent(self) -> list[int]:
        """Tokens other than BOS that occur at least :data:`FREQUENT` times in the training text."""
        counts = torch.bincount(self.train.long(), minlength=self.d_vocab)
        special = self.backend.get_added_tokens_decoder()
        return [t for t in range(self.d_vocab) if t not in special and counts[t] >= FREQUENT]

    @property
    def rare_tokens(self) -> str:
        """Sentences for a card's ``limits`` about the infrequent tokens other than BOS."""
        frequent = set(self.frequent())
        rare = [token for token in range(1, self.d_vocab) if token not in frequent]
        return (
            f"{len(rare)} of its tokens occur fewer than {FREQUENT} times in training (ids "
            f"{_as_runs(rare)}): exclude them from statements about weights, and from random "
            "prompts. The random tokens of this card's figures are drawn evenly from the others."
        )

    def repeated_sample(self) -> Int[Tensor, "batch pos"]:
        """Rows of random frequent tokens, repeated once, on which induction is measured."""
        return repeated_tokens(self.frequent(), rows=64, half=60, seed=1, bos=0)


def _as_runs(ids: Sequence[int]) -> str:
    """Ascending ids as text, with runs abbreviated: ``1–4, 9``."""
    runs: list[list[int]] = []
    for token in ids:
        if runs and token == runs[-1][-1] + 1:
            runs[-1].append(token)
        else:
            runs.append([token])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def read_python(vocabulary: int, special: Sequence[str] = (BOS,)) -> PythonText:
    """Read the corpus and train a tokenizer on its training text.

    Args:
        vocabulary: number of tokens.
        special: special tokens, with ids from 0 on; BOS is the first.

    Raises:
        InvalidInput: this Python has no source of its standard library.
    """
    corpus = read_corpus()
    texts = [document.text for document in corpus.train]
    return PythonText.of(corpus, train_bpe(texts, vocabulary, special))


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows: BOS, then text or a repeated span.

    Attributes:
        tokens: ids of the training text.
        schedule: the schedule, which has the number of rows in a batch and their length.
        repeated: share of rows that repeat a span.
        bos: the first token of each row.
    """

    tokens: Int32[Tensor, " token"]
    schedule: Schedule
    repeated: float
    bos: int = 0

    def __call__(self, step: int) -> Int[Tensor, "batch pos"]:
        """The rows of one step."""
        generator = self.schedule.generator(step)
        rows, width = self.schedule.rows, self.schedule.width - 1
        offsets = torch.arange(width)

        def draw(high: int, *shape: int) -> Tensor:
            return torch.randint(high, shape, generator=generator)

        text = self.tokens[draw(len(self.tokens) - width, rows, 1) + offsets].long()
        by_frequency = self.tokens[draw(len(self.tokens), rows, width)].long()
        coin = torch.rand(rows, 1, generator=generator)
        spans = SHORTEST_SPAN + draw(width // 2 - SHORTEST_SPAN + 1, rows, 1)
        source = torch.where(coin < self.repeated / 2, by_frequency, text)
        repeats = source.gather(1, offsets % spans)
        chosen = torch.where(coin < self.repeated, repeats, text)
        return torch.cat([torch.full((rows, 1), self.bos), chosen], dim=1)


def next_token_loss(rows: Rows) -> StepLoss:
    """The mean next-token loss on the rows of each step."""

    def loss(model: Transformer, step: int) -> Float[Tensor, ""]:
        tokens = rows(step).to(model.device)
        return next_token_losses(model(tokens), Batch(tokens))[0].mean()

    return loss
