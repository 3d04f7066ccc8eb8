"""``python-4l``: four layers with MLPs, trained on the Python standard library.

The largest bundled model, and what the explorer opens with: it copies arguments, closes brackets
and completes keywords.
"""

import torch

from interp.config import (
    AttentionConfig,
    Config,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
    TokensConfig,
)
from interp.text.prompts import read_prompts
from interp.text.tokenizer import Tokenizer
from interp.transformer import Transformer
from interp.zoo.card import Card
from interp.zoo.history import History
from interp.zoo.training.evaluations.completion import accuracy, askable, preference
from interp.zoo.training.evaluations.induction import induction_figures
from interp.zoo.training.loop import Schedule
from interp.zoo.training.python_text import PythonText, Rows, next_token_loss, read_python
from interp.zoo.training.training_run import Made, Workshop, as_stored, claimed, told_recipe

NAME = "python-4l"
VOCABULARY = 1024
REPEATED_ROWS = 0.15
SCHEDULE = Schedule(steps=6000, rows=16, width=256, lr=2e-3, warm_up=200, weight_decay=0.1)
PROMPTS = ("python-arguments", "python-brackets", "python-keywords", "docstrings")

CONFIG = Config(
    name=NAME,
    d_model=256,
    d_vocab=VOCABULARY,
    n_ctx=256,
    decoder=StackConfig(
        n_layers=4,
        attention=AttentionConfig(n_heads=8, d_head=32),
        mlp=MLPConfig(d_mlp=1024),
        norm=NormConfig(),
        positions=PositionsConfig(kind="rotary"),
    ),
    tokens=TokensConfig(bos=0, prepend_bos=True),
)


def make(workshop: Workshop) -> Made:
    """Train the model from nothing and measure it."""
    text, schedule = read_python(VOCABULARY), workshop.schedule(SCHEDULE)
    torch.manual_seed(schedule.seed)
    model = Transformer(CONFIG, Tokenizer(text.backend, bos=CONFIG.tokens.bos))
    rows = Rows(text.train, schedule, REPEATED_ROWS)
    history = workshop.train(
        model, next_token_loss(rows), schedule, text.told_with_repeats(REPEATED_ROWS)
    )
    model = as_stored(model)
    return Made(model, card(model, history), history, torch.float16)


def completions(model: Transformer) -> dict[str, float | int]:
    """How often the target of a bundled prompt comes first, and before its distractor."""
    figures: dict[str, float | int] = {}
    for name in PROMPTS:
        prompts = askable(model, read_prompts(name))
        figures[f"{name}: prompts"] = len(prompts)
        if prompts:
            figures[f"{name}: target likeliest"] = accuracy(model, prompts)
            figures[f"{name}: target before distractor"] = preference(model, prompts)
    return figures


def card(model: Transformer, history: History) -> Card:
    """What the model is, as measured on it."""
    text = PythonText.as_read_by(model)
    figures = {
        "parameters": sum(p.numel() for p in model.parameters()),
        **text.losses(model),
        **completions(model),
        **induction_figures(model, text.said_twice()),
        "training time (s)": round(history.seconds),
    }
    arguments, docstrings = (
        figures.get(f"{name}: target likeliest", 0.0) for name in ("python-arguments", "docstrings")
    )
    circuit = (
        f"Induction: {figures['best previous-token head']} attends to the token before, "
        f"{figures['best induction head']} to the token after an earlier copy of the present "
        "one. Argument copying: after `def __init__(self, path, name):`, it completes "
        f"`self.name = ` with the right one of two arguments in {arguments:.0%} of the prompts of "
        "`python-arguments`. The next argument of a docstring, in order, it names in "
        f"{docstrings:.0%} of `docstrings`."
    )
    return Card(
        name=NAME,
        summary="Four layers with MLPs, trained on the Python standard library.",
        circuit=claimed(circuit, SCHEDULE, history),
        data=text.told_with_repeats(REPEATED_ROWS),
        recipe=told_recipe(NAME, SCHEDULE, history),
        limits=(
            "It has read ten megabytes: it knows how code looks, few facts, and little English. "
            f"Rows of {SCHEDULE.width} tokens at most; most names are several tokens. "
            f"{text.d_vocab - len(text.frequent()) - 1} of its tokens occur fewer than 200 times "
            "in training."
        ),
        prompts="python-arguments",
        figures=figures,
    )
