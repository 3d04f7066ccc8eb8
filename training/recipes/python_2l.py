"""``python-2l``: two attention-only layers, trained on the Python standard library.

Induction heads form in it within a few hundred steps (Olsson et al. 2022), as its history shows. To
form early, they need a small vocabulary and repeated spans: the model has 512 tokens, and 40 % of
the training rows repeat a span.
"""

from dataclasses import replace

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
from interp.transformer import Transformer
from interp.zoo import Card, History
from training.evaluations.induction import (
    induction_figures,
    induction_scores,
    induction_sentence,
    previous_token_scores,
    repeated_losses,
)
from training.loop import Observe, Schedule
from training.python_text import PythonText
from training.recipes.python_source import next_token_task
from training.training_run import (
    BuiltModel,
    TrainingRun,
    figures_of,
    mechanism_if_complete,
    recipe_of,
)

NAME = "python-2l"
VOCABULARY = 512
REPEATED_ROWS = 0.4
SCHEDULE = Schedule(steps=2500)
MEASURED_EVERY = 50
SAVED_STEPS = (0, 100, 200, 300, 400, 500, 600, 700, 800, 1000, 1400, 2000)

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


def build(run: TrainingRun) -> BuiltModel:
    """Train the model from random weights, with figures during training, and measure it."""
    task = next_token_task(CONFIG, SCHEDULE, REPEATED_ROWS, card)
    return replace(task, observer=_observer, saved_steps=SAVED_STEPS).build(run)


def _observer(text: PythonText, schedule: Schedule) -> Observe:
    repeated = text.repeated_sample()

    def observe(model: Transformer, step: int) -> dict[str, float]:
        due = step % MEASURED_EVERY == 0 or step == schedule.steps
        return figures_in_training(model, repeated.to(model.device)) if due else {}

    return observe


def figures_in_training(model: Transformer, repeated: Int[Tensor, "batch pos"]) -> dict[str, float]:
    """Losses on random tokens and on their repetition, and the best score of each kind of head."""
    first, second = repeated_losses(model, repeated)
    return {
        "loss on random tokens (nats)": first,
        "loss on their repetition (nats)": second,
        "best previous-token score": previous_token_scores(model, repeated).max().item(),
        "best induction score": induction_scores(model, repeated).max().item(),
    }


def card(model: Transformer, history: History, text: PythonText | None = None) -> Card:
    """Measure the model and return its card."""
    text = PythonText.for_model(model) if text is None else text
    saved = history.checkpoints
    measured = {**text.losses(model), **induction_figures(model, text.repeated_sample())}
    mechanism = (
        f"{induction_sentence(measured)} On repeated random tokens the loss falls in the second "
        f"copy. `history.json` records this every {MEASURED_EVERY} steps. The weights of steps "
        f"{', '.join(map(str, saved))} are saved; load those of a step as "
        f'`interp.load("{NAME}@{saved[-1]}")`.'
    )
    return Card(
        name=NAME,
        summary="Two attention-only layers, trained on the Python standard library.",
        mechanism=mechanism_if_complete(mechanism, SCHEDULE, history),
        data=text.description_with_repeats(REPEATED_ROWS),
        recipe=recipe_of(NAME, SCHEDULE, history),
        limits=(
            "It was trained on rows of 128 tokens, which are pieces of words: it copies and "
            f"continues familiar code and does little else. {text.rare_tokens}"
        ),
        prompts="repeated",
        figures=figures_of(model, measured, history),
        pairs=f"{NAME}-pairs",
        trained_tokens=tuple(text.frequent()),
    )
