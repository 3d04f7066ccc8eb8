"""``python-mlm``: a small BERT, trained to foretell hidden tokens of the Python standard library.

An encoder with norms after each sub-layer and a head before the unembedding, as Devlin et al. 2019
built it, but with rotary positions (Su et al. 2021, "RoFormer"): by learned positions it does not
find its neighbours in an hour. It reads both ways: attention has no mask to break its symmetry
under permutations of the tokens, only positions do.
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
from interp.text.tokenizer import Tokenizer
from interp.transformer import Transformer
from interp.zoo.card import Card
from interp.zoo.history import History
from interp.zoo.training.bpe import BOS
from interp.zoo.training.evaluations.masked import (
    MASKED,
    RANDOM,
    SHARE,
    Hidden,
    commonest_accuracy,
    hide,
    masked_accuracy,
    masked_loss,
)
from interp.zoo.training.loop import Schedule
from interp.zoo.training.python_text import PythonText, Rows, read_python
from interp.zoo.training.training_run import Made, Workshop, as_stored, told_recipe

NAME = "python-mlm"
VOCABULARY = 1024
MASK = "<|mask|>"
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
    tokens=TokensConfig(bos=0, prepend_bos=True),
)


def make(workshop: Workshop) -> Made:
    """Train the model from nothing and measure it."""
    text, schedule = read_python(VOCABULARY, (BOS, MASK)), workshop.schedule(SCHEDULE)
    torch.manual_seed(schedule.seed)
    model = Transformer(CONFIG, Tokenizer(text.backend, bos=CONFIG.tokens.bos))
    rows = Rows(text.train, schedule, repeated=0.0)
    mask = model.to_single_token(MASK)

    def loss(model: Transformer, step: int) -> Float[Tensor, ""]:
        drawn = schedule.generator(schedule.steps + step)
        return masked_loss(model, hide(rows(step), mask, VOCABULARY, drawn))

    history = workshop.train(model, loss, schedule, _data(text))
    model = as_stored(model)
    return Made(model, card(model, history), history, torch.float16)


def held_out(text: PythonText, mask: int, rows: int = 400) -> Hidden:
    """Rows of text that was held out, some tokens hidden, the same each time."""
    width = CONFIG.n_ctx - 1
    most = min(rows, len(text.held_out) // width)
    windows = text.held_out[: most * width].view(most, width).long()
    windows = torch.cat([torch.zeros(most, 1, dtype=torch.long), windows], dim=1)
    return hide(windows, mask, VOCABULARY, torch.Generator().manual_seed(1))


def card(model: Transformer, history: History) -> Card:
    """What the model is, as measured on it."""
    text = PythonText.as_read_by(model)
    hidden = held_out(text, model.to_single_token(MASK))
    return Card(
        name=NAME,
        summary="A small BERT, trained to foretell hidden tokens of Python text.",
        circuit=(
            "None is claimed. It reads both ways, so each of its attentions without positions is "
            "covariant under permutations of the tokens: h(Px) = P h(x)."
        ),
        data=_data(text),
        recipe=told_recipe(NAME, SCHEDULE, history),
        limits="It foretells single tokens, which are pieces of words; it writes no text.",
        prompts="python-masked",
        metric="logit-diff",
        figures={
            "parameters": sum(p.numel() for p in model.parameters()),
            "accuracy on hidden tokens of held-out text": masked_accuracy(model, hidden),
            "accuracy of always saying the commonest token": commonest_accuracy(text.train, hidden),
            "training time (s)": round(history.seconds),
        },
    )


def _data(text: PythonText) -> str:
    return (
        f"{text.told} Of each row {SHARE:.0%} of the tokens are to be foretold: {MASKED:.0%} of "
        f"these are replaced by `{MASK}`, {RANDOM:.0%} by any token, the others by themselves."
    )
