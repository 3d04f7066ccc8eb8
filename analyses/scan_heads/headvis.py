"""Writes the files of HeadVis, which other explorers of heads show.

    config.json               model, texts, heads, and the names of the metrics
    scatter_data.json         a row per head with each metric
    heads/L{l}H{h}.json       sequences by activation, distances, top tokens
    server_config.json, attributions/manifest.json       empty: there is no server

The activation of a sequence is the largest weight between two tokens, neither of them the first.
Sequences are drawn from fifths of it: the largest ten of the highest, three of each other. The
weights of a sequence of n tokens are sparse: that of query q and key k has the index q·n + k.

Source: https://github.com/anthropics/headvis and the pipeline of Neuronpedia that writes its files.
"""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from analyses.methods.heads import DISTANCE, ENTROPY, VARIANCE
from analyses.scan_heads.result import EFFECT, HeadScan
from analyses.scan_heads.sequences import Sequences
from interp.errors import InvalidInput

METRICS = {
    "self": "self_attention_score",
    "previous": "prev_token_score",
    ENTROPY: "pattern_entropy",
    DISTANCE: "qk_distance",
    VARIANCE: "qk_distance_variance",
    "induction": "induction_score",
}
"""The metrics of HeadVis that are statistics of a scan."""
FIFTHS, OF_HIGHEST, OF_OTHERS = 5, 10, 3
EDGES = [0, *(2**n for n in range(13))]
"""Edges of the histogram of distances; the last ends it."""
BINS = 50
"""Bins of the histogram of activations."""
DIGITS = 4


def write_headvis(scan: HeadScan, folder: Path, dataset: str) -> None:
    """Write the files into an empty folder; see :meth:`HeadScan.to_headvis`."""
    if any(scan.attentions):
        raise InvalidInput(
            "HeadVis has one attention per layer; this scan has those of an encoder–decoder. Write "
            "its tables instead (to_frame, more_frames)."
        )
    metrics = {METRICS.get(name, name.replace(" ", "_")): scan.of(name) for name in scan.statistics}
    if scan.class_effects is not None:
        metrics["ablation_effect"] = scan.of(EFFECT)
    rows = [
        {"layer": layer, "head": head}
        | {name: _rounded(float(value[unit])) for name, value in metrics.items()}
        for unit, (layer, head) in enumerate(_heads(scan))
    ]
    for name in ("heads", "attributions"):
        (folder / name).mkdir()
    _write(folder / "config.json", _config(scan, dataset, list(metrics)))
    _write(folder / "scatter_data.json", rows)
    _write(folder / "server_config.json", {})
    _write(folder / "attributions" / "manifest.json", {})
    for unit, (layer, head) in enumerate(_heads(scan)):
        _write(folder / "heads" / f"L{layer}H{head}.json", _of_head(scan, unit))


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")


def _heads(scan: HeadScan) -> list[tuple[int, int]]:
    return list(zip(scan.layers.tolist(), scan.heads.tolist(), strict=True))


def _config(scan: HeadScan, dataset: str, metrics: Sequence[str]) -> dict[str, Any]:
    labels = () if scan.sequences is None else scan.sequences.query_labels[""]
    n_heads = int(scan.heads.max()) + 1
    layers = scan.layers.unique().tolist()
    return {
        "model_name": scan.provenance.model,
        "np_model_id": scan.provenance.model,
        "dataset_name": dataset,
        "heads": [list(head) for head in _heads(scan)],
        "n_layers": max(layers) + 1,
        "n_heads": n_heads,
        "n_intervals": FIFTHS,
        "metrics": list(metrics),
        "metric_descriptions": {},
        "head_data_pattern": "L{layer}H{head}.json",
        "has_umap": False,
        "umap_heads": [],
        "custom_plots": [
            {"key": "qk_distance_histogram", "label": "Distance of query and key"},
            {"key": "histogram", "label": "Activation of the sampled sequences"},
        ],
        "custom_tables": [
            {"key": "top_query_tokens", "label": "Top query tokens"},
            {"key": "top_key_tokens", "label": "Top key tokens"},
        ],
        "statistics_display": {
            "n_samples": {"label": "Sequences", "format": "default"},
            "mean_max_activation": {"label": "Mean activation", "format": "default"},
        },
        "pipeline_config": {
            "written_by": "interp",
            "n_sequences": scan.n_texts,
            "actual_sequences_processed": scan.n_texts,
            "seq_len": max(map(len, labels), default=0),
            "dtype": scan.provenance.dtype,
            "attn_implementation": scan.provenance.kernel,
            "sample_seed": scan.provenance.seed,
            "num_hidden_layers": max(layers) + 1,
            "num_attention_heads": n_heads,
            "attention_layer_indices": layers,
            "versions": dict(scan.provenance.versions),
        },
    }


def _of_head(scan: HeadScan, unit: int) -> dict[str, Any]:
    chosen = scan.sequences
    activation = {} if chosen is None else _activations(chosen, unit)
    sequences = (
        []
        if chosen is None
        else [
            _sequence(chosen, unit, text, interval, activation[text])
            for interval, text in _drawn(activation)
        ]
    )
    values = list(activation.values())
    counts = torch.histc(torch.tensor(values), BINS, 0, 1) if values else torch.zeros(BINS)
    return {
        "sequences": sequences,
        "qk_distance_histogram": {"bin_edges": EDGES, "bin_values": _by_distance(scan, unit)},
        "top_query_tokens": _top(scan, unit, "top_queries"),
        "top_key_tokens": _top(scan, unit, "top_keys"),
        "histogram": {
            "bin_edges": [_rounded(n / BINS) for n in range(BINS + 1)],
            "bin_values": counts.int().tolist(),
        },
        "statistics": {
            "n_samples": len(sequences),
            "mean_max_activation": _rounded(sum(values) / len(values)) if values else None,
        },
    }


def _activations(chosen: Sequences, unit: int) -> dict[int, float]:
    """The activation of a head on each text of which weights are stored."""
    values: dict[int, float] = {}
    for text in range(len(chosen.text)):
        query, key, weight = chosen.cells(unit, text)
        if len(weight):
            inner = weight[(query > 0) & (key > 0)]
            values[text] = float(inner.max()) if len(inner) else 0.0
    return values


def _drawn(activation: Mapping[int, float]) -> list[tuple[int, int]]:
    """The fifth, from 1, and the text of each sequence that is shown; those drawn first."""
    order = sorted(activation, key=activation.__getitem__)
    pairs: list[tuple[int, int]] = []
    for fifth in range(FIFTHS):
        members = order[fifth * len(order) // FIFTHS : (fifth + 1) * len(order) // FIFTHS]
        is_highest = fifth == FIFTHS - 1
        few = members[::-1][:OF_HIGHEST] if is_highest else sorted(members)[:OF_OTHERS]
        pairs += [(fifth + 1, text) for text in few]
    return pairs


def _sequence(
    chosen: Sequences, unit: int, text: int, interval: int, activation: float
) -> dict[str, Any]:
    labels = chosen.query_labels[""][text]
    query, key, weight = chosen.cells(unit, text)
    return {
        "sequence_id": int(chosen.text[text]),
        "interval": interval,
        "tokens": list(labels),
        "attention_indices": (query.long() * len(labels) + key.long()).tolist(),
        "attention_values": [round(each, DIGITS) for each in weight.tolist()],
        "seq_len": len(labels),
        "max_activation": round(activation, DIGITS),
    }


def _by_distance(scan: HeadScan, unit: int) -> list[float]:
    """The share of the mass in each bin; each bucket of the scan lies in one."""
    share = scan.distances[unit].nansum(0)
    values = [0.0] * (len(EDGES) - 1)
    for lower, mass in zip(scan.lower_ends.tolist(), share.tolist(), strict=True):
        at = sum(lower >= edge for edge in EDGES) - 1
        if at < len(values):
            values[at] += mass
    return [round(value, DIGITS) for value in values]


def _top(scan: HeadScan, unit: int, name: str) -> list[Mapping[str, object]]:
    top = getattr(scan, name)
    return [
        {"token": scan.token_labels[ids[0]], "weight": round(share, DIGITS)}
        for ids, share in zip(top.ids[unit].tolist(), top.share[unit].tolist(), strict=True)
        if ids[0] >= 0
    ]


def _rounded(value: float) -> float | None:
    return round(value, DIGITS) if isfinite(value) else None
