"""``addition-mod-113``: one layer that adds modulo 113, and learned to do it by rotations.

It reads ``a b =`` and says a + b. First it knows the sums it has seen by heart; long after, the
others come all at once ("grokking"), when weight decay has left only what generalises: a few
frequencies (Nanda et al. 2023). Its history tells when.
"""

import torch
from jaxtyping import Bool, Float, Int
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend
from torch import Tensor
from torch.nn.functional import cross_entropy

from interp.config import NO_NORM, AttentionConfig, Config, MLPConfig, PositionsConfig, StackConfig
from interp.text.tokenizer import Tokenizer
from interp.transformer import Transformer
from interp.zoo.card import Card
from interp.zoo.history import History
from interp.zoo.training.evaluations.fourier import explained, key_frequencies
from interp.zoo.training.loop import Schedule
from interp.zoo.training.training_run import (
    Made,
    Workshop,
    as_stored,
    claimed,
    sha256_of,
    told_recipe,
)

NAME = "addition-mod-113"
P = 113
TRAIN_SHARE = 0.3
SCHEDULE = Schedule(
    steps=12_000, rows=1024, width=3, lr=1e-3, floor=0.1, warm_up=10, weight_decay=1.0
)
MEASURED_EVERY = 200
EXPLAINED = "share of the logits' variance that they explain"

CONFIG = Config(
    name=NAME,
    d_model=128,
    d_vocab=P + 1,
    n_ctx=3,
    decoder=StackConfig(
        n_layers=1,
        attention=AttentionConfig(
            n_heads=4, d_head=32, bias_q=False, bias_k=False, bias_v=False, bias_o=False
        ),
        mlp=MLPConfig(d_mlp=512, activation="relu"),
        norm=NO_NORM,
        positions=PositionsConfig(kind="learned"),
    ),
)


def make(workshop: Workshop) -> Made:
    """Train the model from nothing and measure it."""
    schedule = workshop.schedule(SCHEDULE)
    torch.manual_seed(schedule.seed)
    model = Transformer(CONFIG, _tokenizer())
    sums, seen = every_sum(), is_train(schedule.seed)
    train = sums[seen]

    def loss(model: Transformer, step: int) -> Float[Tensor, ""]:
        draw = torch.randint(len(train), (schedule.rows,), generator=schedule.generator(step))
        tokens = train[draw].to(model.device)
        return cross_entropy(model(tokens)[:, -1], answers(tokens))

    def observe(model: Transformer, step: int) -> dict[str, float]:
        if step % MEASURED_EVERY and step != schedule.steps:
            return {}
        logits = logits_of(model, sums.to(model.device)).cpu()
        return {
            "accuracy, seen": _accuracy(logits[seen], sums[seen]),
            "accuracy, held out": _accuracy(logits[~seen], sums[~seen]),
            "loss, held out (nats)": cross_entropy(logits[~seen], answers(sums[~seen])).item(),
        }

    history = workshop.train(model, loss, schedule, _data(train), observe)
    model = as_stored(model)
    return Made(model, card(model, history), history, torch.float16)


def every_sum() -> Int[Tensor, "sum 3"]:
    """All a, b, =."""
    numbers = torch.arange(P)
    return torch.cat([torch.cartesian_prod(numbers, numbers), torch.full((P**2, 1), P)], dim=1)


def is_train(seed: int) -> Bool[Tensor, " sum"]:
    """Which sums are trained on."""
    order = torch.randperm(P**2, generator=torch.Generator().manual_seed(seed))
    return order < TRAIN_SHARE * P**2


def answers(tokens: Int[Tensor, "sum 3"]) -> Int[Tensor, " sum"]:
    """(a + b) mod p."""
    return (tokens[:, 0] + tokens[:, 1]) % P


def logits_of(model: Transformer, tokens: Int[Tensor, "sum 3"]) -> Float[Tensor, "sum vocab"]:
    """The logits after ``=``."""
    with torch.no_grad():
        return torch.cat([model(part)[:, -1] for part in tokens.split(4096)])


def measured(model: Transformer, seed: int) -> dict[str, float | int | str]:
    """How well it adds, and by which frequencies."""
    sums, seen = every_sum(), is_train(seed)
    logits = logits_of(model, sums)
    frequencies = key_frequencies(explained(logits[:, :P].view(P, P, P)))
    return {
        "accuracy on sums it has seen": _accuracy(logits[seen], sums[seen]),
        "accuracy on sums held out": _accuracy(logits[~seen], sums[~seen]),
        "frequencies": ", ".join(map(str, frequencies)),
        EXPLAINED: sum(frequencies.values()),
    }


def _accuracy(logits: Float[Tensor, "sum vocab"], tokens: Int[Tensor, "sum 3"]) -> float:
    return (logits.argmax(-1) == answers(tokens)).double().mean().item()


def _tokenizer() -> Tokenizer:
    """A token a number, and one for ``=``; spaces only part them."""
    words = [*map(str, range(P)), "="]
    backend = Backend(models.WordLevel({word: index for index, word in enumerate(words)}))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Split(Regex("="), behavior="isolated"),
        ]
    )
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return Tokenizer(backend)


def card(model: Transformer, history: History) -> Card:
    """What the model is, as measured on it."""
    figures = {
        "parameters": sum(p.numel() for p in model.parameters()),
        **measured(model, SCHEDULE.seed),
        "training time (s)": round(history.seconds),
    }
    circuit = (
        f"It adds by rotations: the logit of c after a and b is a sum of cos(2πk(a + b − c)/{P}). "
        f"Frequencies k = {figures['frequencies']} explain {figures[EXPLAINED]:.1%} of the "
        "logits' variance. `history.json` tells when sums held out came to be known. Which parts "
        "of the layer rotate and multiply is not claimed (Nanda et al. 2023 found it for a model "
        "like this one)."
    )
    return Card(
        name=NAME,
        summary="One layer that adds modulo 113, by rotations that it found itself.",
        circuit=claimed(circuit, SCHEDULE, history),
        data=_data(every_sum()[is_train(SCHEDULE.seed)]),
        recipe=told_recipe(NAME, SCHEDULE, history),
        limits="Two numbers from 0 to 112 and `=`, and nothing else.",
        prompts=NAME,
        metric="logit-diff",
        figures=figures,
    )


def _data(train: Int[Tensor, "sum 3"]) -> str:
    return (
        f"All {P**2} sums `a b =`, {TRAIN_SHARE:.0%} of them seen in training, the others held "
        f"out, by a random order of seed {SCHEDULE.seed}. SHA-256 of the sums seen: "
        f"`{sha256_of(f'{a} {b}' for a, b, _ in train.tolist())}`."
    )
