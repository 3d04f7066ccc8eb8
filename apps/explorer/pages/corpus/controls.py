"""The controls of the page Corpus: texts and settings, what heads are ranked by, and one head."""

from functools import partial

import streamlit as st

import interp
from apps.explorer.controls import choose, key_of, number, switch, when_picked
from apps.explorer.pages.corpus.measures import measure, measures_of
from apps.explorer.pages.corpus.placed import defaults, selected_name, with_unit
from apps.explorer.pages.corpus.scan import Scan, has_effects, request_of, so_far
from apps.explorer.pages.corpus.texts import PASTED, sets_of
from apps.explorer.state import change, current
from apps.explorer.view import MAX_OFFSETS, MAX_TEXTS, View
from interp.errors import InterpError

NARROW = 168
"""Width of a list in pixels, so that all controls fit one row of a window of 1,280 pixels."""
MAX_PASTED = 200_000
"""Largest number of characters of pasted texts."""


def controls(view: View, model: interp.Transformer) -> None:
    """One row: texts, settings, statistics, the head; below it, pasted texts."""
    first, *others = sets_of(view.model)
    choose(
        "Texts",
        "corpus",
        ["", *others],
        format_func=lambda name: name or first,
        widget="selectbox",
        help="The prompt sets of this model, or lines of text that you paste.",
        width=NARROW,
    )
    try:
        scan = Scan.of(current(), model)
    except InterpError:  # the page shows it
        scan = None
    _settings(model, scan)
    if scan is not None:
        _start(scan)
        _finder(scan, model)
    if current().corpus == PASTED:
        _pasted(view, model)


def _settings(model: interp.Transformer, scan: Scan | None) -> None:
    """The number of texts, the offsets, and whether heads are ablated, with the time of that."""
    view = current()
    seconds = None if scan is None else scan.effects_seconds
    with st.popover(f"≤ {view.most} texts"):
        number("Texts at most", "most", (1, MAX_TEXTS))
        number("Offsets", "offsets", (1, MAX_OFFSETS))
        if has_effects(model):
            switch(
                "Effects of ablation",
                "effects",
                help="Ablate each head on up to 42 tokens of the texts: a forward per head.",
            )
            if seconds is not None:
                st.caption(f"Ablations take at most {duration(seconds)}, beside a second scan.")


def _start(scan: Scan) -> None:
    """The button that starts a scan that takes long, with its time."""
    cost, following = scan.cost, scan.next
    if cost is None or following is None or scan.starts or scan.problem:
        return
    st.button(
        f"Start: about {duration(cost.seconds)}",
        key="start_scan",
        type="primary",
        on_click=lambda: change(scanned=request_of(current())),
        help=f"Start the {following[0]}. It can be cancelled, and shows what it has read so far.",
    )


def _finder(scan: Scan, model: interp.Transformer) -> None:
    """What heads are ranked and placed by, and the list of heads by rank, which can be searched."""
    result = so_far(scan)
    if result is None:
        return
    names = measures_of(result)
    for label, field, first in zip(
        ("Rank by", "Against"), ("down", "across"), defaults(names), strict=True
    ):
        choose(
            label,
            field,
            ["", *(name for name in names if name != first)],
            format_func=partial(_or_first, first),
            widget="selectbox",
            width=NARROW,
        )
    view = current()
    ranked = measure(result, view.down or names[0])
    heads = [*ranked.rows["name"], *(n for n in result.names if not ranked.rank(n))]
    key = key_of("choose_unit", selected_name(view, model, result))
    st.selectbox(
        "Head",
        heads,
        key=key,
        format_func=lambda name: f"{name} · {ranked.rank(name)}" if ranked.rank(name) else name,
        on_change=when_picked("choose_unit", key, lambda name: change(with_unit(current(), name))),
        help="The heads by rank; type a name to find it.",
        width=NARROW,
    )


def _or_first(first: str, name: str) -> str:
    return name or first


def _pasted(view: View, model: interp.Transformer) -> None:
    """The field for pasted texts."""
    key = key_of("write_pasted", view.pasted)
    is_paired = len(model.stacks) > 1
    st.text_area(
        "Pasted texts, one per line" + (": source, tab, target" if is_paired else ""),
        key=key,
        height=110,
        max_chars=MAX_PASTED,
        on_change=when_picked("write_pasted", key, lambda texts: change(pasted=texts)),
    )


def duration(seconds: float) -> str:
    """How long something takes, in words."""
    if seconds < 90:  # noqa: PLR2004 - a minute and a half
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"  # noqa: PLR2004
