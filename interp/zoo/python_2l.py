"""``python-2l``: two attention-only layers, trained on the Python standard library.

Induction heads form in it (Olsson et al. 2022). On this corpus alone they do not form in minutes:
the tokens must be few, and some rows must repeat themselves. So the vocabulary has 512 tokens
and two rows in five hold a span that is repeated to fill the row: half of these spans are text,
half are tokens drawn by their frequency.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

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
from interp.zoo.card import Card
from interp.zoo.corpus import Corpus, read_corpus
from interp.zoo.proof import (
    bigram_loss,
    head_name,
    held_out_loss,
    induction_scores,
    previous_token_scores,
    repeated_losses,
    repeated_tokens,
    unigram_loss,
)
from interp.zoo.training import Report, Schedule, train

NAME = "python-2l"
VOCABULARY = 512
REPEATED_ROWS = 0.4
SHORTEST_SPAN = 8
SCHEDULE = Schedule(steps=2500)

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


def make(steps: int | None, report: Report) -> tuple[Transformer, Card]:
    """Train the model from nothing and measure it.

    Args:
        steps: how many updates; ``None`` means as many as the bundled model had.
        report: told of each step.
    """
    schedule = SCHEDULE if steps is None else replace(SCHEDULE, steps=steps)
    corpus = read_corpus()
    texts = [document.text for document in corpus.train]
    backend = train_bpe(texts, VOCABULARY)
    tokens = encode_corpus(backend, texts)
    torch.manual_seed(schedule.seed)
    model = Transformer(CONFIG, Tokenizer(backend, bos=CONFIG.tokens.bos))
    begun = time.monotonic()
    train(model, rows(tokens, schedule, bos=0), schedule, report)
    seconds = time.monotonic() - begun
    held_out = encode_corpus(backend, [document.text for document in corpus.held_out])
    return model, _card(
        model,
        corpus,
        schedule,
        {**_measured(model, tokens, held_out), "training time (s)": round(seconds)},
    )


def frequent_tokens(tokens: Int[Tensor, " token"], least: int = 200) -> list[int]:
    """The tokens that occur at least so often, without BOS: those that training has shaped."""
    counts = torch.bincount(tokens.long(), minlength=VOCABULARY)
    return [token for token in range(1, VOCABULARY) if counts[token] >= least]


def _measured(
    model: Transformer, tokens: Int[Tensor, " token"], held_out: Int[Tensor, " held_out"]
) -> dict[str, float | int | str]:
    repeated = repeated_tokens(frequent_tokens(tokens), rows=64, half=60, seed=1, bos=0)
    first, second = repeated_losses(model, repeated)
    previous, induction = previous_token_scores(model, repeated), induction_scores(model, repeated)
    return {
        "held-out loss (nats a token)": held_out_loss(model, held_out),
        "bigram table's loss (nats a token)": bigram_loss(tokens, held_out, VOCABULARY),
        "unigram table's loss (nats a token)": unigram_loss(tokens, held_out, VOCABULARY),
        "loss on random tokens (nats)": first,
        "loss on their repetition (nats)": second,
        "best previous-token head": head_name(previous),
        "its previous-token score": previous.max().item(),
        "best induction head": head_name(induction),
        "its induction score": induction.max().item(),
    }


def _card(
    model: Transformer,
    corpus: Corpus,
    schedule: Schedule,
    figures: dict[str, float | int | str],
) -> Card:
    return Card(
        name=NAME,
        summary="Two attention-only layers, trained on the Python standard library.",
        circuit=(
            f"Induction: {figures['best previous-token head']} attends to the token before, "
            f"{figures['best induction head']} to the token after an earlier copy of the present "
            "one. On random tokens, said twice, the loss falls on the second saying."
        ),
        data=(
            f"Source and documentation of the Python {corpus.python} standard library: "
            f"{corpus.train_bytes / 1e6:.2f} MB to train, {corpus.held_out_bytes / 1e6:.2f} MB "
            f"held out by file. SHA-256 of the corpus: `{corpus.sha256}`. Byte-level BPE of "
            f"{VOCABULARY} tokens, trained on the same text. Of the training rows, "
            f"{REPEATED_ROWS:.0%} hold a span of at least {SHORTEST_SPAN} tokens that is repeated "
            "to fill the row; half of these spans are text, half tokens drawn by frequency."
        ),
        recipe=(
            f"`interp train {NAME}`: {schedule.steps} steps of {schedule.rows} × {schedule.width} "
            f"tokens, AdamW, learning rate {schedule.lr} after {schedule.warm_up} steps of warm-up "
            f"and then by a cosine, weight decay {schedule.weight_decay}, gradients clipped at "
            f"{schedule.clip}, seed {schedule.seed}; {torch.get_num_threads()} threads."
        ),
        limits=(
            "It has seen rows of 128 tokens, and tokens that are pieces of words: it copies and "
            "continues code that looks familiar, and knows little else. About 160 of its tokens "
            "occur fewer than 200 times in training; leave them out of statements about weights."
        ),
        prompts="repeated",
        figures={"parameters": sum(p.numel() for p in model.parameters()), **figures},
    )
