"""``python-mlm``: a small BERT, trained to predict masked tokens of the Python standard library.

An encoder with post-norm and a head before the unembedding, as in Devlin et al. 2019, but with
rotary positions (Su et al. 2021, "RoFormer"): with learned positions it did not learn to attend to
neighbouring tokens within an hour. Attention is bidirectional, so only the positions break the
model's covariance under permutations of the tokens.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from interp.config import (
    AttentionConfig,
    Config,
    EmbeddingConfig,
    HeadConfig,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
    TokensConfig,
)
from interp.transformer import Transformer
from interp.zoo import Card, History
from training.bpe import BOS
from training.evaluations.masked import (
    MASKED,
    RANDOM,
    SHARE,
    MaskedBatch,
    mask_tokens,
    masked_accuracy,
    masked_loss,
    most_frequent_accuracy,
)
from training.loop import Schedule, StepLoss
from training.python_text import PythonText, Rows
from training.recipes.python_source import PythonTask
from training.training_run import BuiltModel, TrainingRun, figures_of, recipe_of

NAME = "python-mlm"
VOCABULARY = 1024
MASK = "<|mask|>"
SPECIAL = (BOS, MASK)
MASK_ID = SPECIAL.index(MASK)
SCHEDULE = Schedule(steps=3000, rows=32, width=128, lr=1e-3, warm_up=300)

CONFIG = Config(
    name=NAME,
    d_model=192,
    d_vocab=VOCABULARY,
    n_ctx=128,
    encoder=StackConfig(
        n_layers=4,
        attention=AttentionConfig(n_heads=6, d_head=32),
        mlp=MLPConfig(d_mlp=768),
        norm=NormConfig(placement="post", final=False),
        positions=PositionsConfig(kind="rotary"),
        embedding=EmbeddingConfig(norm=NormConfig()),
    ),
    head=HeadConfig(),
    tied=True,
    bias_u=True,
    tokens=TokensConfig(bos=0, prepend_bos=True, mask=MASK_ID),
)


def build(run: TrainingRun) -> BuiltModel:
    """Train the model from random weights and measure it."""
    return PythonTask(CONFIG, SCHEDULE, _data, _loss, card, SPECIAL).build(run)


def _loss(text: PythonText, schedule: Schedule) -> StepLoss:
    rows = Rows(text.train, schedule, repeated=0.0)

    def loss(model: Transformer, step: int) -> Float[Tensor, ""]:
        # The rows use the generators of steps 0 … steps − 1; masking uses those after them.
        generator = schedule.generator(schedule.steps + step)
        return masked_loss(model, mask_tokens(rows(step), MASK_ID, VOCABULARY, generator))

    return loss


def held_out(text: PythonText, rows: int = 400) -> MaskedBatch:
    """Rows of held-out text with masked tokens; every call returns the same rows."""
    width = CONFIG.n_ctx - 1
    most = min(rows, len(text.held_out) // width)
    windows = text.held_out[: most * width].view(most, width).long()
    windows = torch.cat([torch.zeros(most, 1, dtype=torch.long), windows], dim=1)
    return mask_tokens(windows, MASK_ID, VOCABULARY, torch.Generator().manual_seed(1))


def card(model: Transformer, history: History, text: PythonText | None = None) -> Card:
    """Measure the model and return its card."""
    text = PythonText.for_model(model) if text is None else text
    batch = held_out(text)
    measured = {
        "accuracy on masked tokens of held-out text": masked_accuracy(model, batch),
        "accuracy of always predicting the most frequent token": most_frequent_accuracy(
            text.train, batch
        ),
    }
    return Card(
        name=NAME,
        summary="A small BERT, trained to predict masked tokens of Python source.",
        mechanism=(
            "None is claimed. Attention is bidirectional, so without positions the model is "
            "covariant under permutations of the tokens: h(Px) = P h(x)."
        ),
        data=_data(text),
        recipe=recipe_of(NAME, SCHEDULE, history),
        limits="It predicts single tokens, which are pieces of words; it does not generate text.",
        prompts="python-masked",
        metric="logit-diff",
        figures=figures_of(model, measured, history),
        trained_tokens=tuple(text.frequent()),
    )


def _data(text: PythonText) -> str:
    return (
        f"{text.description} In each row {SHARE:.0%} of the tokens are to be predicted: "
        f"{MASKED:.0%} of these are replaced by `{MASK}`, {RANDOM:.0%} by a random token, and the "
        "others are left unchanged."
    )
