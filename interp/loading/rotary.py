"""What do the rotary fields of a ``config.json`` mean? ``rope_parameters``, or the older names.

Since version 5 ``transformers`` writes one dictionary ``rope_parameters`` (or one a kind of layer);
before, ``rope_theta``, ``rope_scaling`` and ``partial_rotary_factor`` stood by themselves.
"""

from collections.abc import Mapping
from math import log, sqrt
from typing import Any

from interp.config import PositionsConfig, ScalingConfig
from interp.errors import ModelLoadError
from interp.loading.raw import Raw

KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
OLD_NAMES = {"su": "longrope"}


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
    base = said.get("rope_theta", raw.get("rope_theta", 10_000.0) if theta is None else theta)
    usual = raw.get("partial_rotary_factor", 1.0) if share is None else share
    turning = said.get("partial_rotary_factor", usual)
    d_head = raw.get("head_dim", raw.whole("hidden_size") // raw.whole("num_attention_heads"))
    return PositionsConfig(
        kind="rotary",
        base=float(base),
        d_rotary=None if turning == 1 else int(d_head * turning),
        scaling=_scaling(raw, said),
    )


def longest(raw: Raw) -> int:
    """Tokens that a model reads: more than it was trained on, if its positions grow with them."""
    trained, said = raw.whole("max_position_embeddings"), _parameters(raw, None)
    grows = _named(said) == "dynamic"
    return int(trained * said.get("factor", 1.0)) if grows else trained


def _parameters(raw: Raw, kind: str | None) -> Mapping[str, Any]:
    said = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(said, Mapping):
        raise raw.refused("rope_parameters", said, "an object")
    nested = said.get(kind) if kind is not None else None
    if isinstance(nested, Mapping):
        return nested
    if any(isinstance(value, Mapping) for value in said.values()):
        raise raw.refused("rope_parameters", said, "one object for all layers")
    return said


def _named(said: Mapping[str, Any]) -> str:
    name = said.get("rope_type", said.get("type", "default"))
    return OLD_NAMES.get(name, name)


def _scaling(raw: Raw, said: Mapping[str, Any]) -> ScalingConfig | None:
    name = _named(said)
    if name not in KINDS:
        raise raw.refused("rope_type", name, "one of " + ", ".join(KINDS))
    if name == "default":
        return None
    trained = raw.whole("max_position_embeddings")
    first = raw.get("original_max_position_embeddings")
    if first is None or name == "dynamic":
        first = trained if name == "dynamic" else said.get("original_max_position_embeddings")
    original = trained if first is None else int(first)
    factor = said.get("factor")
    factor = trained / original if factor is None else float(factor)
    try:
        return ScalingConfig(name, factor, original, **_details(name, said, factor, original))
    except KeyError as error:
        raise ModelLoadError(
            f"{raw.family}: config.json lacks {error} for rope_type {name!r}."
        ) from error


def _details(name: str, said: Mapping[str, Any], factor: float, original: int) -> dict[str, Any]:
    """What is told of one kind alone."""
    if name == "llama3":
        return {
            "low": float(said["low_freq_factor"]),
            "high": float(said["high_freq_factor"]),
        }
    if name == "yarn":
        return {
            "beta_fast": float(said.get("beta_fast") or 32),
            "beta_slow": float(said.get("beta_slow") or 1),
            "truncate": bool(said.get("truncate", True)),
            "amplitude": _yarn_amplitude(said, factor),
        }
    if name == "longrope":
        told = said.get("attention_factor")
        grown = 1.0 if factor <= 1 else sqrt(1 + log(factor) / log(original))
        return {
            "short": tuple(map(float, said["short_factor"])),
            "long": tuple(map(float, said["long_factor"])),
            "amplitude": grown if told is None else float(told),
        }
    return {}


def _yarn_amplitude(said: Mapping[str, Any], factor: float) -> float:
    """0.1·log(factor) + 1, unless it is told (Peng et al. 2023, equation 22)."""
    told, scale, every = (said.get(n) for n in ("attention_factor", "mscale", "mscale_all_dim"))
    if told is not None:
        return float(told)

    def grown(times: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * times * log(factor) + 1.0

    return grown(scale) / grown(every) if scale and every else grown(1.0)
