"""Which models come with the toolkit?"""

import interp
from interp.loading import MODEL_FOLDER, bundled, load
from interp.loading.folder import CONFIG, steps_of
from interp.zoo.card import read_card

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
    """A row a model, in the order of :data:`COLUMNS`.

    Raises:
        ModelLoadError: one of them is damaged.
    """
    return [_row(name) for name in bundled()]


def summaries() -> list[str]:
    """What each model is, in one line of its card, and which steps of its training were kept.

    Raises:
        ModelLoadError: a card is missing or damaged.
    """
    return [f"{name}: {read_card(MODEL_FOLDER / name).summary}{_kept(name)}" for name in bundled()]


def explorable() -> list[str]:
    """Names of those with one stack, whose heads a page can lay out."""
    texts = {name: (MODEL_FOLDER / name / CONFIG).read_text(encoding="utf-8") for name in bundled()}
    return [name for name, text in texts.items() if len(interp.Config.from_json(text).stacks) == 1]


def kind(config: interp.Config) -> str:
    """What sort of Transformer it is, in a word or two."""
    if config.encoder is not None and config.decoder is not None:
        return "encoder-decoder"
    stack = config.decoder or config.encoder
    attention_only = stack is not None and stack.mlp is None
    side = "decoder" if config.decoder is not None else "encoder"
    return "attention-only" if attention_only and side == "decoder" else side


def _kept(name: str) -> str:
    steps = steps_of(MODEL_FOLDER / name)
    if not steps:
        return ""
    return f" {len(steps)} steps of its training: {name}@{steps[0]} … @{steps[-1]}."


def _row(name: str) -> tuple[str, ...]:
    model, folder = load(name), MODEL_FOLDER / name
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return (
        name,
        kind(model.config),
        " + ".join(
            f"{stack.n_layers}×{stack.attention.n_heads}" for stack in model.config.stacks.values()
        ),
        str(model.config.d_model),
        str(model.config.d_vocab),
        short(sum(weight.numel() for weight in model.parameters())),
        f"{short(size)}B",
    )


def short(count: int) -> str:
    """A count in three digits: ``1.24k``, ``3.68M``."""
    for power, unit in ((2, "M"), (1, "k")):
        if float(f"{count:.3g}") >= THOUSAND**power:
            return f"{count / THOUSAND**power:#.3g}".rstrip(".") + unit
    return str(count)
