"""What all pages have: questions asked, jobs polled, views mounted, the same as Python code.

A page is three pure functions: what it asks, what it shows of the answers, and how a click changes
the view. A pinned view goes through the same functions and stands at the left, on one scale.
"""

import atexit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import streamlit as st

import interp
from analyses.result import Result
from apps.explorer.canvas import Pick, ViewData, canvas, with_selection
from apps.explorer.downloads import show_code_and_files
from apps.explorer.jobs import Job, Jobs
from apps.explorer.messages import errors_on_page, escape_markdown, message_of
from apps.explorer.offered import model_of
from apps.explorer.questions import Question
from apps.explorer.state import change, current, outer, rerun, write_address
from apps.explorer.store import Store
from apps.explorer.view import View
from apps.widget.pictures import share_scales
from interp.errors import InterpError

POLL = 0.4
"""Seconds between looks at a job."""
WORKERS = 2
"""Threads: a long forward of one analysis does not hold up another."""
JOBS = Jobs(model_of, Store(), WORKERS)
"""Of all sessions."""
# A thread that computes when the interpreter ends aborts it inside torch.
atexit.register(JOBS.close)


@dataclass(frozen=True)
class Ask:
    """A question of a page.

    Attributes:
        name: by which the page finds the answer.
        question: what is asked, or why it can't be.
        long: whether it runs as a job, with progress and partial results.
    """

    name: str
    question: Question | str
    long: bool = False


def ask(name: str, make: Callable[[], Question], *, long: bool = False) -> Ask:
    """A question of a page; what is wrong with it is shown there."""
    try:
        return Ask(name, make(), long)
    except InterpError as error:
        return Ask(name, str(error), long)


def no_controls(_view: View, _model: interp.Transformer) -> None:
    """A page without widgets of its own."""


def same_view(view: View, _pick: Pick) -> View:
    """A page on which clicks change the selection alone."""
    return view


@dataclass(frozen=True)
class Page:
    """A page of the explorer.

    Attributes:
        name: in the address.
        title: in the navigation.
        asks: the questions of a view.
        views: what is shown of the answers; those that are missing are not there yet.
        on_pick: the view after a click that is no mere selection.
        controls: shows the page's own widgets.
    """

    name: str
    title: str
    asks: Callable[[View, interp.Transformer], Sequence[Ask]]
    views: Callable[[View, interp.Transformer, Mapping[str, Result]], list[ViewData]]
    on_pick: Callable[[View, Pick], View] = same_view
    controls: Callable[[View, interp.Transformer], None] = no_controls


@dataclass
class Results:
    """What is known of a page's questions.

    Attributes:
        results: whole and partial answers, by the names of the questions.
        jobs: those that are under way.
        errors: by the names of the questions.
    """

    results: dict[str, Result] = field(default_factory=dict[str, Result])
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    errors: dict[str, str] = field(default_factory=dict[str, str])


def results_of(asked: Sequence[Ask], jobs: Jobs) -> Results:
    """The answers of quick questions, and what there is of the long ones, which are begun."""
    known = Results()
    for one in asked:
        if isinstance(one.question, str):
            known.errors[one.name] = one.question
        elif one.long:
            _look_at(one.name, jobs.look(one.question), known)
        else:
            try:
                known.results[one.name] = jobs.run(one.question)
            except Exception as error:
                known.errors[one.name] = message_of(error)
    return known


def _look_at(name: str, job: Job, known: Results) -> None:
    if job.result is not None:
        known.results[name] = job.result
    if job.error:
        known.errors[name] = job.error
    if not job.complete:
        known.jobs[name] = job


def show(page: Page, view: View) -> None:
    """Show a page; while a job runs, its fragment looks again and again."""
    asked = [*page.asks(view, model_of(view.model))]
    running = any(job.running for job in results_of(asked, JOBS).jobs.values())
    st.fragment(_body, run_every=POLL if running else None)(page, polls=running)


def _body(page: Page, *, polls: bool) -> None:
    view = current()
    before = st.session_state.get("outer")
    if before is not None and before != outer(view):
        st.session_state["outer"] = None
        rerun()
    with errors_on_page():
        model = model_of(view.model)
        with st.container(horizontal=True, vertical_alignment="bottom"):
            page.controls(view, model)
        view = current()
        asked = [*page.asks(view, model)]
        known = results_of(asked, JOBS)
        # A container each, also without contents: what follows keeps its place, and so its state.
        with st.container():
            for message in dict.fromkeys(known.errors.values()):
                st.error(escape_markdown(message))
        with st.container():
            _progress(known.jobs)
        _mount(page, view, model, known)
        questions = {one.name: one.question for one in asked}
        show_code_and_files(
            {name: own for name, own in questions.items() if isinstance(own, Question)},
            known.results,
        )
        write_address()
        if any(job.running for job in known.jobs.values()) != polls:
            rerun()


def _mount(page: Page, view: View, model: interp.Transformer, known: Results) -> None:
    """The views of the current and of the pinned view, on one scale; earlier ones dimmed."""
    shown = page.views(view, model, known.results)
    columns = [(view, shown)]
    if view.pinned is not None:
        pinned = view.pinned
        its_model = model_of(pinned.model)
        its_results = results_of([*page.asks(pinned, its_model)], JOBS)
        its_views = page.views(pinned, its_model, its_results.results)
        columns = [*zip((pinned, view), share_scales(its_views, shown), strict=True)]
    places = zip(columns, st.columns(len(columns)), ("A", "B"), strict=False)
    for (own, fresh), place, name in places:
        with place:
            if len(columns) > 1:
                st.caption(f"{name}: {escape_markdown(own.model)} · {escape_markdown(own.text)}")
            drawn, stale = _with_earlier(f"{page.name}_{name}", fresh, known)
            canvas(
                f"canvas_{page.name}_{name}",
                drawn,
                own,
                stale=stale,
                on_pick=lambda pick: _take(page, pick),
            )


def _with_earlier(
    key: str, views: list[ViewData], known: Results
) -> tuple[list[ViewData], list[str]]:
    """Views whose answers are being computed, as they were before; their ids."""
    earlier: list[ViewData] = st.session_state.get(f"earlier_{key}", [])
    ids = {own["id"] for own in views}
    waiting = [own for own in earlier if own["id"] not in ids] if known.jobs else []
    st.session_state[f"earlier_{key}"] = [*views, *waiting]
    return [*views, *waiting], [own["id"] for own in waiting]


def _take(page: Page, pick: Pick) -> None:
    """Change the view by a click."""
    view = current()
    if pick["pick"] == "pin":
        change(pinned=None if view.pinned else view)
    elif pick["pick"] in ("selection", "collect"):
        change(**with_selection(view, pick))
    elif pick["pick"] == "score":
        change(score=pick["name"])
    elif pick["pick"] == "contrast":
        change(contrast=int(pick["x"]))
    else:
        change(page.on_pick(view, pick))


def _progress(jobs: Mapping[str, Job]) -> None:
    """A progress bar for each job, with the time left and a button to cancel or resume it."""
    for name, job in jobs.items():
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.progress(job.done / job.total if job.total else 0.0, _progress_text(name, job))
            if job.running:
                st.button("Cancel", key=f"cancel_{name}", on_click=job.cancel)
            else:
                st.button(
                    "Continue", key=f"continue_{name}", on_click=JOBS.resume, args=[job.question]
                )


def _progress_text(name: str, job: Job) -> str:
    if not job.running:
        return f"{name}: cancelled after {job.done} of {job.total}; what is done is shown"
    if not job.total:
        return f"{name}: waiting" if not job.seconds else f"{name}: begun"
    left = "" if job.seconds_left is None else f", {job.seconds_left:.0f} s left"
    return f"{name}: {job.done} of {job.total}{left}"
