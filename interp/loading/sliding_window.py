"""Sliding-window attention: the fields ``sliding_window`` and ``layer_types``."""

from collections.abc import Callable
from dataclasses import replace

from interp.config import AttentionConfig, LayerConfig, PositionsConfig
from interp.loading.foreign_config import ForeignConfig

FULL, SLIDING = "full_attention", "sliding_attention"
"""Values of ``layer_types``."""


def window(fields: ForeignConfig) -> int | None:
    """``sliding_window``: how many keys a query attends to, its own included; ``None`` for all."""
    return None if fields.nullable("sliding_window") is None else fields.integer("sliding_window")


def layer_types(fields: ForeignConfig, slides: Callable[[int], bool]) -> tuple[str, ...]:
    """``layer_types``: for each layer :data:`FULL` or :data:`SLIDING`.

    Args:
        fields: the configuration.
        slides: whether a layer has a window, if ``layer_types`` is missing.

    Raises:
        ModelLoadError: a type is unknown, or there is not one for each layer.
    """
    n_layers, types = fields.integer("num_hidden_layers"), fields.get("layer_types")
    if types is None:
        return tuple(SLIDING if slides(layer) else FULL for layer in range(n_layers))
    is_valid = isinstance(types, list) and all(kind in (FULL, SLIDING) for kind in types)
    if not is_valid or len(types) != n_layers:
        raise fields.unsupported("layer_types", types, f"{n_layers} times {FULL} or {SLIDING}")
    return tuple(types)


def enabled_window_types(fields: ForeignConfig, slides: Callable[[int], bool]) -> tuple[str, ...]:
    """Like :func:`layer_types`, for families in which ``use_sliding_window`` enables windows.

    Raises:
        ModelLoadError: as for :func:`layer_types`; or ``layer_types`` has sliding layers and
            ``use_sliding_window`` is false.
    """
    enabled = fields.flag("use_sliding_window")
    types = layer_types(fields, lambda layer: enabled and slides(layer))
    if SLIDING in types and not enabled:
        expected = f"True, as layer_types has {SLIDING}"
        raise fields.unsupported("use_sliding_window", value=False, expected=expected)
    return types


def sliding_layers(
    fields: ForeignConfig,
    types: tuple[str, ...],
    attention: AttentionConfig,
    positions: PositionsConfig | None = None,
) -> tuple[LayerConfig, ...]:
    """The exceptions of a stack for its layers of type :data:`SLIDING`.

    Args:
        fields: the configuration.
        types: the type of each layer.
        attention: the attention of all layers, to which these layers add the window.
        positions: the positions of these layers, if they differ from the others'.

    Raises:
        ModelLoadError: such layers exist and ``sliding_window`` is null.
    """
    layers, size = tuple(n for n, kind in enumerate(types) if kind == SLIDING), window(fields)
    if not layers:
        return ()
    if size is None:
        expected = f"an integer, as layer_types has {SLIDING}"
        raise fields.unsupported("sliding_window", None, expected)
    return (LayerConfig(layers, replace(attention, window=size), positions=positions),)
