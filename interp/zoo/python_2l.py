"""``python-2l``: two attention-only layers, trained on the Python standard library.

Induction heads form in it (Olsson et al. 2022). On this corpus alone they do not form in minutes:
the tokens must be few, and some rows must repeat themselves. So the vocabulary has 512 tokens
and two rows in five hold a span that is repeated to fill the row: half of these spans are text,
half are tokens drawn by their frequency.
"""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Int
from torch import Tensor

from interp.config import (
    AttentionConfig,
    Config,
    NormConfig,
    PositionsConfig,
    StackConfig,
    TokensConfig,
)
from interp.tokenizer import Tokenizer
from interp.transformer import Transformer
from interp.zoo.bpe import encode_corpus, train_bpe
from interp.zoo.corpus import Corpus, read_corpus
from interp.zoo.training import Schedule, train

NAME = "python-2l"
VOCABULARY = 512
REPEATED_ROWS = 0.4
SHORTEST_SPAN = 8
SCHEDULE = Schedule(steps=4000)

CONFIG = Config(
    name=NAME,
    d_model=256,
    d_vocab=VOCABULARY,
    n_ctx=256,
    decoder=StackConfig(
        n_layers=2,
        attention=AttentionConfig(n_heads=8, d_head=32, bias_o=False),
        norm=NormConfig(),
        positions=PositionsConfig(kind="rotary"),
    ),
    tokens=TokensConfig(bos=0, prepend_bos=True),
)


def rows(
    tokens: Int[Tensor, " token"], schedule: Schedule, bos: int
) -> Iterator[Int[Tensor, "batch pos"]]:
    """Batches without end, the same for the same seed; each row is BOS and then text or repeats."""
    generator = torch.Generator().manual_seed(schedule.seed)
    width = schedule.width - 1
    offsets = torch.arange(width)

    def draw(high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=generator)

    while True:
        starts = draw(len(tokens) - width, schedule.rows, 1)
        text = tokens[starts + offsets].long()
        by_frequency = tokens[draw(len(tokens), schedule.rows, width)].long()
        coin = torch.rand(schedule.rows, 1, generator=generator)
        spans = SHORTEST_SPAN + draw(width // 2 - SHORTEST_SPAN + 1, schedule.rows, 1)
        source = torch.where(coin < REPEATED_ROWS / 2, by_frequency, text)
        repeated = source.gather(1, offsets % spans)
        chosen = torch.where(coin < REPEATED_ROWS, repeated, text)
        yield torch.cat([torch.full((schedule.rows, 1), bos), chosen], dim=1)


def make(
    report: Callable[[int, float], None], schedule: Schedule = SCHEDULE
) -> tuple[Transformer, Corpus, list[float]]:
    """Train the model from nothing: the model, what it was trained on, the loss of each step."""
    corpus = read_corpus()
    texts = [document.text for document in corpus.train]
    backend = train_bpe(texts, VOCABULARY)
    tokens = encode_corpus(backend, texts)
    torch.manual_seed(schedule.seed)
    model = Transformer(CONFIG, Tokenizer(backend, bos=CONFIG.tokens.bos))
    losses = train(model, rows(tokens, schedule, bos=0), schedule, report)
    return model, corpus, losses
