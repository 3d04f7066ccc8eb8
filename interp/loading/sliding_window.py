"""How far back does a layer look? ``sliding_window``, and ``layer_types`` where layers differ."""

from collections.abc import Callable
from dataclasses import replace

from interp.config import AttentionConfig, LayerConfig, PositionsConfig
from interp.loading.foreign_config import Raw

FULL, SLIDING = "full_attention", "sliding_attention"


def window(raw: Raw) -> int | None:
    """How many keys a query sees, its own among them; ``None`` if all before it."""
    return None if raw.said("sliding_window") is None else raw.whole("sliding_window")


def kinds(raw: Raw, otherwise: Callable[[int], bool]) -> tuple[str, ...]:
    """What ``layer_types`` calls each layer; where it is not there, ``otherwise`` tells who slides.

    Raises:
        ModelLoadError: a kind that is not known, or one too many or too few.
    """
    n_layers, said = raw.whole("num_hidden_layers"), raw.get("layer_types")
    if said is None:
        return tuple(SLIDING if otherwise(layer) else FULL for layer in range(n_layers))
    known = isinstance(said, list) and all(kind in (FULL, SLIDING) for kind in said)
    if not known or len(said) != n_layers:
        raise raw.refused("layer_types", said, f"{n_layers} times {FULL} or {SLIDING}")
    return tuple(said)


def sliding(
    raw: Raw,
    kinds: tuple[str, ...],
    attention: AttentionConfig,
    positions: PositionsConfig | None = None,
) -> tuple[LayerConfig, ...]:
    """The layers that slide: their attention has a window; their positions, perhaps, differ.

    Raises:
        ModelLoadError: nothing says how long the window is.
    """
    layers, size = tuple(n for n, kind in enumerate(kinds) if kind == SLIDING), window(raw)
    if not layers:
        return ()
    if size is None:
        raise raw.refused("sliding_window", None, "a number where layers slide")
    return (LayerConfig(layers, replace(attention, window=size), positions=positions),)
