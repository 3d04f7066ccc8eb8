"""Try features in the libraries that are installed; write them as a table.

    python -m benchmarks.features --out a.json          # in an environment with some libraries
    python -m benchmarks.features --only nnterp --out b.json
    python -m benchmarks.features --from a.json --from b.json --docs docs/index.md

Each cell is the outcome of a trial in ``benchmarks/features``: a few lines that use the library's
public calls on a model with random weights. ``not tried`` means that there is no such trial.
"""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from benchmarks.features.drawings import CircuitsVis
from benchmarks.features.lens import LensFour, LensThree
from benchmarks.features.ours import Ours
from benchmarks.features.traces import Sight, Standardized
from benchmarks.features.trials import FEATURES, Library, tried
from benchmarks.table import write_between
from benchmarks.timing import Absent

LIBRARIES: tuple[type[Library], ...] = (
    Ours,
    LensThree,
    LensFour,
    Sight,
    Standardized,
    CircuitsVis,
)
PACKAGES = list(dict.fromkeys(library.package for library in LIBRARIES))
MARKERS = ("<!-- features tried -->", "<!-- end of features -->")
Outcomes = dict[str, dict[str, str]]
"""Of each library (name and version), the outcome of each feature."""


def installed(library: type[Library]) -> str | None:
    """Its version, if the trials are written for it."""
    try:
        version = metadata.version(library.package)
    except metadata.PackageNotFoundError:
        return None
    major = int(version.split(".")[0])
    return version if int(library.from_version) <= major < int(library.below) else None


def try_all(packages: Sequence[str]) -> Outcomes:
    """All features in those of the libraries that are installed."""
    outcomes: Outcomes = {}
    for library in LIBRARIES:
        version = installed(library)
        if version is not None and library.package in packages:
            trials = library()
            found = {feature: tried(trials, feature) for feature in FEATURES}
            beside = [f"{name} {metadata.version(name)}" for name in library.beside]
            note = f" with {', '.join(beside)}" if beside else ""
            outcomes[f"{library.package} {version}{note}"] = found
    return outcomes


def to_markdown(outcomes: Outcomes) -> str:
    """A line for each feature, a column for each library."""
    names = sorted(outcomes, key=lambda name: (PACKAGES.index(name.split()[0]), name))
    lines = [f"| tried | {' | '.join(names)} |", f"|{' --- |' * (len(names) + 1)}"]
    for feature, title in FEATURES.items():
        cells = [outcomes[name].get(feature, "not tried") for name in names]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try, or read what was found elsewhere; print the table and write the requested files."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.features",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    several = {"type": Path, "action": "append", "default": []}
    every = ",".join(PACKAGES)
    parser.add_argument("--only", default=every, help=f"some of {every}")
    parser.add_argument("--out", type=Path, help="write what was found as JSON")
    parser.add_argument("--from", dest="read", **several, help="read this, and try nothing")
    parser.add_argument("--docs", type=Path, help="write the table between this page's markers")
    options = parser.parse_args(arguments)
    outcomes: Outcomes = {}
    for path in options.read:
        outcomes |= json.loads(path.read_text(encoding="utf-8"))
    if not options.read:
        os.environ["HF_HUB_OFFLINE"] = "1"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcomes = try_all(options.only.split(","))
    print(to_markdown(outcomes))
    if options.out:
        options.out.write_text(json.dumps(outcomes, indent=1), encoding="utf-8")
    try:
        if options.docs:
            write_between(options.docs, to_markdown(outcomes), MARKERS)
    except Absent as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
