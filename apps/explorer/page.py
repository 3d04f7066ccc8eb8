"""The parts that all pages share: they ask questions, mount views and show the Python code.

A page is three pure functions: the questions that it asks, the views of the answers, and the effect
of a click on the view. A pinned view goes through the same functions and is shown at the left, on
the same scale.
"""

import atexit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex

import streamlit as st

import interp
from analyses.results import Result
from apps.explorer.canvas import Pick, ViewData, canvas, with_selection
from apps.explorer.clicks import checked
from apps.explorer.downloads import show_code_and_files
from apps.explorer.forward_cost import is_long_forward
from apps.explorer.jobs import Job, Jobs
from apps.explorer.messages import errors_on_page, escape_markdown, message_of
from apps.explorer.offered import model_of
from apps.explorer.questions import Question
from apps.explorer.state import change, current, outer, rerun, write_address
from apps.explorer.store import STORE
from apps.explorer.validate import validated
from apps.explorer.view import CONTRASTS, View
from apps.explorer.watch import States, begin_drawing, is_cancelled, note_drawn, watch
from apps.widget.pictures import share_scales
from interp.errors import InterpError

PROGRESS = "interp_progress"
"""The key of the container of the jobs' progress, which the page's style keeps in view."""
WORKERS = 2
"""Number of worker threads, so that a long forward of one analysis does not block another."""
JOBS = Jobs(model_of, STORE, WORKERS)
"""The jobs of all sessions."""
# A thread that still computes when the interpreter exits would abort it inside torch.
atexit.register(JOBS.close)


@dataclass(frozen=True)
class Ask:
    """A question of a page.

    Attributes:
        name: the name by which the page finds the answer.
        question: the question, or the reason why it can't be asked.
        long: whether it runs as a job, with progress and partial results.
        after: questions that are answered first, unless they fail or the visitor cancels them.
    """

    name: str
    question: Question | str
    long: bool = False
    after: tuple[Question, ...] = ()


def ask(name: str, make: Callable[[], Question], *, long: bool = False) -> Ask:
    """A question of a page; an error in making it is shown on the page."""
    try:
        return Ask(name, make(), long)
    except InterpError as error:
        return Ask(name, str(error), long)


def in_turn(asked: Sequence[Ask]) -> list[Ask]:
    """Questions of which each is asked when those before it are answered."""
    questions = [each.question for each in asked if isinstance(each.question, Question)]
    return [
        replace(each, after=(*questions[: questions.index(each.question)],))
        if isinstance(each.question, Question)
        else each
        for each in asked
    ]


def no_controls(_view: View, _model: interp.Transformer) -> None:
    """The controls of a page without widgets of its own."""


def same_view(view: View, _pick: Pick) -> View:
    """The effect of clicks on a page on which they change only the selection."""
    return view


@dataclass(frozen=True)
class Page:
    """A page of the explorer.

    Attributes:
        name: the name of the page in the address.
        title: the title of the page in the navigation.
        asks: function that returns the questions for a view.
        views: function that returns the views of the answers; answers that are not there yet are
            missing.
        on_pick: function that returns the view after a click that is not just a selection.
        controls: function that shows the page's own widgets.
        sidebar: the fields in the sidebar that affect the page: ``prompts``, ``metric``.
        reads_prompt: whether the page runs the model on the prompt.
    """

    name: str
    title: str
    asks: Callable[[View, interp.Transformer], Sequence[Ask]]
    views: Callable[[View, interp.Transformer, Mapping[str, Result]], list[ViewData]]
    on_pick: Callable[[View, Pick], View] = same_view
    controls: Callable[[View, interp.Transformer], None] = no_controls
    sidebar: tuple[str, ...] = ()
    reads_prompt: bool = True


@dataclass
class Results:
    """The answers to a page's questions, as far as they are known.

    Attributes:
        questions: the questions that can be asked, by name.
        results: complete and partial answers, by the names of the questions.
        states: the states of incomplete jobs, read no later than the answers.
        errors: errors, by the names of the questions.
    """

    questions: dict[str, Question] = field(default_factory=dict[str, Question])
    results: dict[str, Result] = field(default_factory=dict[str, Result])
    states: States = field(default_factory=dict[str, object])
    errors: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, asked: Sequence[Ask], jobs: Jobs) -> "Results":
        """Answer the quick questions, start the long ones, and collect the results so far."""
        results = cls()
        for request in asked:
            if isinstance(request.question, str):
                results.errors[request.name] = request.question
                continue
            results.questions[request.name] = request.question
            if request.long:
                results._add_job(
                    request.name,
                    jobs.poll(request.question, cancelled=is_cancelled(request.question)),
                )
            else:
                results._run(request.name, request.question, jobs)
        return results

    def _add_job(self, name: str, job: Job) -> None:
        if not job.complete:
            self.states[name] = job.state
        if job.result is not None:
            self.results[name] = job.result
        if job.error:
            self.errors[name] = job.error

    def _run(self, name: str, question: Question, jobs: Jobs) -> None:
        try:
            self.results[name] = jobs.run(question)
        except Exception as error:
            self.errors[name] = message_of(error)


def show(page: Page) -> None:
    """Show a page, with the progress of its jobs at the lower edge of the window."""
    begin_drawing()
    st.fragment(_body)(page)
    with st.container(key=PROGRESS):
        watch(lambda: _jobs_of(page), JOBS)


def show_waiting(questions: Mapping[str, Question]) -> None:
    """Show, in place of a page, the progress of the jobs that all of the page needs."""
    begin_drawing()
    cancel_others({*questions.values()})
    note_drawn({name: job.state for name, job in incomplete(questions).items()})
    if all(map(JOBS.is_settled, questions.values())):  # while the page was drawn
        rerun()
    watch(lambda: incomplete(questions), JOBS)


def incomplete(questions: Mapping[str, Question]) -> dict[str, Job]:
    """The jobs of these questions that are not complete, which are started or resumed."""
    jobs = {
        name: JOBS.poll(question, cancelled=is_cancelled(question))
        for name, question in questions.items()
    }
    return {name: job for name, job in jobs.items() if not job.complete}


def _jobs_of(page: Page) -> dict[str, Job]:
    """The jobs that the views of a page wait for, by name; others of the session are cancelled."""
    questions = {
        f"{before}{request.name}": request.question
        for before, view in columns_of(current())
        for request in asks_of(page, view)
        if request.long and isinstance(request.question, Question)
    }
    cancel_others({*questions.values()})
    return incomplete(questions)


def asks_of(page: Page, view: View) -> list[Ask]:
    """The questions of a page whose turn it is; all are jobs if a forward over its prompt is."""
    model = model_of(view.model)
    is_long = page.reads_prompt and is_long_forward(view, model)
    return [
        replace(request, long=request.long or is_long)
        for request in page.asks(view, model)
        if all(JOBS.is_settled(each) or is_cancelled(each) for each in request.after)
    ]


def cancel_others(questions: set[Question]) -> None:
    """Cancel the jobs of this session, except those of these questions."""
    before: set[Question] = st.session_state.get("polled", set())
    st.session_state["polled"] = questions
    for question in before - questions:
        JOBS.cancel(question)


def columns_of(view: View) -> list[tuple[str, View]]:
    """The views that are shown side by side, each with the prefix of the names of its jobs."""
    return [("", view)] if view.pinned is None else [("A: ", view.pinned), ("B: ", view)]


def _body(page: Page) -> None:
    before = st.session_state.get("outer")
    if before is not None and before != outer(current()):
        st.session_state["outer"] = None
        rerun()
    with errors_on_page():
        with st.container(horizontal=True, vertical_alignment="bottom"):
            page.controls(current(), model_of(current().model))
        columns = [
            (name, view, Results.of(asks_of(page, view), JOBS))
            for name, view in columns_of(current())
        ]
        # In a container even if empty, so that the elements below keep their state.
        with st.container():
            for note in st.session_state.pop("refused", ()):
                st.warning(escape_markdown(note))
            messages = [error for _, _, answers in columns for error in answers.errors.values()]
            for message in dict.fromkeys(messages):
                st.error(escape_markdown(message))
        _mount(page, [(view, answers) for _, view, answers in columns])
        show_code_and_files(columns[-1][2].questions, columns[-1][2].results)
        write_address()
        note_drawn(
            {
                f"{name}{job}": state
                for name, _, answers in columns
                for job, state in answers.states.items()
            }
        )


def _mount(page: Page, columns: Sequence[tuple[View, Results]]) -> None:
    """Mount the views of the current and the pinned view on one scale, earlier ones dimmed."""
    drawings = [
        page.views(view, model_of(view.model), answers.results) for view, answers in columns
    ]
    if len(columns) > 1:
        drawings = share_scales(*drawings)
    places = zip(columns, drawings, st.columns(len(columns)), ("A", "B"), strict=False)
    for (view, answers), fresh, place, name in places:
        with place:
            if len(columns) > 1:
                st.caption(f"{name}: {escape_markdown(view.model)} · {escape_markdown(view.text)}")
            views, stale = _with_earlier(f"{page.name}_{name}", fresh, answers)
            canvas(
                f"canvas_{page.name}_{name}",
                views,
                view,
                stale=stale,
                on_pick=lambda pick, views=views: _apply_click(page, pick, views),
            )


def _with_earlier(
    key: str, views: list[ViewData], answers: Results
) -> tuple[list[ViewData], list[str]]:
    """Add the earlier views of answers that are being computed again; return their ids too."""
    stored_as = ("earlier views", _session(), key)
    earlier: list[ViewData] = STORE.get(stored_as) or []
    ids = {drawing["id"] for drawing in views}
    waiting = [drawing for drawing in earlier if drawing["id"] not in ids] if answers.states else []
    STORE.put(stored_as, [*views, *waiting])
    return [*views, *waiting], [drawing["id"] for drawing in waiting]


def _session() -> str:
    """A name of this session."""
    return st.session_state.setdefault("session", token_hex())


def _apply_click(page: Page, pick: object, views: Sequence[ViewData]) -> None:
    """Change the view according to a click; if it is not one, show a message."""
    try:
        view, notes = clicked(page, current(), checked(pick, views))
    except InterpError as error:
        st.session_state["refused"] = (str(error),)
    else:
        st.session_state["refused"] = notes
        change(view)


def clicked(page: Page, view: View, pick: Pick) -> tuple[View, tuple[str, ...]]:
    """The view after a click, without what the model lacks, and a note on each thing left out."""
    if pick["pick"] == "pin":
        return replace(view, pinned=None if view.pinned else view), ()
    if pick["pick"] in ("selection", "collect"):
        view = replace(view, **with_selection(view, pick))
    elif pick["pick"] == "score":
        view = replace(view, score=pick["name"])
    elif pick["pick"] == "contrast":
        view = replace(view, contrast=min(max(int(pick["x"]), 0), CONTRASTS))
    else:
        view = page.on_pick(view, pick)
    return validated(view, model_of(view.model))
