"""The console command ``interp``: :mod:`apps.cli`, unless another package hides it.

``apps`` and ``analyses`` are names that other projects use too. Where a package of that name comes
first on the import path, Python would only report that a module is missing in it. This module has a
name of its own, so it is found in any case.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
MISSING, INTERRUPTED = 2, 130
PACKAGES = ("apps", "analyses", "interp")


def check_packages() -> None:
    """Check that the packages that would be imported are those beside this module.

    Raises:
        ImportError: another package of the same name comes first on the import path.
    """
    for name in PACKAGES:
        spec = find_spec(name)
        found = None if spec is None else spec.origin or str(spec.submodule_search_locations)
        if found is None or Path(found).resolve().parent != HERE / name:
            raise ImportError(
                f"interp needs its own package {name!r} in {HERE}, but {found} comes first on the "
                "import path. Take that out of PYTHONPATH and of the current folder, or install "
                "interp into an environment of its own."
            )


def main() -> None:
    """Run the command."""
    try:
        check_packages()
    except ImportError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    try:
        import_module("apps.cli").main()
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package in PACKAGES:
            raise
        sys.stderr.write(
            f"error: The commands need {package}, which is not installed. Run: "
            "pip install 'interp[apps]'\n"
        )
        sys.exit(MISSING)
    except KeyboardInterrupt:  # before a command began
        sys.stderr.write("error: Interrupted; nothing was written.\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
