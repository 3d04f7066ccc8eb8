"""This package under the name ``transformer_lens``, for code whose imports can't be changed.

``install()`` adds modules to ``sys.modules``, under their names in TransformerLens 3.9 and, where
these differ, in 2.x. Every public name of 3.9 can be imported from the modules that have it there,
those that they import from one another and from other libraries included. Names that this package
lacks raise errors when they are used (:mod:`interp.compat.advice`).
"""

import sys
import warnings
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from interp.compat.advice import NAME, missing, refused
from interp.compat.errors import InvalidInput

OURS = "interp.compat"
NAMES = Path(__file__).parent / "names_of_3_9.txt"
"""The public names of each module of 3.9, which ``python -m tools.lens_names`` writes."""
VERSION = "3.9.0"
Imported = dict[str, str | None]
"""Names, and the ``module:name`` or the module from which each is imported; ``None`` if defined."""
SOURCES = (
    *("utils", "hook_point", "hooked_root_module", "hooked_transformer", "model_forward", "config"),
    *("hooked_encoder", "hooked_encoder_decoder", "bert_next_sentence_prediction"),
    *("activation_cache", "factored_matrix", "patching", "head_detector", "key_value_cache"),
    *("attention", "components", "experts", "norms", "bert_components", "t5_components"),
    *("published",),
)
"""Modules of this package with names of TransformerLens."""
OLD_MODULES = ("past_key_value_caching",)
"""Modules of TransformerLens 2 that 3.9 lacks."""


class LensModule(ModuleType):
    """A module under a name of TransformerLens, with the names of modules of this package."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"{name}, with the names of {OURS}.")
        self.__path__ = []
        self.__spec__ = ModuleSpec(name, None, is_package=True)

    def __getattr__(self, name: str) -> Any:
        """A public name of the module, or of another module of version 2.

        Raises:
            AttributeError: no module of TransformerLens has the name.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        value = resolved(self.__name__, name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a submodule does not replace the class of the same name."""
        is_submodule = isinstance(value, LensModule) and value.__name__.endswith(f".{name}")
        super().__setattr__(name, resolved(self.__name__, name) if is_submodule else value)

    def __dir__(self) -> list[str]:
        """The public names."""
        return sorted({*super().__dir__(), *table().get(self.__name__, {})})


@cache
def table() -> dict[str, Imported]:
    """The public names of each module of TransformerLens 3.9."""
    rows = (line.split() for line in NAMES.read_text(encoding="utf-8").splitlines())
    return {
        NAME + module.removesuffix("."): dict(map(_name_and_origin, names))
        for module, *names in rows
    }


def _name_and_origin(entry: str) -> tuple[str, str | None]:
    """A name and its origin, from ``name``, ``name=module:other`` or ``name=module:``."""
    name, _, origin = entry.partition("=")
    origin = NAME + origin if origin.startswith((".", ":")) else origin
    return name, (f"{origin}{name}" if origin.endswith(":") else origin) or None


@cache
def exported_names() -> dict[str, Any]:
    """Every public name of the modules of this package that TransformerLens has too."""
    names: dict[str, Any] = {}
    for module in (OURS, *(f"{OURS}.{source}" for source in SOURCES)):
        names |= public_names(import_module(module))
    return names


def resolved(module: str, name: str) -> Any:
    """What a name of a module of TransformerLens is here.

    Raises:
        AttributeError: no module of TransformerLens has the name.
    """
    full_name, names = f"{module}.{name}", table().get(module, {})
    exported = vars(import_module(OURS)).get(name) if module == NAME else None
    if exported is not None and not isinstance(exported, ModuleType):
        return exported
    origin = names.get(name)
    if origin is not None:
        try:
            return _imported(*origin.split(":"))
        except ModuleNotFoundError:  # another library, which is not installed
            return refused(full_name)
    if full_name in module_names():
        return import_module(full_name)
    if name in exported_names():
        return exported_names()[name]
    if name in names:
        return refused(full_name)
    raise AttributeError(missing(full_name), name=name)


def absent(module: str, name: str) -> AttributeError | ImportError:
    """The error for a name that a package of the façade lacks.

    It is an ``ImportError`` for names of TransformerLens, because ``from … import`` replaces the
    message of an ``AttributeError``.
    """
    for theirs, names in table().items():
        if name in names and names[name] is None:
            return ImportError(missing(f"{theirs}.{name}"), name=name)
    return AttributeError(f"{module}.{name}: interp.compat has no such name.", name=name)


def _imported(module: str, name: str | None = None) -> Any:
    """A module, or a name of a module, of TransformerLens or of another library."""
    if name is not None and f"{module}.{name}" in module_names():
        return import_module(f"{module}.{name}")
    if name is not None and module.partition(".")[0] == NAME:
        return resolved(module, name)
    imported = import_module(module)
    return imported if name is None else getattr(imported, name)


@cache
def module_names() -> frozenset[str]:
    """The full names of all modules of TransformerLens, of both versions, and of their packages."""
    names = (*table(), *(f"{NAME}.{name}" for name in OLD_MODULES))
    parts = [name.split(".") for name in names]
    return frozenset(".".join(each[:n]) for each in parts for n in range(1, len(each) + 1))


class LensDistribution(Distribution):
    """What ``importlib.metadata.version("transformer-lens")`` reads if it is not installed."""

    def read_text(self, filename: str) -> str | None:
        """The metadata."""
        text = f"Metadata-Version: 2.1\nName: transformer-lens\nVersion: {VERSION}\n"
        return text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        """The place of a file, of which there is none."""
        return Path(path)


class LensFinder:
    """A finder and loader of the modules, and of the version of the distribution."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        """The specification of a module of TransformerLens; ``None`` for other modules."""
        if name not in module_names():
            return None
        return ModuleSpec(name, self, is_package=True)  # pyright: ignore[reportArgumentType]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty module; its names are looked up when they are read."""
        return LensModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing."""

    def find_distributions(
        self, context: DistributionFinder.Context | None = None
    ) -> Iterable[Distribution]:
        """The distribution, for clients that read the version."""
        names = (None, "transformer-lens", "transformer_lens")
        return [LensDistribution()] if context is None or context.name in names[1:] else []


_FINDER = LensFinder()


def install() -> None:
    """Make ``import transformer_lens`` import this package, until :func:`uninstall`.

    All modules of TransformerLens 3.9 and those of 2.x can be imported, with their public names. A
    warning is issued.

    Raises:
        InvalidInput: TransformerLens itself has been imported already.
    """
    imported = sys.modules.get(NAME)
    if isinstance(imported, LensModule):
        return
    if imported is not None:
        raise InvalidInput(
            f"{NAME} is imported already, from {getattr(imported, '__file__', 'elsewhere')}. Call "
            "interp.compat.install() before anything imports it, in a new process."
        )
    sys.meta_path.insert(0, _FINDER)  # pyright: ignore[reportArgumentType]
    import_module(NAME)
    warnings.warn(
        f"`import {NAME}` and its submodules now give interp.compat, not TransformerLens; "
        "interp.compat.uninstall() undoes this.",
        stacklevel=2,
    )


def uninstall() -> None:
    """Undo :func:`install`; names that were imported meanwhile still refer to this package."""
    for name in [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]:
        if isinstance(sys.modules[name], LensModule):
            del sys.modules[name]
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)  # pyright: ignore[reportArgumentType]


def public_names(source: ModuleType) -> dict[str, Any]:
    """The public names of a module, without those imported from other modules of this package."""
    names = getattr(source, "__all__", None) or [n for n in vars(source) if not n.startswith("_")]
    members = {name: getattr(source, name) for name in names}
    return {name: value for name, value in members.items() if _belongs_to(source, value)}


def _belongs_to(source: ModuleType, value: object) -> bool:
    origin = str(getattr(value, "__module__", ""))
    others = origin.startswith("interp.") and not origin.startswith(source.__name__)
    return not others and not isinstance(value, ModuleType)
