"""``python-4l``: four layers with MLPs, trained on the Python standard library.

The largest bundled model, and the explorer's default. It copies arguments, closes brackets and
completes keywords.
"""

from interp.config import (
    AttentionConfig,
    Config,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
    TokensConfig,
)
from interp.prompts import read_prompts
from interp.transformer import Transformer
from interp.zoo import Card, History
from training.evaluations.completion import accuracy, preference, single_token_prompts
from training.evaluations.induction import induction_figures, induction_sentence
from training.loop import Schedule
from training.python_text import PythonText
from training.recipes.python_source import next_token_task
from training.training_run import (
    BuiltModel,
    TrainingRun,
    figures_of,
    mechanism_if_complete,
    recipe_of,
)

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


def build(run: TrainingRun) -> BuiltModel:
    """Train the model from random weights and measure it."""
    return next_token_task(CONFIG, SCHEDULE, REPEATED_ROWS, card).build(run)


def completions(model: Transformer) -> dict[str, float | int]:
    """Shares of prompts whose target is the top token, and is more likely than its distractor."""
    figures: dict[str, float | int] = {}
    for name in PROMPTS:
        prompts = single_token_prompts(model, read_prompts(name))
        figures[f"{name}: prompts"] = len(prompts)
        if prompts:
            figures[f"{name}: target likeliest"] = accuracy(model, prompts)
            figures[f"{name}: target likelier than distractor"] = preference(model, prompts)
    return figures


def card(model: Transformer, history: History, text: PythonText | None = None) -> Card:
    """Measure the model and return its card."""
    text = PythonText.for_model(model) if text is None else text
    measured = {
        **text.losses(model),
        **completions(model),
        **induction_figures(model, text.repeated_sample()),
    }
    arguments, docstrings = (
        measured.get(f"{name}: target likeliest", 0.0)
        for name in ("python-arguments", "docstrings")
    )
    mechanism = (
        f"{induction_sentence(measured)} Argument copying: after `def __init__(self, path, "
        "name):`, it completes `self.name = ` with the correct one of two arguments in "
        f"{arguments:.0%} of the prompts of `python-arguments`. In `docstrings`, it predicts the "
        f"next argument, in order, in {docstrings:.0%} of the prompts."
    )
    return Card(
        name=NAME,
        summary="Four layers with MLPs, trained on the Python standard library.",
        mechanism=mechanism_if_complete(mechanism, SCHEDULE, history),
        data=text.description_with_repeats(REPEATED_ROWS),
        recipe=recipe_of(NAME, SCHEDULE, history),
        limits=(
            "It was trained on ten megabytes: it has learned the form of code, few facts, and "
            f"little English. Rows have at most {SCHEDULE.width} tokens; most names are several "
            f"tokens. {text.rare_tokens}"
        ),
        prompts="python-arguments",
        figures=figures_of(model, measured, history),
        pairs=f"{NAME}-pairs",
        trained_tokens=tuple(text.frequent()),
    )
