"""What do the Python models read? Windows of the standard library's text, some of them repeats.

On this corpus alone induction heads do not form in minutes: some rows must repeat themselves.
A repeated row is a span that is said again and again until the row is full; half of these spans
are text, half are tokens drawn by their frequency, which nothing but copying can foresee.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers
import torch
from jaxtyping import Float, Int, Int32
from torch import Tensor

from interp.errors import InvalidInput
from interp.metrics import next_token_losses
from interp.model.batch import Batch
from interp.transformer import Transformer
from interp.zoo.training.bpe import BOS, encode_corpus, train_bpe
from interp.zoo.training.corpus import Corpus, read_corpus
from interp.zoo.training.evaluations.induction import repeated_tokens
from interp.zoo.training.evaluations.tables import (
    bigram_loss,
    bits_a_byte,
    held_out_loss,
    unigram_loss,
)
from interp.zoo.training.loop import LossOf, Schedule

SHORTEST_SPAN = 8


@dataclass(frozen=True, eq=False)
class PythonText:
    """The corpus, as one model reads it.

    Attributes:
        corpus: the texts.
        backend: the tokenizer that was trained on them.
        train: the ids of the training text, each document after a BOS.
        held_out: the ids of the rest.
    """

    corpus: Corpus
    backend: tokenizers.Tokenizer
    train: Int32[Tensor, " token"]
    held_out: Int32[Tensor, " held_out"]

    @classmethod
    def of(cls, corpus: Corpus, backend: tokenizers.Tokenizer) -> "PythonText":
        """The corpus in the tokens of ``backend``."""
        train, held_out = (
            encode_corpus(backend, [document.text for document in documents])
            for documents in (corpus.train, corpus.held_out)
        )
        return cls(corpus, backend, train, held_out)

    @classmethod
    def as_read_by(cls, model: Transformer) -> "PythonText":
        """The corpus of this machine in the tokens of a model that was trained on it.

        Raises:
            InvalidInput: this Python has no source of its standard library, or the model has no
                tokenizer.
        """
        if model.tokenizer is None:
            raise InvalidInput("This model has no tokenizer: it reads no text.")
        return cls.of(read_corpus(), model.tokenizer.backend)

    @property
    def d_vocab(self) -> int:
        """How many tokens there are."""
        return self.backend.get_vocab_size()

    @property
    def told(self) -> str:
        """What a card tells of it."""
        corpus = self.corpus
        return (
            f"Source and documentation of the Python {corpus.python} standard library: "
            f"{corpus.train_bytes / 1e6:.2f} MB ({len(self.train) / 1e6:.2f} million tokens) to "
            f"train, {corpus.held_out_bytes / 1e6:.2f} MB held out by file. SHA-256 of the "
            f"corpus: `{corpus.sha256}`. Byte-level BPE of {self.d_vocab} tokens, trained on the "
            "same text."
        )

    def told_with_repeats(self, repeated: float) -> str:
        """The same, where a share of the :class:`Rows` that are trained on repeat a span."""
        return (
            f"{self.told} Of the training rows, {repeated:.0%} hold a span of at least "
            f"{SHORTEST_SPAN} tokens that is repeated to fill the row; half of these spans are "
            "text, half tokens drawn by frequency."
        )

    def losses(self, model: Transformer) -> dict[str, float]:
        """What a decoder does not foresee of the held-out text, and what tables do not."""
        return {
            "held-out loss (nats a token)": held_out_loss(model, self.held_out),
            "the same in bits a byte": bits_a_byte(model, self.held_out),
            "bigram table's loss (nats a token)": bigram_loss(
                self.train, self.held_out, self.d_vocab
            ),
            "unigram table's loss (nats a token)": unigram_loss(
                self.train, self.held_out, self.d_vocab
            ),
        }

    def frequent(self, least: int = 200) -> list[int]:
        """The tokens that occur at least so often, but for BOS: those that training has shaped."""
        counts = torch.bincount(self.train.long(), minlength=self.d_vocab)
        special = self.backend.get_added_tokens_decoder()
        return [t for t in range(self.d_vocab) if t not in special and counts[t] >= least]

    def said_twice(self) -> Int[Tensor, "batch pos"]:
        """Random tokens, said twice, of those that training has shaped."""
        return repeated_tokens(self.frequent(), rows=64, half=60, seed=1, bos=0)


def read_python(vocabulary: int, special: Sequence[str] = (BOS,)) -> PythonText:
    """The corpus and a tokenizer for it.

    Args:
        vocabulary: how many tokens the tokenizer gets.
        special: the special tokens, from id 0 on; BOS is the first.

    Raises:
        InvalidInput: this Python has no source of its standard library.
    """
    corpus = read_corpus()
    texts = [document.text for document in corpus.train]
    return PythonText.of(corpus, train_bpe(texts, vocabulary, special))


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows to train on: BOS, and then text, of which some repeats itself.

    Attributes:
        tokens: the text.
        schedule: how many rows there are in a batch, and how long they are.
        repeated: the share of rows that repeat a span.
        bos: begins each row.
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
        again = source.gather(1, offsets % spans)
        chosen = torch.where(coin < self.repeated, again, text)
        return torch.cat([torch.full((rows, 1), self.bos), chosen], dim=1)


def next_token_loss(rows: Rows) -> LossOf:
    """The mean next-token loss on the rows of each step."""

    def loss(model: Transformer, step: int) -> Float[Tensor, ""]:
        tokens = rows(step).to(model.device)
        return next_token_losses(model(tokens), Batch(tokens))[0].mean()

    return loss
