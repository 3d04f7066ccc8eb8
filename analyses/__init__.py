"""Analyses: one file or folder a question, with a function and its result.

Prompts are texts, token ids padded with ``interp.PAD``, images or a batch of ``model.batch``; of
an analysis of several prompts also the ``Path`` of a file, a dataset, or an iterator. More prompts
than memory holds are run in parts, by :func:`run_in_parts`.
"""

import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from inspect import isfunction, signature

import analyses._requirements  # noqa: F401 # pyright: ignore[reportUnusedImport] - says what is missing
from analyses.ablate import Ablation, ablate
from analyses.ablate_heads import ablate_heads
from analyses.attention_patterns import (
    AttentionPattern,
    AttentionPatterns,
    attention_pattern,
    attention_patterns,
)
from analyses.attention_statistics import (
    AttentionStatistics,
    StreamedAttention,
    attention_statistics,
)
from analyses.attribute_edges import EdgeAttribution, attribute_edges
from analyses.attribute_nodes import NodeAttribution, attribute_nodes
from analyses.attribution_graph import (
    AttributionGraph,
    GraphEstimate,
    NeuronpediaGraph,
    attribution_graph,
    estimate_attribution_graph,
)
from analyses.check_dictionaries import DictionaryCheck, check_dictionaries
from analyses.check_prompts import check_prompts
from analyses.compare import Comparison, compare
from analyses.composition import Composition, composition
from analyses.continuations import Continuations, continuations
from analyses.direct_logit_attribution import DirectLogitAttribution, direct_logit_attribution
from analyses.erase import Erasing, erase
from analyses.explain import Explanation, explain
from analyses.explain_scores import FeatureScoreTerms, ScoreTerms, explain_scores
from analyses.frequencies import Frequencies, frequencies
from analyses.head_cell import HeadCell, head_cell
from analyses.head_census import HeadCensus, head_census
from analyses.head_effects import HeadEffects, head_effects
from analyses.head_loadings import HeadLoadings, head_loadings
from analyses.head_roles import HeadRoles, head_roles
from analyses.logit_lens import LogitLens, logit_lens
from analyses.methods.circuits import run_circuits
from analyses.methods.lens import TunedLens
from analyses.methods.symmetries import verify
from analyses.neurons import Neurons, neurons
from analyses.order_sensitivity import OrderSensitivity, order_sensitivity
from analyses.ov_circuit import OVCircuit, ov
from analyses.patch_activations import ActivationPatching, patch_activations
from analyses.patch_paths import PathPatching, patch_paths
from analyses.permutation_covariance import PermutationCovariance, permutation_covariance
from analyses.positions import Positions, positions
from analyses.predictions import Predictions, predictions
from analyses.probe import Probe, probe
from analyses.prune import Pruning, prune
from analyses.qk_circuit import QKCircuit, qk
from analyses.qk_covariance import QKCovariance, qk_covariance
from analyses.results import Result
from analyses.run_in_parts import Parts, run_in_parts
from analyses.scale_units import ScaledUnits, scale_units
from analyses.scan_heads import (
    HeadScan,
    PartialScan,
    ScanEstimate,
    ScanInterrupted,
    estimate_scan_heads,
    scan_heads,
)
from analyses.steer import Steering, steer
from analyses.top_texts import TopTexts, top_texts
from analyses.trace_paths import TracedPaths, trace_paths
from analyses.train_lens import LensTraining, train_lens
from analyses.training_history import TrainingHistory, training_history

__all__ = [
    "Ablation",
    "ActivationPatching",
    "AttentionPattern",
    "AttentionPatterns",
    "AttentionStatistics",
    "AttributionGraph",
    "Comparison",
    "Composition",
    "Continuations",
    "DictionaryCheck",
    "DirectLogitAttribution",
    "EdgeAttribution",
    "Erasing",
    "Explanation",
    "FeatureScoreTerms",
    "Frequencies",
    "GraphEstimate",
    "HeadCell",
    "HeadCensus",
    "HeadEffects",
    "HeadLoadings",
    "HeadRoles",
    "HeadScan",
    "LensTraining",
    "LogitLens",
    "NeuronpediaGraph",
    "Neurons",
    "NodeAttribution",
    "OVCircuit",
    "OrderSensitivity",
    "PartialScan",
    "Parts",
    "PathPatching",
    "PermutationCovariance",
    "Positions",
    "Predictions",
    "Probe",
    "Pruning",
    "QKCircuit",
    "QKCovariance",
    "ScaledUnits",
    "ScanEstimate",
    "ScanInterrupted",
    "ScoreTerms",
    "Steering",
    "StreamedAttention",
    "TopTexts",
    "TracedPaths",
    "TrainingHistory",
    "TunedLens",
    "ablate",
    "ablate_heads",
    "attention_pattern",
    "attention_patterns",
    "attention_statistics",
    "attribute_edges",
    "attribute_nodes",
    "attribution_graph",
    "available",
    "check_dictionaries",
    "check_prompts",
    "compare",
    "composition",
    "continuations",
    "direct_logit_attribution",
    "erase",
    "estimate_attribution_graph",
    "estimate_scan_heads",
    "explain",
    "explain_scores",
    "frequencies",
    "head_cell",
    "head_census",
    "head_effects",
    "head_loadings",
    "head_roles",
    "logit_lens",
    "neurons",
    "order_sensitivity",
    "ov",
    "patch_activations",
    "patch_paths",
    "permutation_covariance",
    "positions",
    "predictions",
    "probe",
    "prune",
    "qk",
    "qk_covariance",
    "run_circuits",
    "run_in_parts",
    "scale_units",
    "scan_heads",
    "steer",
    "top_texts",
    "trace_paths",
    "train_lens",
    "training_history",
    "verify",
]


ENTRY_POINTS = "interp.analyses"
"""The group of entry points by which other distributions name their analyses."""


def available() -> dict[str, Callable[..., Result]]:
    """The analyses: each public function that returns a :class:`analyses.results.Result`.

    Then those of other distributions, by their entry points of the group ``interp.analyses``. One
    that can't be imported or does not return a result, or whose name is taken, is left out with a
    warning.

    Examples:
        >>> list(analyses.available())[:3]
        ['ablate', 'ablate_heads', 'attention_pattern']
    """
    public = {name: globals()[name] for name in __all__}
    functions = {
        name: value for name, value in public.items() if isfunction(value) and _is_one(value)
    }
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            functions[entry.name] = _loaded(entry, {*public, *functions})
        except Exception as error:
            warnings.warn(
                f"The analysis {entry.name} = {entry.value} of another distribution is left out: "
                f"{type(error).__name__}: {error}",
                stacklevel=2,
            )
    return functions


def _loaded(entry: EntryPoint, taken: set[str]) -> Callable[..., Result]:
    if entry.name in taken:
        raise ValueError("the name is taken")
    function = entry.load()
    if not isfunction(function) or not _is_one(function):
        raise TypeError("expected a function whose return annotation is a Result")
    return function


def _is_one(function: Callable[..., object]) -> bool:
    returned = signature(function, eval_str=True).return_annotation
    return isinstance(returned, type) and issubclass(returned, Result)
