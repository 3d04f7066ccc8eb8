"""The commands of the analyses, one per file; importing them does not import torch or pandas."""

from apps.commands.ablate import ablate
from apps.commands.attribute import attribute
from apps.commands.circuits import circuits
from apps.commands.compare import compare
from apps.commands.covariance import covariance
from apps.commands.dla import dla
from apps.commands.erase import erase
from apps.commands.explain import explain
from apps.commands.frequencies import frequencies
from apps.commands.lens import lens
from apps.commands.neurons import neurons
from apps.commands.nodes import nodes
from apps.commands.order import order
from apps.commands.patch import patch
from apps.commands.paths import paths
from apps.commands.patterns import patterns
from apps.commands.positions import positions
from apps.commands.predict import predict
from apps.commands.probe import probe
from apps.commands.prune import prune
from apps.commands.roles import roles
from apps.commands.steer import steer
from apps.commands.top_texts import top_texts
from apps.commands.train_lens import train_lens

COMMANDS = (
    predict,
    patterns,
    roles,
    ablate,
    patch,
    paths,
    attribute,
    nodes,
    prune,
    explain,
    dla,
    lens,
    train_lens,
    circuits,
    positions,
    frequencies,
    probe,
    erase,
    covariance,
    order,
    top_texts,
    compare,
    neurons,
    steer,
)
"""The commands, in the order of ``interp --help``."""
