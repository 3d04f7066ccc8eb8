"""What the publisher of a dictionary says of it: L0, variance, dead features, loss recovered.

The names are those of the figures of :func:`analyses.check_dictionaries`; definitions may differ
from theirs, which each claim says. A claim changes nothing of what is computed, so one that can't
be read is left out with a warning.
"""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from interp.dictionaries.files import Settings, settings_of
from interp.errors import ModelLoadError, shorten

EVALUATION = "eval_results.json"
"""The file in which dictionary_learning stores what its `evaluate` measures."""
LARGEST = 1e9
"""The largest number that is read of a share that may be outside of 0 to 1."""
AVERAGE_L0 = re.compile(r"average_l0_(\d{1,6})")
"""The name of a folder of Gemma Scope."""


@dataclass(frozen=True)
class Claim:
    """A figure of a dictionary as its publisher states it.

    Attributes:
        value: the figure.
        definition: how it is defined, and where it stands.
    """

    value: float
    definition: str


Claims = Mapping[str, Claim]
"""Claims by the figure: ``fvu``, ``l0``, ``dead`` or ``recovered``."""


@dataclass(frozen=True)
class Stated:
    """A number that a file may state, and the figure that it is.

    Attributes:
        figure: the figure.
        definition: its definition.
        of_one: whether the file states one minus the figure.
        low: the smallest number that the file may state.
        high: the largest; ``None`` for the number of features.
    """

    figure: str
    definition: str
    of_one: bool = False
    low: float = 0.0
    high: float | None = 1.0


OF_EVALUATION = {
    "frac_variance_explained": Stated(
        "fvu",
        "1 − frac_variance_explained, on activations of its own texts",
        of_one=True,
        low=-LARGEST,
    ),
    "l0": Stated("l0", "mean number of features other than 0, on its own texts", high=None),
    "frac_alive": Stated("dead", "1 − frac_alive, on its own texts", of_one=True),
    "frac_recovered": Stated(
        "recovered",
        "share of what zero ablation costs that is recovered (not of what mean ablation costs), on "
        "its own texts",
        low=-LARGEST,
        high=LARGEST,
    ),
}
"""What `evaluate` of dictionary_learning measures, by its names."""
OF_SAELENS = {
    **dict.fromkeys(
        ("l0", "expected_l0"), Stated("l0", "as listed in SAELens, on other texts", high=None)
    ),
    **dict.fromkeys(
        ("variance_explained", "expected_var_explained"),
        Stated(
            "fvu",
            "1 − variance explained as in SAELens, on other texts",
            of_one=True,
            low=-LARGEST,
        ),
    ),
}
"""What SAELens lists of pretrained dictionaries, by its names."""
OF_GEMMA_SCOPE_2 = {
    "l0": Stated("l0", "l0 of its configuration, which may be what training aimed at", high=None)
}


def evaluated_claims(folder: Path, n_features: int) -> dict[str, Claim]:
    """The claims of a folder of dictionary_learning."""
    path = folder / EVALUATION
    if not path.exists():
        return {}
    try:
        results = settings_of(path)
    except ModelLoadError as error:
        _warn(f"{error} It is not needed, so the dictionary is read without the claims in it.")
        return {}
    return stated_claims(results, OF_EVALUATION, n_features, path)


def folder_claims(folder: Path, n_features: int) -> dict[str, Claim]:
    """The claims in the name of a folder of Gemma Scope."""
    match = AVERAGE_L0.fullmatch(folder.name)
    if match is None:
        return {}
    stated = {"l0": int(match[1])}
    definition = "mean on its own texts, from the name of its folder"
    return stated_claims(stated, {"l0": Stated("l0", definition, high=None)}, n_features, folder)


def stated_claims(
    settings: Settings, names: Mapping[str, Stated], n_features: int, path: Path
) -> dict[str, Claim]:
    """The claims among the settings of a file.

    Args:
        settings: the settings.
        names: the names of those that are claims.
        n_features: number of features of the dictionary.
        path: the file.
    """
    claims: dict[str, Claim] = {}
    for name, stated in names.items():
        value = settings.get(name)
        high = float(n_features) if stated.high is None else stated.high
        if value is None:
            continue
        if not _is_number(value) or not stated.low <= value <= high:
            _warn(
                f"{path}: {name} is {shorten(value)}; a number from {stated.low:g} to {high:g} was "
                "expected, so it is not read as a claim."
            )
            continue
        figure = 1 - float(value) if stated.of_one else float(value)
        claims.setdefault(stated.figure, Claim(figure, stated.definition))
    return claims


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _warn(message: str) -> None:
    """Warn the caller of :func:`interp.dictionaries.load`."""
    warnings.warn(message, stacklevel=5)
