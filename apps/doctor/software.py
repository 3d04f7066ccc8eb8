"""Python, the packages that interp needs, and packages that hide its own."""

import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from apps.doctor.finding import Finding, as_expected, failure, warning
from interp_command import HERE, PACKAGES, check_packages

NAMED = ("torch", "numpy", "pandas", "plotly", "streamlit")
"""Packages that always have a line of their own, even if nothing has to be done."""
EXTRAS = ("", "analyses", "apps")
OPTIONAL = {
    "transformers": "live Hugging Face models, given to interp.load",
    "kaleido": "PNG, SVG and PDF files of Plotly figures (figure.write_image)",
}
"""Packages that interp does not require, and what they are for."""


@dataclass(frozen=True)
class Needed:
    """A package that interp needs, and its installed version.

    Attributes:
        requirement: the name of the package and the versions that interp supports.
        installed: the installed version; ``None`` if it is not installed.
    """

    requirement: Requirement
    installed: str | None

    @property
    def name(self) -> str:
        """The name of the package."""
        return self.requirement.name

    @property
    def is_in_range(self) -> bool:
        """Whether interp supports the installed version."""
        specifier = self.requirement.specifier
        return self.installed is not None and specifier.contains(self.installed, prereleases=True)

    @property
    def install(self) -> str:
        """The command that installs a version that interp supports."""
        return f'pip install "{self.requirement.name}{self.requirement.specifier}"'


def python() -> Finding:
    """The version of Python and where it is."""
    return as_expected("Python", f"{platform.python_version()}, {sys.executable}")


def own_package() -> Finding:
    """The version of interp and where its packages are."""
    installed_version = installed("interp")
    if installed_version is None:
        return warning(
            "interp",
            f"found in {HERE}, but not installed, so the packages that it needs are not checked",
            f"pip install {HERE}",
        )
    return as_expected("interp", f"{installed_version}, {HERE}")


def installed(name: str) -> str | None:
    """The version of an installed package; ``None`` if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def needed() -> list[Needed]:
    """The packages that interp with all its commands requires; none if it is not installed."""
    try:
        declared = distribution("interp").requires or []
    except PackageNotFoundError:
        return []
    applying = filter(_applies, map(Requirement, declared))
    requirements = {requirement.name: requirement for requirement in applying}  # several name each
    return [Needed(requirement, installed(name)) for name, requirement in requirements.items()]


def _applies(requirement: Requirement) -> bool:
    """Whether a requirement applies to this environment, with the extras of the commands."""
    if requirement.name == "interp":
        return False
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in EXTRAS)


def packages(packages_needed: Iterable[Needed]) -> Iterator[Finding]:
    """A finding for each important package, and for each that is missing or not supported."""
    others: list[str] = []
    for package in packages_needed:
        if package.installed is None:
            yield failure(package.name, "not installed", package.install)
        elif not package.is_in_range:
            wanted = f"interp supports {package.requirement.specifier}"
            yield warning(package.name, f"{package.installed}, but {wanted}", package.install)
        elif canonicalize_name(package.name) in NAMED:
            yield as_expected(package.name, package.installed)
        else:
            others.append(f"{package.name} {package.installed}")
    if others:
        yield as_expected("other packages", ", ".join(others))


def optional_packages() -> Iterator[Finding]:
    """A finding for each optional package."""
    for name, purpose in OPTIONAL.items():
        state = installed(name) or f"not installed; only needed for {purpose}: pip install {name}"
        yield as_expected(name, state)


def bundled_models() -> Finding:
    """Whether the weights of the bundled models are those that interp was released with."""
    from interp.loading import (  # noqa: PLC0415 - imports torch
        MODEL_FOLDER,
        bundled,
        damaged,
    )

    return models(len(bundled()), damaged(MODEL_FOLDER))


def models(count: int, wrong: Sequence[str]) -> Finding:
    """Whether the bundled models are intact.

    Args:
        count: the number of models.
        wrong: the files of weights that are missing or damaged.
    """
    if wrong:
        return warning(
            "bundled models",
            f"missing or damaged: {', '.join(wrong)}",
            "Reinstall interp: pip install --force-reinstall --no-deps interp",
        )
    return as_expected("bundled models", f"{count} models; all weights have the expected SHA-256")


def hidden_packages(folder: Path) -> Finding:
    """Whether another package hides one of interp's, here or for a Python started in ``folder``."""
    try:
        check_packages()
    except ImportError as error:
        return failure("import path", str(error), "Do what the line above says.")
    hiding = hiding_in(folder, PACKAGES)
    if hiding:
        return warning(
            "import path",
            f"{', '.join(map(str, hiding))}: a notebook or `python` started in this folder would "
            "import this instead of interp's package of the same name",
            "Start it in another folder, or rename this. The command interp is not affected.",
        )
    return as_expected("import path", f"{', '.join(PACKAGES)} are imported from interp")


def hiding_in(folder: Path, names: Sequence[str]) -> list[Path]:
    """The modules and packages in ``folder`` with one of these names, except interp's own."""
    if folder.resolve() == HERE:
        return []
    places = [
        path for name in names for path in (folder / name / "__init__.py", folder / f"{name}.py")
    ]
    files = [path for path in places if path.is_file()]
    return [path.parent if path.name == "__init__.py" else path for path in files]
