"""Imported before the analyses: names the packages that they need and that are not installed."""

from importlib.util import find_spec

REQUIRED = ("pandas", "plotly", "pyarrow", "scipy")
_MISSING = [name for name in REQUIRED if find_spec(name) is None]
if _MISSING:
    raise ImportError(
        f"The analyses need {', '.join(_MISSING)}, which this installation lacks. Run: "
        "pip install 'interp[analyses]'"
    )
