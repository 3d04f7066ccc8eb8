"""Try features in the libraries that are installed, or time them; write a table.

    python -m tools.features --out a.json          # in an environment with some libraries
    python -m tools.features --only nnterp --out b.json
    python -m tools.features --from a.json --from b.json --docs docs/index.md

Each cell is the outcome of a trial in ``tools/features``: a few lines that use the library's
public calls on a model with random weights. ``not tried`` means that there is no such trial. With
``--speeds``, each cell is a time in plain forward passes of transformers.
"""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from benchmarks.table import write_between
from benchmarks.timing import Absent
from tools.features.drawings import CircuitsVis
from tools.features.lens import LensFour, LensThree
from tools.features.ours import Ours
from tools.features.speeds import WORKS, machine, plain_forwards
from tools.features.traces import Sight, Standardized
from tools.features.trials import FEATURES, Lacks, Library, tried

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
SPEED_MARKERS = ("<!-- speeds of libraries -->", "<!-- end of speeds -->")
MACHINE = "machine"
Outcomes = dict[str, dict[str, str]]
"""Of each library (name and version), the outcome of each feature or work."""


def installed(library: type[Library]) -> str | None:
    """Its version, if the trials are written for it."""
    try:
        version = metadata.version(library.package)
    except metadata.PackageNotFoundError:
        return None
    major = int(version.split(".")[0])
    return version if int(library.from_version) <= major < int(library.below) else None


def try_all(packages: Sequence[str], *, speeds: bool = False) -> Outcomes:
    """All features, or the times of all works, in those of the libraries that are installed."""
    outcomes: Outcomes = {}
    for library in LIBRARIES:
        version = installed(library)
        if version is None or library.package not in packages:
            continue
        trials = library()
        beside = [f"{name} {metadata.version(name)}" for name in library.beside]
        note = f" with {', '.join(beside)}" if beside else ""
        name = f"{library.package} {version}{note}"
        if speeds:
            outcomes[name] = _times(trials)
        else:
            outcomes[name] = {feature: tried(trials, feature) for feature in FEATURES}
    return outcomes


def _times(trials: Library) -> dict[str, str]:
    """The time of each work and the machine, or why there are none."""
    try:
        return {**plain_forwards(trials), MACHINE: machine()}
    except Lacks as lack:
        return dict.fromkeys(WORKS, str(lack))
    except Exception as error:
        return dict.fromkeys(WORKS, f"raises {type(error).__name__}")


def to_markdown(outcomes: Outcomes, titles: Mapping[str, str] = FEATURES) -> str:
    """A line for each feature or work, a column for each library; below it, the machines."""
    names = sorted(outcomes, key=lambda name: (PACKAGES.index(name.split()[0]), name))
    heading = "tried" if titles is FEATURES else "time in plain forward passes"
    lines = [f"| {heading} | {' | '.join(names)} |", f"|{' --- |' * (len(names) + 1)}"]
    for key, title in titles.items():
        cells = [outcomes[name].get(key, "not tried") for name in names]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    machines = dict.fromkeys(
        outcome[MACHINE] for outcome in outcomes.values() if MACHINE in outcome
    )
    return "\n".join([*lines, *(f"\nMeasured with {machine}." for machine in machines)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Try, or read what was found elsewhere; print the table and write the requested files."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.features",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    several = {"type": Path, "action": "append", "default": []}
    every = ",".join(PACKAGES)
    parser.add_argument("--only", default=every, help=f"some of {every}")
    parser.add_argument("--out", type=Path, help="write what was found as JSON")
    parser.add_argument("--from", dest="read", **several, help="read this, and try nothing")
    parser.add_argument("--speeds", action="store_true", help="time works in the place of trials")
    parser.add_argument("--docs", type=Path, help="write the table between this page's markers")
    options = parser.parse_args(arguments)
    outcomes: Outcomes = {}
    for path in options.read:
        outcomes |= json.loads(path.read_text(encoding="utf-8"))
    if not options.read:
        os.environ["HF_HUB_OFFLINE"] = "1"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcomes = try_all(options.only.split(","), speeds=options.speeds)
    titles, markers = (WORKS, SPEED_MARKERS) if options.speeds else (FEATURES, MARKERS)
    print(to_markdown(outcomes, titles))
    if options.out:
        options.out.write_text(json.dumps(outcomes, indent=1), encoding="utf-8")
    try:
        if options.docs:
            write_between(options.docs, to_markdown(outcomes, titles), markers)
    except Absent as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
