"""A virtual environment with a wheel and what it requires, and nothing else.

    ENV/lib/python3.11/site-packages/interp/…           installed by pip from the wheel
    ENV/lib/python3.11/site-packages/torch   → links to the packages of the running environment
    …                                        that the wheel requires, and that those require

It has what ``pip install interp`` with some extras would bring, at the versions that are tested,
without downloading them again: neither the repository, nor the packages of any other extra.
"""

import os
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LEFT_OUT = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables by which an environment would see another one."""


@dataclass(frozen=True)
class CleanEnvironment:
    """A virtual environment, and a folder to run commands in.

    Attributes:
        folder: of the environment.
        work: the folder in which commands run; empty at first.
    """

    folder: Path
    work: Path

    @classmethod
    def of_wheel(cls, wheel: Path, folder: Path, extras: Iterable[str] = ()) -> "CleanEnvironment":
        """Install a wheel; what it requires must be in the running environment."""
        venv.create(folder / "env", symlinks=True, with_pip=False)
        (folder / "work").mkdir()
        made = cls(folder / "env", folder / "work")
        # Before the links, so that pip finds nothing that it could replace.
        pip = [sys.executable, "-m", "pip", "--python", made.python, "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True, env=made.variables)
        (metadata,) = made.site_packages.glob("*.dist-info")
        for needed in closure(PathDistribution(metadata), extras):
            for path in top_level(needed):
                link = made.site_packages / path.name
                if not link.exists():  # several packages may share a namespace
                    link.symlink_to(path)
        return made

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        """Where its packages are."""
        (path,) = self.folder.glob("lib/python*/site-packages")
        return path

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of its processes."""
        variables = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
        return variables | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}

    def run(self, *words: object) -> "subprocess.CompletedProcess[str]":
        """Run one of its programs with some words."""
        command = [self.folder / "bin" / str(words[0]), *map(str, words[1:])]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.work,
            env=self.variables,
            timeout=300,
        )


def closure(of: Distribution, extras: Iterable[str]) -> Iterator[Distribution]:
    """The distributions that installing one with some extras brings.

    Raises:
        PackageNotFoundError: one is not installed here.
        ValueError: one has a version that is not accepted.
    """
    todo, visited = list(required(of, extras)), set[tuple[str, frozenset[str]]]()
    while todo:
        requirement = todo.pop()
        key = canonicalize_name(requirement.name), frozenset(requirement.extras)
        itself = key[0] == canonicalize_name(of.name)
        needed = of if itself else distribution(requirement.name)
        if not requirement.specifier.contains(needed.version, prereleases=True):
            raise ValueError(f"{requirement}, but {needed.version} is installed")
        if key not in visited:
            visited.add(key)
            todo += required(needed, requirement.extras)
            if not itself:
                yield needed


def required(of: Distribution, extras: Iterable[str]) -> Iterator[Requirement]:
    """What a distribution requires on this machine, with some extras."""
    for requirement in map(Requirement, of.requires or []):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def top_level(of: Distribution) -> set[Path]:
    """The files and folders of a distribution that are directly in its site-packages."""
    first = {file.parts[0] for file in of.files or []} - {"..", "__pycache__"}
    return {Path(str(of.locate_file(name))) for name in first}
