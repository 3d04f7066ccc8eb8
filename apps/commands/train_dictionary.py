"""``interp train-dictionary``: train a sparse dictionary on a harvest."""

from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.commands.harvest import parse_place
from apps.terminal import print_stderr, print_stdout, progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from interp import Harvest
    from interp.dictionaries import CrossLayerTraining, DictionarySettings, DictionaryTraining

    Training = DictionaryTraining | CrossLayerTraining

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
CrossLayer = Annotated[
    bool,
    typer.Option(
        "--cross-layer",
        help="Train a cross-layer transcoder; --reads and --writes are its places in layer 0.",
    ),
]
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
    cross_layer: CrossLayer = False,
    steps: Steps = 1000,
    batch: BatchSize = 2048,
    lr: LearningRate = 1e-3,
    seed: Seed = 0,
) -> None:
    """Train a sparse dictionary, or a transcoder, on a harvest.

    It is written as SAELens (6 and later) writes dictionaries; a cross-layer transcoder as
    circuit-tracer does, with these numbers of features in each layer. The same command continues
    a training that was stopped, from its last hundred steps.
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
    options: dict[str, Any] = {"settings": settings}
    if cross_layer:
        options |= _of_layers(Harvest(harvest), reads, writes)
    else:
        options |= {
            "reads": parse_place(reads),
            "writes": None if writes is None else parse_place(writes),
        }
    load = dictionaries.load_cross_layer_training if cross_layer else dictionaries.load_training
    train = dictionaries.train_cross_layer if cross_layer else dictionaries.train
    training = _earlier(checkpoint, settings, load)
    with progress("Training a dictionary") as tick:
        while training is None or len(training.fvu) < steps:
            left = count(EVERY - 1, -1)
            training = train(
                Harvest(harvest),
                **options,
                progress=tick,
                cancelled=lambda left=left: next(left) == 0,
                resume=training,  # pyright: ignore[reportArgumentType] - of the same kind
            )
            training.save(checkpoint)
    if isinstance(training, dictionaries.CrossLayerTraining):
        trained = training.transcoder
        dictionaries.save_cross_layer(trained, out)
    else:
        trained = training.dictionary
        dictionaries.save(trained, out)
    checkpoint.unlink(missing_ok=True)
    print_stdout(str(trained))
    last = slice(-min(EVERY, steps), None)
    curves = training.fvu[last].mean(0), training.l0[last].mean(0), training.n_dead[-1]
    for layer, (fvu, l0, dead) in enumerate(
        zip(*(x.view(-1).tolist() for x in curves), strict=True)
    ):
        of_layer = f"layer {layer}: " if cross_layer else ""
        print_stdout(
            f"{out}: {of_layer}{fvu:.1%} of the variance unexplained and {l0:.1f} active features "
            f"a token in the last {min(EVERY, steps)} steps; {int(dead)} features are dead."
        )


def _of_layers(harvest: "Harvest", reads: str, writes: str | None) -> dict[str, list[str]]:
    """The places of all layers that a harvest has, given those of layer 0.

    Raises:
        InvalidInput: they are not of layer 0.
        NotRecorded: the harvest has not stored them.
    """
    from interp import Harvest  # noqa: PLC0415
    from interp.errors import InvalidInput  # noqa: PLC0415

    places = [parse_place(place) for place in (reads, writes) if place is not None]
    names = [Harvest(harvest.folder, places=place).names[0] for place in places]
    first = "blocks.0."
    if len(names) < len(("reads", "writes")) or not all(name.startswith(first) for name in names):
        raise InvalidInput(
            "--cross-layer takes --reads and --writes, the places of layer 0: normalized.0.ln2 and "
            "mlp_out.0."
        )
    of_layers = [
        [name.replace(first, f"blocks.{layer}.") for name in names]
        for layer in range(len(harvest.names))
    ]
    stored = [several for several in of_layers if {*several} <= {*harvest.names}]
    return {key: [each[n] for each in stored] for n, key in enumerate(("reads", "writes"))}


def _earlier(
    checkpoint: Path, settings: "DictionarySettings", load: "Callable[[Path], Training]"
) -> "Training | None":
    """The training that was stopped, if there is one.

    Raises:
        InvalidInput: it had other settings.
    """
    from interp.errors import InvalidInput  # noqa: PLC0415

    if not checkpoint.exists():
        return None
    training = load(checkpoint)
    if training.settings != settings:
        raise InvalidInput(
            f"{checkpoint} is of a training with {training.settings}; continue it with these "
            "settings, remove it, or give another --out."
        )
    print_stderr(f"Continuing after step {len(training.fvu)}, from {checkpoint}.")
    return training
