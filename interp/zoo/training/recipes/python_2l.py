"""``python-2l``: two attention-only layers, trained on the Python standard library.

Induction heads form in it, abruptly (Olsson et al. 2022): its history tells when. They need few
tokens and rows that repeat themselves, so the vocabulary has 512 tokens, and two rows in five are
repeats.
"""

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
from interp.text.tokenizer import Tokenizer
from interp.transformer import Transformer
from interp.zoo.card import Card
from interp.zoo.history import History
from interp.zoo.training.evaluations.induction import (
    induction_figures,
    induction_scores,
    previous_token_scores,
    repeated_losses,
)
from interp.zoo.training.loop import Schedule
from interp.zoo.training.python_text import PythonText, Rows, next_token_loss, read_python
from interp.zoo.training.training_run import Made, Workshop, as_stored, claimed, told_recipe

NAME = "python-2l"
VOCABULARY = 512
REPEATED_ROWS = 0.4
SCHEDULE = Schedule(steps=2500)
MEASURED_EVERY = 50
CHECKPOINTS = (0, 100, 200, 300, 400, 500, 600, 700, 800, 1000, 1400, 2000)

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


def make(workshop: Workshop) -> Made:
    """Train the model from nothing and measure it."""
    text, schedule = read_python(VOCABULARY), workshop.schedule(SCHEDULE)
    torch.manual_seed(schedule.seed)
    model = Transformer(CONFIG, Tokenizer(text.backend, bos=CONFIG.tokens.bos))
    rows, repeated = Rows(text.train, schedule, REPEATED_ROWS), text.said_twice()

    def observe(model: Transformer, step: int) -> dict[str, float]:
        if step in CHECKPOINTS:
            workshop.checkpoint(model, step)
        measured = step % MEASURED_EVERY == 0 or step == schedule.steps
        return on_the_way(model, repeated.to(model.device)) if measured else {}

    history = workshop.train(
        model, next_token_loss(rows), schedule, text.told_with_repeats(REPEATED_ROWS), observe
    )
    history.checkpoints = [step for step in CHECKPOINTS if step <= schedule.steps]
    model = as_stored(model)
    return Made(model, card(model, history), history, torch.float16)


def on_the_way(model: Transformer, repeated: Int[Tensor, "batch pos"]) -> dict[str, float]:
    """What shows a circuit forming: the gain by repetition and the best head of either kind."""
    first, second = repeated_losses(model, repeated)
    return {
        "loss on random tokens (nats)": first,
        "loss on their repetition (nats)": second,
        "best previous-token score": previous_token_scores(model, repeated).max().item(),
        "best induction score": induction_scores(model, repeated).max().item(),
    }


def card(model: Transformer, history: History) -> Card:
    """What the model is, as measured on it."""
    text, checkpoints = PythonText.as_read_by(model), history.checkpoints
    figures = {
        "parameters": sum(p.numel() for p in model.parameters()),
        **text.losses(model),
        **induction_figures(model, text.said_twice()),
        "training time (s)": round(history.seconds),
    }
    circuit = (
        f"Induction: {figures['best previous-token head']} attends to the token before, "
        f"{figures['best induction head']} to the token after an earlier copy of the present "
        "one. On random tokens, said twice, the loss falls on the second saying. "
        f"`history.json` tells how this came about, every {MEASURED_EVERY} steps, and "
        f'`interp.load("{NAME}@{checkpoints[-1]}")` loads the weights of a step; those of '
        f"{', '.join(map(str, checkpoints))} were kept."
    )
    return Card(
        name=NAME,
        summary="Two attention-only layers, trained on the Python standard library.",
        circuit=claimed(circuit, SCHEDULE, history),
        data=text.told_with_repeats(REPEATED_ROWS),
        recipe=told_recipe(NAME, SCHEDULE, history),
        limits=(
            "It has seen rows of 128 tokens, and tokens that are pieces of words: it copies and "
            "continues code that looks familiar, and knows little else. "
            f"{text.d_vocab - len(text.frequent()) - 1} of its tokens occur fewer than 200 times "
            "in training; leave them out of statements about weights."
        ),
        prompts="repeated",
        figures=figures,
    )
