"""Rotary positions of a foreign configuration: ``rope_parameters``, or the older fields.

Version 5 of ``transformers`` writes one object ``rope_parameters`` (or one for each layer type).
Earlier versions write ``rope_theta``, ``rope_scaling`` and ``partial_rotary_factor`` as fields.
"""

from collections.abc import Mapping
from math import log, sqrt
from typing import Any

from interp.config import PositionsConfig, ScalingConfig, ScalingKind
from interp.loading.foreign_config import ForeignConfig
from interp.loading.sliding_window import FULL, SLIDING

SCALING_KINDS: dict[str, ScalingKind | None] = {
    "default": None,
    "linear": "linear",
    "dynamic": "dynamic",
    "llama3": "llama3",
    "yarn": "yarn",
    "longrope": "longrope",
    "su": "longrope",
}
"""Values of ``rope_type``, and the kind of scaling of each."""

FIELDS = (
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
)
"""Fields that describe rotary positions; some have defaults."""
PARAMETERS = (
    *("attention_factor", "beta_fast", "beta_slow", "factor", "high_freq_factor"),
    *("long_factor", "low_freq_factor", "mscale", "mscale_all_dim"),
    *("original_max_position_embeddings", "partial_rotary_factor", "rope_theta", "rope_type"),
    *("short_factor", "truncate", "type"),
)
"""Fields of the object ``rope_parameters`` that are read."""


def rotary(
    fields: ForeignConfig,
    layer_type: str | None = None,
    theta: float | None = None,
    fraction: float | None = None,
) -> PositionsConfig:
    """The rotary positions, in layout ``half``, that a configuration describes.

    Args:
        fields: the configuration.
        layer_type: a type such as ``full_attention``, if each layer type has its own positions.
        theta: default base; ``None`` means the field ``rope_theta``.
        fraction: default fraction of a head's dimensions that are rotated; ``None`` means the
            field ``partial_rotary_factor``, or 1.

    Raises:
        ModelLoadError: a scaling is not supported, or lacks a parameter.
    """
    rope = _parameters(fields, layer_type)
    default: float = fields.get("rope_theta", 10_000.0) if theta is None else theta
    rotated = rotary_fraction(fields, layer_type, fraction)
    d_model, n_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    d_head = fields.get("head_dim", d_model // n_heads)
    return PositionsConfig(
        kind="rotary",
        base=float(rope.get("rope_theta", float(default))),
        d_rotary=None if rotated == 1 else int(d_head * rotated),
        scaling=_scaling(fields, rope),
    )


def with_rope_of(fields: ForeignConfig, layer_type: str, base: float) -> ForeignConfig:
    """The same fields, with the rotary positions of one layer type as those of all layers.

    Older files have no parameters by layer type; their scaling applies to full layers only.

    Args:
        fields: the configuration.
        layer_type: :data:`FULL` or :data:`SLIDING`.
        base: the base of the positions of these layers, unless their parameters have one.

    Raises:
        ModelLoadError: one set of parameters is given for both layer types, or a layer type is
            unknown.
    """
    by_type = fields.get("rope_parameters")
    if by_type is None:
        rope = fields.get("rope_scaling", {}) if layer_type == FULL else {}
    else:
        fields.allow_only("rope_scaling")
        if not isinstance(by_type, Mapping) or set(by_type) - {FULL, SLIDING}:
            expected = f"an object with {FULL} and {SLIDING}"
            raise fields.unsupported("rope_parameters", by_type, expected)
        rope = by_type.get(layer_type) or {}
    if not isinstance(rope, Mapping):
        raise fields.unsupported(f"rope_parameters of {layer_type}", rope, "an object")
    # Theirs does not read it in parameters by layer type.
    ForeignConfig(fields.family, rope, {}).allow_only_computed("truncate", (True,))
    return fields.replace(
        rope_parameters={"rope_theta": base, **rope},
        rope_scaling=None,
        original_max_position_embeddings=None,  # transformers reads it only in these parameters
    )


def rotary_fraction(
    fields: ForeignConfig, layer_type: str | None = None, default: float | None = None
) -> float:
    """Fraction of a head's dimensions that are rotated; arguments as for :func:`rotary`."""
    share: float = fields.get("partial_rotary_factor", 1.0) if default is None else default
    return _parameters(fields, layer_type).get("partial_rotary_factor", float(share))


def context_length(fields: ForeignConfig) -> int:
    """Longest sequence: the trained length, times the factor of a dynamic scaling."""
    trained, rope = fields.integer("max_position_embeddings"), _parameters(fields, None)
    is_dynamic = _scaling_kind(rope) == "dynamic"
    return int(trained * rope.get("factor", 1.0)) if is_dynamic else trained


def _parameters(fields: ForeignConfig, layer_type: str | None) -> ForeignConfig:
    """The rotary parameters; ``rope_scaling`` takes precedence, as in ``transformers``."""
    rope = fields.get("rope_scaling") or fields.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise fields.unsupported("rope_parameters", rope, "an object")
    nested = rope.get(layer_type) if layer_type is not None else None
    parameters = nested if isinstance(nested, Mapping) else rope
    if any(isinstance(value, Mapping) for value in parameters.values()):
        raise fields.unsupported("rope_parameters", rope, "one object for all layers")
    return ForeignConfig(fields.family, parameters, {})


def _scaling_kind(rope: ForeignConfig) -> ScalingKind | None:
    name: object = rope.get("rope_type", rope.get("type", "default"))
    if not isinstance(name, str) or name not in SCALING_KINDS:
        raise rope.unsupported("rope_type", name, "one of " + ", ".join(SCALING_KINDS))
    return SCALING_KINDS[name]


def _scaling(fields: ForeignConfig, rope: ForeignConfig) -> ScalingConfig | None:
    kind = _scaling_kind(rope)
    if kind is None:
        return None
    trained = fields.integer("max_position_embeddings")
    original = trained if kind == "dynamic" else _original_length(fields, rope, trained)
    by_length = kind in ("yarn", "longrope") and rope.get("factor") is None
    factor = trained / original if by_length else rope.number("factor")
    return ScalingConfig(kind, factor, original, **_parameters_of(kind, rope, factor, original))


def _original_length(fields: ForeignConfig, rope: ForeignConfig, trained: int) -> int:
    """The trained length before scaling, which either object may give."""
    name = "original_max_position_embeddings"
    holder = fields if fields.get(name) is not None else rope
    return trained if holder.get(name) is None else holder.integer(name)


def _parameters_of(kind: str, rope: ForeignConfig, factor: float, original: int) -> dict[str, Any]:
    """The parameters of :class:`ScalingConfig` that one kind has."""
    if kind == "llama3":
        return {"low": rope.number("low_freq_factor"), "high": rope.number("high_freq_factor")}
    if kind == "yarn":
        return {
            "beta_fast": float(rope.get("beta_fast", 32.0) or 32),
            "beta_slow": float(rope.get("beta_slow", 1.0) or 1),
            "truncate": rope.get("truncate", True),
            "amplitude": _yarn_amplitude(rope, factor),
        }
    if kind == "longrope":
        default = 1.0 if factor <= 1 else sqrt(1 + log(factor) / log(original))
        return {
            "short": _numbers(rope, "short_factor"),
            "long": _numbers(rope, "long_factor"),
            "amplitude": float(rope.get("attention_factor", default)),
        }
    return {}


def _numbers(rope: ForeignConfig, name: str) -> tuple[float, ...]:
    values = rope[name]
    if not isinstance(values, list) or not all(isinstance(x, int | float) for x in values):
        raise rope.unsupported(name, values, "a list of numbers")
    return tuple(map(float, values))


def _yarn_amplitude(rope: ForeignConfig, factor: float) -> float:
    """``attention_factor``, by default 0.1·log(factor) + 1 (Peng et al. 2023, equation 22)."""

    def amplitude(multiplier: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * multiplier * log(factor) + 1.0

    scale, every = rope.get("mscale", 0.0), rope.get("mscale_all_dim", 0.0)
    default = amplitude(scale) / amplitude(every) if scale and every else amplitude(1.0)
    return float(rope.get("attention_factor", default))
