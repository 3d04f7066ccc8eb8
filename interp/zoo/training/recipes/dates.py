"""``dates``: an encoder–decoder that writes dates as ISO 8601 does.

    "3 March 2021", "03/03/21" (day first), "Wednesday, March 3rd 2021"   →   "2021-03-03"

The Transformer of Vaswani et al. 2017 in small: sinusoidal positions, norms after each sub-layer,
cross-attention. Where the decoder writes the day it looks at the day, and so for month and year;
that is seen in the patterns of cross-attention, and scored.
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
from interp.model.batch import PAD, Batch
from interp.text.tokenizer import Tokenizer
from interp.transformer import Transformer
from interp.zoo.card import Card
from interp.zoo.history import History
from interp.zoo.training.calendar import FORMATS, MONTHS, SUFFIXES, WEEKDAYS, Written
from interp.zoo.training.evaluations.alignment import FIELDS, Alignment, alignment
from interp.zoo.training.loop import Schedule
from interp.zoo.training.training_run import (
    Made,
    Workshop,
    as_stored,
    claimed,
    sha256_of,
    told_recipe,
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


def make(workshop: Workshop) -> Made:
    """Train the model from nothing and measure it."""
    schedule = workshop.schedule(SCHEDULE)
    torch.manual_seed(schedule.seed)
    model = Transformer(CONFIG, _tokenizer())
    train, _ = split()
    sources = model.to_tokens([one.text for one in train])
    targets = targets_of(model, train)

    def loss(model: Transformer, step: int) -> Float[Tensor, ""]:
        draw = torch.randint(len(train), (schedule.rows,), generator=schedule.generator(step))
        target = targets[draw].to(model.device)
        logits = model(sources[draw].to(model.device), target)
        return next_token_losses(logits, Batch(target))[0].mean()

    history = workshop.train(model, loss, schedule, _data(train))
    model = as_stored(model)
    return Made(model, card(model, history), history, torch.float16)


def every_text() -> list[Written]:
    """Every date in every format, in an order that mixes both."""
    days = [date.fromordinal(n) for n in range(FIRST.toordinal(), LAST.toordinal() + 1)]
    days.sort(key=_draw)
    return [Written.of(day, name) for day in days for name in FORMATS]


def split() -> tuple[list[Written], list[Written]]:
    """What is trained on, and what is held out: whole days, in every format."""
    texts = every_text()
    held_out = {one.day for one in texts if _draw(one.day) < HELD_OUT_SHARE}
    return (
        [one for one in texts if one.day not in held_out],
        [one for one in texts if one.day in held_out],
    )


def targets_of(model: Transformer, written: list[Written]) -> Int[Tensor, "batch target"]:
    """What the decoder reads and is to say: the start, the date, the end."""
    ids = model.to_tokens([one.iso for one in written])
    start = torch.full((len(ids), 1), model.config.tokens.decoder_start or 0)
    return torch.cat([start, ids], dim=1)


def exact_match(model: Transformer, written: list[Written], rows: int = 512) -> float:
    """The share of texts whose date is written without a mistake."""
    right = 0
    for first in range(0, len(written), rows):
        part = written[first : first + rows]
        said = model.generate([one.text for one in part], max_new_tokens=11)
        texts = model.to_string(said.where(said != 1, PAD))
        right += sum(text == START + one.iso for text, one in zip(texts, part, strict=True))
    return right / len(written)


def read(
    model: Transformer, written: list[Written]
) -> tuple[Int[Tensor, "batch source"], Int[Tensor, "batch target"], Int[Tensor, "batch source"]]:
    """Sources, targets, and the field that each source token belongs to (−1 if to none)."""
    sources = model.to_tokens([one.text for one in written])
    fields = torch.full(sources.shape, -1)
    for row, one in enumerate(written):
        for place, field in enumerate(one.fields):
            fields[row, place] = FIELDS.index(field) if field in FIELDS else -1
    return sources, targets_of(model, written), fields


def _draw(day: date) -> float:
    return int.from_bytes(sha256(day.isoformat().encode()).digest()[:8], "big") / 2**64


def _told(found: Alignment) -> dict[str, float | int | str]:
    told: dict[str, float | int | str] = {}
    for field in FIELDS:
        head, score, by_chance = found.best(field)
        told[f"cross-attention head that aligns the {field} best"] = head
        told[f"its attention to the {field} where that is written"] = score
        told[f"even attention to the {field} would be"] = by_chance
    return told


def _tokenizer() -> Tokenizer:
    """Words and digits; the ends of ordinals and all signs are tokens too."""
    backend = Backend(models.WordLevel({word: index for index, word in enumerate(WORDS)}))
    backend.add_special_tokens([START, END])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\p{L}+|."), behavior="isolated")
    backend.decoder = decoders.Fuse()
    return Tokenizer(backend, eos=1)


def card(model: Transformer, history: History) -> Card:
    """What the model is, as measured on it."""
    train, held_out = split()
    figures = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "exact match on dates held out": exact_match(model, held_out),
        **_told(alignment(model, *read(model, held_out[:3000]))),
        "training time (s)": round(history.seconds),
    }
    heads = ", ".join(
        f"{figures[f'cross-attention head that aligns the {field} best']} ({field})"
        for field in FIELDS
    )
    circuit = (
        "Alignment: where the decoder is about to write a digit of the year, month or day, its "
        f"cross-attention looks at that part of the text: {heads}."
    )
    return Card(
        name=NAME,
        summary="An encoder–decoder that writes dates as year-month-day.",
        circuit=claimed(circuit, SCHEDULE, history),
        data=_data(train),
        recipe=told_recipe(NAME, SCHEDULE, history),
        limits=(
            f"These formats alone, and years from {FIRST.year} to {LAST.year}: two digits from 50 "
            "on are of the last century."
        ),
        prompts=NAME,
        figures=figures,
    )


def _data(train: list[Written]) -> str:
    return (
        f"Every day from {FIRST} to {LAST} in {len(FORMATS)} formats: "
        f"{', '.join(f'`{Written.of(date(2021, 3, 3), name).text}`' for name in FORMATS)}. "
        f"{HELD_OUT_SHARE:.0%} of the days, by a hash, are held out in every format. SHA-256 of "
        f"what is trained on: `{sha256_of(f'{one.text} {one.iso}' for one in train)}`."
    )
