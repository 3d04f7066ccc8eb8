"""Reads the files of HeadVis (see :mod:`analyses.scan_heads.headvis`) as a scan.

They have no controls, no intervals and no pairs of tokens.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.scan_heads.headvis import METRICS
from analyses.scan_heads.result import ACTIVATION, HeadScan, Massive, TopTokens
from analyses.scan_heads.sequences import NO_TEXT, Sequences
from interp.errors import InvalidInput, reason, shorten
from interp.execution import Provenance
from interp.io import as_path, read_json
from interp.text import visible

STATISTICS = {metric: statistic for statistic, metric in METRICS.items()}
MAX_BYTES = 2**26
"""The most bytes of a file that is read."""
HIGHEST = 10
"""The decile that the highest interval is taken for."""


def read_headvis(folder: str | Path) -> HeadScan:
    """See :meth:`HeadScan.from_headvis`."""
    folder = as_path(folder)
    config = _read(folder / "config.json", dict)
    rows = _read(folder / "scatter_data.json", list)
    try:
        return _scan(folder, config, rows)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"{folder} is not a folder of HeadVis files, or of another version of them: "
            f"{type(error).__name__}: {error}."
        ) from error


def _scan(folder: Path, config: dict[str, Any], rows: list[dict[str, Any]]) -> HeadScan:
    heads = [(int(row["layer"]), int(row["head"])) for row in rows]
    if not heads or len(set(heads)) < len(heads):
        raise ValueError("scatter_data.json should have one row for each head")
    names = tuple(f"L{layer}H{head}" for layer, head in heads)
    of_heads = [_read(folder / "heads" / f"{name}.json", dict) for name in names]
    metrics = [str(metric) for metric in config["metrics"]]
    columns = [[_number(row[metric]) for metric in metrics] for row in rows]
    activations = [[_number(each["statistics"]["mean_max_activation"])] for each in of_heads]
    plain = torch.tensor(
        [first + last for first, last in zip(columns, activations, strict=True)],
        dtype=torch.float64,
    )
    mean = torch.stack([plain, torch.full_like(plain, torch.nan)])
    settings = {**config, **config.get("pipeline_config", {})}
    n_texts = int(settings.get("actual_sequences_processed", settings["n_sequences"]))
    ids: dict[str, int] = {}
    queries, keys = (_tops(of_heads, f"top_{side}_tokens", ids) for side in ("query", "key"))
    lower_ends, distances = _distances(of_heads)
    none = torch.zeros(0, dtype=torch.long)
    return HeadScan(
        attentions=("",) * len(heads),
        layers=torch.tensor([layer for layer, _ in heads]),
        heads=torch.tensor([head for _, head in heads]),
        names=names,
        statistics=(*(STATISTICS.get(m, m.replace("_", " ")) for m in metrics), ACTIVATION),
        mean=mean,
        low=torch.full_like(mean, torch.nan),
        high=torch.full_like(mean, torch.nan),
        n=(~mean.isnan()).long() * n_texts,
        control=torch.full_like(mean, torch.nan),
        lower_ends=lower_ends,
        distances=distances,
        uniform_distances=torch.full_like(distances, torch.nan),
        top_queries=queries,
        top_keys=keys,
        top_pairs=TopTokens(
            torch.full((len(heads), 0, 2), -1),
            torch.zeros(len(heads), 0),
            torch.zeros(len(heads), 0),
            torch.zeros(len(heads)),
        ),
        token_labels={id_: label for label, id_ in ids.items()},
        sequences=_sequences(of_heads, len(metrics), int(config["n_intervals"])),
        massive=Massive((), none, none, none, none, none.double(), ()),
        sinks=None,
        class_effects=None,
        n_texts=n_texts,
        n_tokens=0,
        provenance=_provenance(settings),
        notes=(
            f"read from HeadVis files of {settings.get('dataset_name', 'unnamed texts')}: they "
            "have no controls and no intervals, so no head stands out; shares are of the tokens "
            "that are listed",
        ),
    )


def _provenance(settings: dict[str, Any]) -> Provenance:
    """The model, its dtype and the seed; the files say nothing of weights."""
    return Provenance(
        model=str(settings["model_name"]),
        config="",
        weights="",
        tokens="",
        edits=(),
        dtype=str(settings.get("dtype", "")),
        device="",
        kernel=str(settings.get("attn_implementation", "")),
        products="",
        precision="",
        seed=settings.get("sample_seed"),
        versions={},
        agreement=None,
    )


def _read(path: Path, kind: type) -> Any:  # noqa: ANN401 - JSON
    try:
        value = read_json(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        text = reason(error) if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"{path} can't be read: {text}.") from error
    if not isinstance(value, kind):
        raise InvalidInput(f"{path}: expected a JSON {kind.__name__}, got {shorten(value)}.")
    return value


def _number(value: Any) -> float:  # noqa: ANN401 - JSON
    return float("nan") if value is None else float(value)


def _tops(of_heads: Sequence[dict[str, Any]], name: str, ids: dict[str, int]) -> TopTokens:
    """The tokens that are listed; new labels get the next ids."""
    most = max(len(each[name]) for each in of_heads)
    tokens = torch.full((len(of_heads), most, 1), -1)
    share = torch.zeros(len(of_heads), most, dtype=torch.float64)
    for unit, each in enumerate(of_heads):
        for rank, top in enumerate(each[name]):
            label = visible(str(top["token"]).encode())
            tokens[unit, rank] = ids.setdefault(label, len(ids))
            share[unit, rank] = float(top["weight"])
    blank = torch.full_like(share, torch.nan)
    total = share.sum(-1, keepdim=True).clamp(min=1e-300)
    return TopTokens(tokens, share / total, blank, blank.new_full((len(of_heads),), torch.nan))


def _distances(
    of_heads: Sequence[dict[str, Any]],
) -> tuple[Tensor, Float[Tensor, "unit side bucket"]]:
    """The smallest distance of each bucket, and the share of the mass in it: on one side."""
    histograms = [each["qk_distance_histogram"] for each in of_heads]
    edges = histograms[0]["bin_edges"]
    if any(histogram["bin_edges"] != edges for histogram in histograms):
        raise ValueError("qk_distance_histogram should have the same bin_edges for all heads")
    values = torch.tensor([histogram["bin_values"] for histogram in histograms]).double()
    share = values / values.sum(-1, keepdim=True).clamp(min=1e-300)
    return torch.tensor(edges[:-1]), torch.stack([share, torch.full_like(share, torch.nan)], 1)


def _sequences(of_heads: Sequence[dict[str, Any]], n_metrics: int, n_intervals: int) -> Sequences:
    """The sequences of all heads, by their activation."""
    labels: dict[int, tuple[str, ...]] = {}
    by_unit: list[dict[int, dict[str, Any]]] = []
    for each in of_heads:
        by_text = {int(sequence["sequence_id"]): sequence for sequence in each["sequences"]}
        by_unit.append(by_text)
        for text, sequence in by_text.items():
            labels[text] = tuple(visible(str(token).encode()) for token in sequence["tokens"])
    order = {text: n for n, text in enumerate(sorted(labels))}
    most = [
        max(sum(s["interval"] == n for s in by_text.values()) for by_text in by_unit)
        for n in range(n_intervals, 0, -1)
    ]
    decile = [
        round(HIGHEST * n / n_intervals)
        for n, size in zip(range(n_intervals, 0, -1), most, strict=True)
        for _ in range(size)
    ]
    value = torch.full((len(order), len(of_heads), n_metrics + 1), torch.nan, dtype=torch.float64)
    slot = torch.full((len(of_heads), n_metrics + 1, len(decile)), NO_TEXT)
    starts, cells = [0], list[Tensor]()
    for unit, by_text in enumerate(by_unit):
        free = {n: sum(most[: n_intervals - n]) for n in range(1, n_intervals + 1)}
        for text, n in order.items():
            sequence = by_text.get(text)
            if sequence is not None:
                interval = int(sequence["interval"])
                slot[unit, -1, free[interval]] = n
                free[interval] += 1
                value[n, unit, -1] = _number(sequence["max_activation"])
                cells.append(_cells(sequence))
            starts.append(starts[-1] + (0 if sequence is None else cells[-1].shape[1]))
    query, key, weight = torch.cat(cells, 1) if cells else torch.zeros(3, 0, dtype=torch.float64)
    return Sequences(
        torch.tensor([*order], dtype=torch.long),
        tuple(f"sequence {text}" for text in order),
        {"": tuple(labels[text] for text in order)},
        {"": tuple(labels[text] for text in order)},
        value,
        tuple(decile),
        slot,
        torch.tensor(starts),
        query.short(),
        key.short(),
        weight.half(),
    )


def _cells(sequence: dict[str, Any]) -> Float[Tensor, "part cell"]:
    """Query, key and weight of each stored cell."""
    n = len(sequence["tokens"])
    index = torch.tensor(sequence["attention_indices"], dtype=torch.long)
    weight = torch.tensor(sequence["attention_values"], dtype=torch.float64)
    if len(index) != len(weight) or bool(((index < 0) | (index >= n * n)).any()):
        raise ValueError(f"sequence {sequence['sequence_id']} has weights outside of its tokens")
    return torch.stack([(index // n).double(), (index % n).double(), weight])
