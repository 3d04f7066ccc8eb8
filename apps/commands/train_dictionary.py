"""``interp train-dictionary``: train a sparse dictionary on a harvest."""

from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.commands.harvest import parse_place
from apps.terminal import print_stderr, print_stdout, progress

if TYPE_CHECKING:
    from interp.dictionaries import DictionarySettings, DictionaryTraining

EVERY = 100
"""Number of steps between two checkpoints."""


class Kind(StrEnum):
    """The activations that a dictionary can be trained with."""

    TOPK = "topk"
    BATCHTOPK = "batchtopk"
    JUMPRELU = "jumprelu"


Folder = Annotated[Path, typer.Argument(help="Folder of a harvest, as `interp harvest` writes it.")]
Reads = Annotated[
    str,
    typer.Option(
        help="The place that it reads: resid_post.3, normalized.1.ln2, or a hook name.",
    ),
]
Writes = Annotated[
    str | None,
    typer.Option(
        help="The place that it writes, for a transcoder: mlp_out.1.",
        show_default="that which it reads",
    ),
]
Out = Annotated[Path, typer.Option(help="Output folder, created if missing.")]
KindOption = Annotated[Kind, typer.Option(help="Which features are active.")]
Features = Annotated[int, typer.Option(help="Number of features.", min=1)]
K = Annotated[int, typer.Option("--k", help="Mean number of active features of a token.", min=1)]
Skip = Annotated[bool, typer.Option("--skip", help="Give a transcoder a linear path.")]
Steps = Annotated[int, typer.Option(help="Number of updates.", min=1)]
BatchSize = Annotated[int, typer.Option("--batch", help="Tokens per update.", min=1)]
LearningRate = Annotated[float, typer.Option("--lr", help="Learning rate of Adam.")]
Seed = Annotated[int, typer.Option(help="Seed of the first weights and of the order of tokens.")]


def train_dictionary(  # noqa: PLR0913 - the options of one command
    harvest: Folder,
    *,
    reads: Reads,
    writes: Writes = None,
    out: Out,
    kind: KindOption = Kind.BATCHTOPK,
    features: Features = 2048,
    k: K = 32,
    skip: Skip = False,
    steps: Steps = 1000,
    batch: BatchSize = 2048,
    lr: LearningRate = 1e-3,
    seed: Seed = 0,
) -> None:
    """Train a sparse dictionary, or a transcoder, on a harvest.

    It is written as SAELens (6 and later) writes dictionaries. The same command continues a
    training that was stopped, from its last hundred steps.
    """
    from interp import Harvest, dictionaries  # noqa: PLC0415

    settings = dictionaries.DictionarySettings(
        kind=str(kind),
        n_features=features,
        k=k,
        skip=skip,
        steps=steps,
        batch=batch,
        lr=lr,
        seed=seed,
    )
    checkpoint = out.with_name(f"{out.name}.training")
    training = _earlier(checkpoint, settings)
    options: dict[str, Any] = {
        "reads": parse_place(reads),
        "writes": None if writes is None else parse_place(writes),
        "settings": settings,
    }
    with progress("Training a dictionary") as tick:
        while training is None or len(training.fvu) < steps:
            left = count(EVERY - 1, -1)
            training = dictionaries.train(
                Harvest(harvest),
                **options,
                progress=tick,
                cancelled=lambda left=left: next(left) == 0,
                resume=training,
            )
            training.save(checkpoint)
    dictionaries.save(training.dictionary, out)
    checkpoint.unlink(missing_ok=True)
    last = slice(-min(EVERY, steps), None)
    fvu, l0 = float(training.fvu[last].mean()), float(training.l0[last].mean())
    print_stdout(str(training.dictionary))
    print_stdout(
        f"{out}: {fvu:.1%} of the variance unexplained and {l0:.1f} active features a token in the "
        f"last {min(EVERY, steps)} steps; {int(training.n_dead[-1])} features are dead."
    )


def _earlier(checkpoint: Path, settings: "DictionarySettings") -> "DictionaryTraining | None":
    """The training that was stopped, if there is one.

    Raises:
        InvalidInput: it had other settings.
    """
    from interp.dictionaries import load_training  # noqa: PLC0415
    from interp.errors import InvalidInput  # noqa: PLC0415

    if not checkpoint.exists():
        return None
    training = load_training(checkpoint)
    if training.settings != settings:
        raise InvalidInput(
            f"{checkpoint} is of a training with {training.settings}; continue it with these "
            "settings, remove it, or give another --out."
        )
    print_stderr(f"Continuing after step {len(training.fvu)}, from {checkpoint}.")
    return training
