"""A site of a scan of heads: an index with a scatter plot and a finder, and a page for each head.

    index.html        all heads in a plane, by rank and by layer; summary, method, provenance
    heads/L0H0.html   a head: texts by decile, statistics, effects, distances, tokens
    texts.js          the tokens of the texts, which the pages of heads share
    interp.js, .css   the script and the style sheet of all pages

The pages are opened from files and request nothing of any host.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from analyses import HeadScan
from analyses.methods.heads import WEIGHTINGS
from analyses.results import counted, fixed
from analyses.scan_heads import text_cells
from apps.method_text import method_text, paragraphs
from apps.presentation import conclusion as conclusion_of
from apps.report.contents import Report
from apps.report.page import linked_files, linked_page, payload_of, provenance_facts
from apps.widget.head_views import (
    distance_view,
    effects_view,
    scan_view,
    statistics_view,
    texts_view,
    token_view,
)
from apps.widget.pictures import View
from interp.errors import InvalidInput

HEADS, TEXTS = "heads", "texts.js"
FEW_HEADS = 512
"""The most heads whose links are not collapsed on the index."""
LISTED = 3
"""The most masses that the conclusion of a page names."""
MAX_CELLS = 108_000
"""The most bytes of the cells of a page, which are 144 kB in base64."""


def write_head_site(report: Report, folder: Path) -> None:
    """Write the pages of a scan.

    Args:
        report: the scan, with the facts that are listed with its provenance.
        folder: an existing, empty folder.

    Raises:
        InvalidInput: the report is not that of a scan of heads.
    """
    scan = report.result
    if not isinstance(scan, HeadScan):
        raise InvalidInput(f"A site of heads shows a HeadScan, got a {type(scan).__name__}.")
    files = {**linked_files(), "index.html": _index(report, scan)}
    if scan.sequences is not None:
        files[TEXTS] = _texts(scan)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
    (folder / HEADS).mkdir()
    frame = scan.to_frame()
    rows = frame[frame["stands_out"] & (frame["weighting"] == WEIGHTINGS[0])]
    of_head = dict(iter(rows.groupby("name", sort=False)))
    for unit, name in enumerate(scan.names):
        page = _head_page(report, scan, unit, _conclusion(scan, of_head.get(name, rows.head(0))))
        (folder / HEADS / f"{name}.html").write_text(page, encoding="utf-8")


def _index(report: Report, scan: HeadScan) -> str:
    """The page of all heads."""
    layers: dict[str, list[tuple[str, str]]] = {}
    for name in scan.names:
        layer, _, head = name.rpartition("H")
        layers.setdefault(layer, []).append((name, f"H{head}"))
    return linked_page(
        "head_index.html",
        {"scan": payload_of(report, [scan_view(scan)])},
        "",
        model=scan.provenance.model,
        conclusion=conclusion_of(scan),
        partial="" if scan.partial is None else counted(scan.n_texts, "text"),
        layers=layers,
        few=len(scan.names) <= FEW_HEADS,
        summary=scan.summary(),
        method=paragraphs(method_text(scan)),
        prompts=(),
        facts={**report.facts, **provenance_facts(scan)},
    )


def _head_page(report: Report, scan: HeadScan, unit: int, conclusion: str) -> str:
    """The page of one head."""
    name, last = scan.names[unit], len(scan.names) - 1
    beside = [(scan.names[unit - 1], f"← {scan.names[unit - 1]}")] if unit else []
    beside += [(scan.names[unit + 1], f"{scan.names[unit + 1]} →")] if unit < last else []
    views = [
        _with_shared_tokens(texts_view(scan, unit, most=MAX_CELLS), scan.attentions[unit]),
        statistics_view(scan, unit),
        effects_view(scan, unit),
        distance_view(scan, unit),
        token_view(scan, unit),
    ]
    return linked_page(
        "head_page.html",
        {"head": payload_of(report, [view for view in views if view is not None])},
        "../",
        model=scan.provenance.model,
        head=name,
        beside=beside,
        before=unit > 0,
        after=unit < last,
        tokens="" if scan.sequences is None else TEXTS,
        conclusion=conclusion,
        notes=scan.notes,
        prompts=(),
        facts={},
    )


def _conclusion(scan: HeadScan, rows: pd.DataFrame) -> str:
    """What a head attends to most, compared with the control, from its masses that stand out."""
    rows = rows.sort_values("difference", ascending=False, kind="stable").head(LISTED)
    on = f"on {counted(scan.n_texts, 'text')}, {counted(scan.n_tokens, 'token')}"
    columns = zip(rows["statistic"], rows["mean"], rows["control"], strict=True)
    texts = [
        f"{statistic} {fixed(mean, 2)} (control {fixed(control, 2)})"
        for statistic, mean, control in columns
    ]
    return f"{', '.join(texts) or 'No mass stands out'}, {on}."


def _with_shared_tokens(view: View, attention: str) -> View:
    """The view without the tokens of its texts, which a file has that all pages share."""
    if view["kind"] != "texts":
        return view
    texts = [
        {name: value for name, value in text.items() if name not in ("tokens", "keys")}
        for text in view["texts"]
    ]
    return {**view, "texts": texts, "shared": attention}


def _texts(scan: HeadScan) -> str:
    """The script with the tokens of all texts of the sample, by attention."""
    tokens: dict[str, dict[str, Any]] = {}
    for attention in dict.fromkeys(scan.attentions):
        unit = scan.attentions.index(attention)
        n_texts = len(scan.sequences.text) if scan.sequences is not None else 0
        texts = [text_cells(scan, unit, text) for text in range(n_texts)]
        tokens[attention] = {"tokens": [text.queries for text in texts]}
        if any(text.keys != text.queries for text in texts):
            tokens[attention]["keys"] = [text.keys for text in texts]
    return f"globalThis.interpTexts = {json.dumps(tokens)};\n"
