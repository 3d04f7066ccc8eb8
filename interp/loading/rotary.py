"""What do the rotary fields of a ``config.json`` mean? ``rope_parameters``, or the older names.

Since version 5 ``transformers`` writes one dictionary ``rope_parameters`` (or one a kind of layer);
before, ``rope_theta``, ``rope_scaling`` and ``partial_rotary_factor`` stood by themselves.
"""

from collections.abc import Mapping
from math import log, sqrt
from typing import Any

from interp.config import PositionsConfig, ScalingConfig, ScalingKind
from interp.loading.foreign_config import Raw

KINDS: dict[str, ScalingKind | None] = {
    "default": None,
    "linear": "linear",
    "dynamic": "dynamic",
    "llama3": "llama3",
    "yarn": "yarn",
    "longrope": "longrope",
    "su": "longrope",
}
"""Names of ``transformers``, some of them old, and ours."""


def rotary(
    raw: Raw, kind: str | None = None, theta: float | None = None, share: float | None = None
) -> PositionsConfig:
    """Rotary positions in halves, as a configuration describes them.

    Args:
        raw: the configuration.
        kind: of layers, as ``full_attention``, where each has its own.
        theta: the base where nothing is said; by default the family's ``rope_theta``.
        share: of a head's dimensions that turn where nothing is said; by default the family's
            ``partial_rotary_factor``, or all.

    Raises:
        ModelLoadError: a scaling that is not known, or that lacks what it needs.
    """
    said = _parameters(raw, kind)
    usual: float = raw.get("rope_theta", 10_000.0) if theta is None else theta
    turning = turning_share(raw, kind, share)
    d_head = raw.get("head_dim", raw.whole("hidden_size") // raw.whole("num_attention_heads"))
    return PositionsConfig(
        kind="rotary",
        base=float(said.get("rope_theta", float(usual))),
        d_rotary=None if turning == 1 else int(d_head * turning),
        scaling=_scaling(raw, said),
    )


def turning_share(raw: Raw, kind: str | None = None, usual: float | None = None) -> float:
    """Of a head's dimensions, those that turn; ``usual`` where nothing is said, or all."""
    share: float = raw.get("partial_rotary_factor", 1.0) if usual is None else usual
    return _parameters(raw, kind).get("partial_rotary_factor", float(share))


def longest(raw: Raw) -> int:
    """Tokens that a model reads: more than it was trained on, if its positions grow with them."""
    trained, said = raw.whole("max_position_embeddings"), _parameters(raw, None)
    grows = _named(said) == "dynamic"
    return int(trained * said.get("factor", 1.0)) if grows else trained


def _parameters(raw: Raw, kind: str | None) -> Raw:
    said = raw.get("rope_scaling") or raw.get("rope_parameters") or {}  # theirs: the older wins
    if not isinstance(said, Mapping):
        raise raw.refused("rope_parameters", said, "an object")
    nested = said.get(kind) if kind is not None else None
    if isinstance(nested, Mapping):
        return Raw(raw.family, nested, {})
    if any(isinstance(value, Mapping) for value in said.values()):
        raise raw.refused("rope_parameters", said, "one object for all layers")
    return Raw(raw.family, said, {})


def _named(said: Raw) -> ScalingKind | None:
    """Our name of the scaling; ``None`` if there is none."""
    name: object = said.get("rope_type", said.get("type", "default"))
    if not isinstance(name, str) or name not in KINDS:
        raise said.refused("rope_type", name, "one of " + ", ".join(KINDS))
    return KINDS[name]


def _scaling(raw: Raw, said: Raw) -> ScalingConfig | None:
    name = _named(said)
    if name is None:
        return None
    trained = raw.whole("max_position_embeddings")
    original = trained if name == "dynamic" else _original(raw, said, trained)
    stretched = name in ("yarn", "longrope") and said.get("factor") is None
    factor = trained / original if stretched else said.number("factor")
    return ScalingConfig(name, factor, original, **_details(name, said, factor, original))


def _original(raw: Raw, said: Raw, trained: int) -> int:
    """Tokens that the model read before its positions were stretched."""
    name = "original_max_position_embeddings"
    holder = raw if raw.get(name) is not None else said
    return trained if holder.get(name) is None else holder.whole(name)


def _details(name: str, said: Raw, factor: float, original: int) -> dict[str, Any]:
    """What is told of one kind alone."""
    if name == "llama3":
        return {"low": said.number("low_freq_factor"), "high": said.number("high_freq_factor")}
    if name == "yarn":
        return {
            "beta_fast": float(said.get("beta_fast", 32.0) or 32),
            "beta_slow": float(said.get("beta_slow", 1.0) or 1),
            "truncate": said.get("truncate", True),
            "amplitude": _yarn_amplitude(said, factor),
        }
    if name == "longrope":
        grown = 1.0 if factor <= 1 else sqrt(1 + log(factor) / log(original))
        return {
            "short": _numbers(said, "short_factor"),
            "long": _numbers(said, "long_factor"),
            "amplitude": float(said.get("attention_factor", grown)),
        }
    return {}


def _numbers(said: Raw, name: str) -> tuple[float, ...]:
    values = said[name]
    if not isinstance(values, list) or not all(isinstance(x, int | float) for x in values):
        raise said.refused(name, values, "a list of numbers")
    return tuple(map(float, values))


def _yarn_amplitude(said: Raw, factor: float) -> float:
    """0.1·log(factor) + 1, unless it is told (Peng et al. 2023, equation 22)."""

    def grown(times: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * times * log(factor) + 1.0

    scale, every = said.get("mscale", 0.0), said.get("mscale_all_dim", 0.0)
    usual = grown(scale) / grown(every) if scale and every else grown(1.0)
    return float(said.get("attention_factor", usual))
