"""The commands of the analyses, one a file; they begin without torch, pandas and plotly."""

from apps.commands.ablate import ablate
from apps.commands.dla import dla
from apps.commands.lens import lens
from apps.commands.patterns import patterns

COMMANDS = (patterns, ablate, dla, lens)
"""In the order of ``interp --help``."""
