"""``dates``: an encoder–decoder that writes dates in ISO 8601.

    "3 March 2021", "03/03/21" (day first), "Wednesday, March 3rd 2021"   →   "2021-03-03"

A small Transformer as in Vaswani et al. 2017: sinusoidal positions, post-norm, cross-attention.
Where the decoder predicts the day, its cross-attention attends to the day in the source, and
likewise for month and year; the card gives the alignment of the best heads.
"""

from datetime import date
from hashlib import sha256

import torch
from jaxtyping import Float, Int
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend
from torch import Tensor

from interp.config import (
    AttentionConfig,
    Config,
    EmbeddingConfig,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
    TokensConfig,
)
from interp.metrics import next_token_losses
from interp.model import PAD, Batch
from interp.text import Tokenizer
from interp.transformer import Transformer
from interp.zoo import Card, History
from training.calendar import FORMATS, MONTHS, SUFFIXES, WEEKDAYS, WrittenDate
from training.evaluations.alignment import FIELDS, Alignment, alignment
from training.loop import Schedule
from training.training_run import (
    BuiltModel,
    TrainingRun,
    figures_of,
    mechanism_if_complete,
    recipe_of,
    sha256_of,
)

NAME = "dates"
START, END = "<|start|>", "<|end|>"
FIRST, LAST = date(1950, 1, 1), date(2049, 12, 31)
HELD_OUT_SHARE = 0.1
D_MODEL = 128
SCHEDULE = Schedule(steps=2000, rows=128, width=12, lr=1e-3, warm_up=200)
WORDS = [START, END, *"0123456789", " ", "/", "-", ",", *SUFFIXES, *WEEKDAYS, *MONTHS]

_STACK = StackConfig(
    n_layers=2,
    attention=AttentionConfig(n_heads=4, d_head=32),
    mlp=MLPConfig(d_mlp=256, activation="relu"),
    norm=NormConfig(placement="post", final=False),
    positions=PositionsConfig(kind="sinusoidal"),
    embedding=EmbeddingConfig(scale=D_MODEL**0.5),
)
CONFIG = Config(
    name=NAME,
    d_model=D_MODEL,
    d_vocab=len(WORDS),
    n_ctx=32,
    encoder=_STACK,
    decoder=_STACK,
    shared=True,
    tied=True,
    tokens=TokensConfig(eos=1, decoder_start=0, append_eos=True),
)


def build(run: TrainingRun) -> BuiltModel:
    """Train the model from random weights and measure it."""
    schedule = run.schedule(SCHEDULE)
    torch.manual_seed(schedule.seed)
    model = Transformer(CONFIG, _tokenizer())
    train, _ = split()
    sources = model.to_tokens([example.text for example in train])
    targets = targets_of(model, train)

    def loss(model: Transformer, step: int) -> Float[Tensor, ""]:
        draw = torch.randint(len(train), (schedule.rows,), generator=schedule.generator(step))
        target = targets[draw].to(model.device)
        logits = model(sources[draw].to(model.device), target)
        return next_token_losses(logits, Batch(target))[0].mean()

    history = run.train(model, loss, schedule, _data(train))
    return BuiltModel.trained(model, history, card)


def every_text() -> list[WrittenDate]:
    """Every date in every format; the days are in the order of their hashes."""
    days = [date.fromordinal(n) for n in range(FIRST.toordinal(), LAST.toordinal() + 1)]
    days.sort(key=_draw)
    return [WrittenDate.of(day, name) for day in days for name in FORMATS]


def split() -> tuple[list[WrittenDate], list[WrittenDate]]:
    """Training and held-out texts; a held-out day is held out in every format."""
    texts = every_text()
    held_out = {example.day for example in texts if _draw(example.day) < HELD_OUT_SHARE}
    return (
        [example for example in texts if example.day not in held_out],
        [example for example in texts if example.day in held_out],
    )


def targets_of(model: Transformer, written: list[WrittenDate]) -> Int[Tensor, "batch target"]:
    """Ids of start token, ISO date and end token."""
    ids = model.to_tokens([example.iso for example in written])
    start = torch.full((len(ids), 1), model.config.tokens.decoder_start or 0)
    return torch.cat([start, ids], dim=1)


def exact_match(model: Transformer, written: list[WrittenDate], rows: int = 512) -> float:
    """The share of texts for which the generated date is correct in every character."""
    correct = 0
    for first in range(0, len(written), rows):
        part = written[first : first + rows]
        generated = model.generate([example.text for example in part], max_new_tokens=11)
        texts = model.to_string(generated.where(generated != 1, PAD))
        correct += sum(
            text == START + example.iso for text, example in zip(texts, part, strict=True)
        )
    return correct / len(written)


def encode(
    model: Transformer, written: list[WrittenDate]
) -> tuple[Int[Tensor, "batch source"], Int[Tensor, "batch target"], Int[Tensor, "batch source"]]:
    """Source ids, target ids, and the index in ``FIELDS`` of each source token (−1 for none)."""
    sources = model.to_tokens([example.text for example in written])
    fields = torch.full(sources.shape, -1)
    for row, example in enumerate(written):
        for pos, field in enumerate(example.fields):
            fields[row, pos] = FIELDS.index(field) if field in FIELDS else -1
    return sources, targets_of(model, written), fields


def _draw(day: date) -> float:
    """A number in [0, 1) from a hash of the day."""
    return int.from_bytes(sha256(day.isoformat().encode()).digest()[:8], "big") / 2**64


def _alignment_figures(attention: Alignment) -> dict[str, float | int | str]:
    figures: dict[str, float | int | str] = {}
    for field in FIELDS:
        head, score, uniform = attention.best(field)
        figures[_best_head(field)] = head
        figures[f"its attention to the {field} where that is predicted"] = score
        figures[f"uniform attention to the {field}"] = uniform
    return figures


def _best_head(field: str) -> str:
    """The name of a figure."""
    return f"cross-attention head that aligns the {field} best"


def _tokenizer() -> Tokenizer:
    """One token per word, digit, ordinal suffix and sign."""
    backend = Backend(models.WordLevel({word: index for index, word in enumerate(WORDS)}))
    backend.add_special_tokens([START, END])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\p{L}+|."), behavior="isolated")
    backend.decoder = decoders.Fuse()
    return Tokenizer(backend, eos=1)


def card(model: Transformer, history: History) -> Card:
    """Measure the model and return its card."""
    train, held_out = split()
    measured = {
        "exact match on held-out dates": exact_match(model, held_out),
        **_alignment_figures(alignment(model, *encode(model, held_out[:3000]))),
    }
    heads = ", ".join(f"{measured[_best_head(field)]} ({field})" for field in FIELDS)
    mechanism = (
        "Alignment: where the decoder predicts a digit of the year, month or day, its "
        f"cross-attention attends to that part of the source: {heads}."
    )
    return Card(
        name=NAME,
        summary="An encoder–decoder that writes dates as year-month-day.",
        mechanism=mechanism_if_complete(mechanism, SCHEDULE, history),
        data=_data(train),
        recipe=recipe_of(NAME, SCHEDULE, history),
        limits=(
            f"It reads these formats only, and years from {FIRST.year} to {LAST.year}: the "
            f"two-digit years {FIRST.year % 100} to 99 are {FIRST.year} to 1999."
        ),
        prompts=NAME,
        figures=figures_of(model, measured, history),
        pairs=f"{NAME}-pairs",
        trained_tokens=tuple(range(WORDS.index("0"), len(WORDS))),
    )


def _data(train: list[WrittenDate]) -> str:
    digest = sha256_of(f"{example.text} {example.iso}" for example in train)
    return (
        f"Every day from {FIRST} to {LAST} in {len(FORMATS)} formats: "
        f"{', '.join(f'`{WrittenDate.of(date(2021, 3, 3), name).text}`' for name in FORMATS)}. "
        f"{HELD_OUT_SHARE:.0%} of the days, chosen by a hash, are held out in every format. "
        f"SHA-256 of the training data: `{digest}`."
    )
