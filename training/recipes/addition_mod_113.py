"""``addition-mod-113``: one layer, trained to add modulo 113, which it does by rotations.

The input is ``a b =``, the target a + b mod 113. The model first memorises the training sums; many
steps later, its accuracy on held-out sums rises abruptly ("grokking"), when weight decay has left
only the solution that generalises, with a few frequencies (Nanda et al. 2023). The history of the
model records both.
"""

import torch
from jaxtyping import Bool, Float, Int
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend
from torch import Tensor
from torch.nn.functional import cross_entropy

from interp.config import NO_NORM, AttentionConfig, Config, MLPConfig, PositionsConfig, StackConfig
from interp.text import Tokenizer
from interp.transformer import Transformer
from interp.zoo import Card, History
from training.evaluations.fourier import explained, key_frequencies
from training.loop import Schedule
from training.training_run import (
    BuiltModel,
    TrainingRun,
    figures_of,
    mechanism_if_complete,
    recipe_of,
    sha256_of,
)

NAME = "addition-mod-113"
P = 113
TRAIN_SHARE = 0.3
SCHEDULE = Schedule(
    steps=12_000, rows=1024, width=3, lr=1e-3, floor=0.1, warm_up=10, weight_decay=1.0
)
MEASURED_EVERY = 200
FREQUENCIES = "key frequencies"
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


def build(run: TrainingRun) -> BuiltModel:
    """Train the model from random weights, with figures during training, and measure it."""
    schedule = run.schedule(SCHEDULE)
    torch.manual_seed(schedule.seed)
    model = Transformer(CONFIG, _tokenizer())
    sums, is_seen = every_sum(), is_train(schedule.seed)
    train = sums[is_seen]

    def loss(model: Transformer, step: int) -> Float[Tensor, ""]:
        draw = torch.randint(len(train), (schedule.rows,), generator=schedule.generator(step))
        tokens = train[draw].to(model.device)
        return cross_entropy(model(tokens)[:, -1], answers(tokens))

    def observe(model: Transformer, step: int) -> dict[str, float]:
        if step % MEASURED_EVERY and step != schedule.steps:
            return {}
        logits = logits_of(model, sums.to(model.device)).cpu()
        return {
            "accuracy, seen": _accuracy(logits[is_seen], sums[is_seen]),
            "accuracy, held out": _accuracy(logits[~is_seen], sums[~is_seen]),
            "loss, held out (nats)": cross_entropy(
                logits[~is_seen], answers(sums[~is_seen])
            ).item(),
        }

    history = run.train(model, loss, schedule, _data(train), observe)
    return BuiltModel.trained(model, history, card)


def every_sum() -> Int[Tensor, "sum 3"]:
    """The tokens ``a b =`` of all p² sums."""
    numbers = torch.arange(P)
    return torch.cat([torch.cartesian_prod(numbers, numbers), torch.full((P**2, 1), P)], dim=1)


def is_train(seed: int) -> Bool[Tensor, " sum"]:
    """True for the sums to train on."""
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
    """Accuracy on training and held-out sums, and the key frequencies."""
    sums, is_seen = every_sum(), is_train(seed)
    logits = logits_of(model, sums)
    frequencies = key_frequencies(explained(logits[:, :P].view(P, P, P)))
    return {
        "accuracy on training sums": _accuracy(logits[is_seen], sums[is_seen]),
        "accuracy on held-out sums": _accuracy(logits[~is_seen], sums[~is_seen]),
        FREQUENCIES: ", ".join(map(str, frequencies)),
        EXPLAINED: sum(frequencies.values()),
    }


def _accuracy(logits: Float[Tensor, "sum vocab"], tokens: Int[Tensor, "sum 3"]) -> float:
    return (logits.argmax(-1) == answers(tokens)).double().mean().item()


def _tokenizer() -> Tokenizer:
    """One token per number, and one for ``=``; spaces separate tokens."""
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
    """Measure the model and return its card."""
    figures = measured(model, SCHEDULE.seed)
    mechanism = (
        "Addition by rotations: the logit of c is close to a sum of cosines "
        f"cos(2πk(a + b − c)/{P}). Frequencies k = {figures[FREQUENCIES]} explain "
        f"{figures[EXPLAINED]:.1%} of the logits' variance. `history.json` records the accuracy on "
        "held-out sums during training. Which parts of the layer compute the rotations and their "
        "products is not claimed (Nanda et al. 2023 found it for a similar model)."
    )
    return Card(
        name=NAME,
        summary="One layer, trained to add modulo 113; it adds by rotations.",
        mechanism=mechanism_if_complete(mechanism, SCHEDULE, history),
        data=_data(every_sum()[is_train(SCHEDULE.seed)]),
        recipe=recipe_of(NAME, SCHEDULE, history),
        limits="It reads two numbers from 0 to 112 and `=`, nothing else.",
        prompts=NAME,
        metric="logit-diff",
        figures=figures_of(model, figures, history),
        pairs=f"{NAME}-pairs",
        trained_tokens=tuple(range(P)),
    )


def _data(train: Int[Tensor, "sum 3"]) -> str:
    return (
        f"All {P**2} sums `a b =`: {TRAIN_SHARE:.0%} for training and the others held out, in a "
        f"random order of seed {SCHEDULE.seed}. SHA-256 of the training sums: "
        f"`{sha256_of(f'{a} {b}' for a, b, _ in train.tolist())}`."
    )
