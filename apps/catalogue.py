"""The bundled models and those of other packages: a table and their descriptions."""

from pathlib import Path

import interp
from interp.errors import ModelLoadError, shorten
from interp.loading import (
    GGUF_SUFFIX,
    MODEL_FOLDER,
    PACKAGED,
    bundled,
    find_folder,
    hub,
    load,
    named_file,
    steps_of,
)
from interp.saved import CONFIG
from interp.zoo import card

COLUMNS = [
    ("model", "left"),
    ("kind", "left"),
    ("layers×heads", "right"),
    ("d_model", "right"),
    ("vocab", "right"),
    ("params", "right"),
    ("size", "right"),
]
THOUSAND = 1000


def catalogue() -> list[tuple[str, ...]]:
    """One row per model, with the columns of :data:`COLUMNS`.

    Raises:
        ModelLoadError: a model is damaged.
    """
    return [_row(name) for name in bundled()]


def summaries() -> list[str]:
    """For each model, the summary of its card and its checkpoints.

    Raises:
        ModelLoadError: a card is missing or damaged.
    """
    return [
        *(f"{name}: {card(name).summary}{_checkpoints(name)}" for name in bundled()),
        *(
            f"{name}: {card(name).summary}"
            + ("" if packaged.path else f" To install it: {packaged.install}")
            for name, packaged in PACKAGED.items()
        ),
    ]


def check_name(name: str) -> None:
    """Check that a name is that of a model, without loading it.

    Raises:
        ModelLoadError: the name is not that of a bundled model or of one of another package, not
            a folder with a configuration, no GGUF file and not one of Ollama's, and not of the form
            ``hub:org/name``; or it is not installed.
    """
    if name.startswith(hub.PREFIX):
        hub.parse_name(name)
        return
    try:
        file = named_file(name)
        path = file or Path(name)
        is_file = file is not None or (path.suffix.lower() == GGUF_SUFFIX and path.is_file())
        is_model = is_file or find_folder(name) is not None or (path / CONFIG).is_file()
    except OSError:  # no file can have this name
        is_model = False
    if not is_model:
        raise ModelLoadError(
            f"{shorten(name)} is not a model: expected one of the bundled models "
            f"({', '.join([*bundled(), *PACKAGED])}), a folder with {CONFIG}, a GGUF file, "
            f"ollama:NAME, or {hub.PREFIX}org/name."
        )


def architecture(config: interp.Config) -> str:
    """The kind of Transformer: decoder, encoder, encoder-decoder or attention-only."""
    if config.encoder is not None and config.decoder is not None:
        return "encoder-decoder"
    stack = config.decoder or config.encoder
    attention_only = stack is not None and stack.mlp is None
    side = "decoder" if config.decoder is not None else "encoder"
    return "attention-only" if attention_only and side == "decoder" else side


def _checkpoints(name: str) -> str:
    steps = steps_of(MODEL_FOLDER / name)
    if not steps:
        return ""
    return f" {len(steps)} checkpoints: {name}@{steps[0]} … @{steps[-1]}."


def _row(name: str) -> tuple[str, ...]:
    model, folder = load(name), MODEL_FOLDER / name
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return (
        name,
        architecture(model.config),
        " + ".join(
            f"{stack.n_layers}×{stack.attention.n_heads}" for stack in model.config.stacks.values()
        ),
        str(model.config.d_model),
        str(model.config.d_vocab),
        short_count(sum(weight.numel() for weight in model.parameters())),
        f"{short_count(size)}B",
    )


def short_count(count: int) -> str:
    """A count with three significant digits: ``1.24k``, ``3.68M``."""
    for power, unit in ((2, "M"), (1, "k")):
        if float(f"{count:.3g}") >= THOUSAND**power:
            return f"{count / THOUSAND**power:#.3g}".rstrip(".") + unit
    return str(count)
