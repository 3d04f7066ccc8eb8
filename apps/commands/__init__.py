"""The commands of the analyses, one a file; they begin without torch, pandas and plotly."""

from apps.commands.ablate import ablate
from apps.commands.lens import lens

COMMANDS = (ablate, lens)
"""In the order of ``interp --help``."""
