"""The parts that all pages share: they ask questions, mount views and show the Python code.

A page is three pure functions: the questions that it asks, the views of the answers, and the effect
of a click on the view. A pinned view goes through the same functions and is shown at the left, on
the same scale.
"""

import atexit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import streamlit as st

import interp
from analyses.results import Result
from apps.explorer.canvas import Pick, ViewData, canvas, with_selection
from apps.explorer.clicks import checked
from apps.explorer.controls import choose
from apps.explorer.downloads import show_code_and_files
from apps.explorer.forward_cost import is_long_forward
from apps.explorer.jobs import Job, Jobs
from apps.explorer.messages import errors_on_page, escape_markdown, message_of
from apps.explorer.offered import model_of
from apps.explorer.questions import Question
from apps.explorer.state import change, current, outer, rerun, session_name, write_address
from apps.explorer.store import STORE
from apps.explorer.validate import validated
from apps.explorer.view import CONTRASTS, View
from apps.explorer.watch import States, begin_drawing, is_cancelled, note_drawn, watch
from apps.widget.pictures import differences, share_scales
from interp.errors import InterpError
from interp.text import visible

PROGRESS = "interp_progress"
"""The key of the container of the jobs' progress, which the page's style keeps in view."""
WORKERS = 2
"""Number of worker threads, so that a long forward of one analysis does not block another."""
JOBS = Jobs(model_of, STORE, WORKERS)
"""The jobs of all sessions."""
STATE = (
    *("model", "text", "target", "distractor", "corrupt", "prefix", "chat", "hidden", "position"),
    *("prompts", "answered", "metric", "method", "heads", "ablated"),
    *("corpus", "pasted", "most", "offsets", "effects", "scanned"),
    *("units", "share"),
)
"""Fields that say what is computed; the others say which of it is shown."""
MAX_TEXT = 80
"""Largest number of characters of a prompt in the description of a state."""
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
                    jobs.poll(
                        request.question,
                        session_name(),
                        cancelled=is_cancelled(request.question),
                    ),
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


def show(page: Page, body: Callable[[Page], None] | None = None) -> None:
    """Show a page, with the progress of its jobs at the lower edge of the window.

    Args:
        page: the page.
        body: function that shows its views, if that is more than to mount them.
    """
    begin_drawing()
    st.fragment(_body_and_progress)(page, body or _body)


def _body_and_progress(page: Page, body: Callable[[Page], None]) -> None:
    """Both in one fragment, so that jobs that a click starts are polled without a whole rerun."""
    body(page)
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
        name: JOBS.poll(question, session_name(), cancelled=is_cancelled(question))
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
        JOBS.cancel(question, session_name())


def columns_of(view: View) -> list[tuple[str, View]]:
    """The views that are compared, each with the prefix of the names of its jobs.

    In a difference, both show the same of their states.
    """
    if view.pinned is None or view.page == "story":
        return [("", view)]
    pinned = view.pinned
    if view.subtract:
        state = {name: getattr(pinned, name) for name in STATE}
        pinned, _ = validated(replace(view, **state, pinned=None), model_of(pinned.model))
    return [("A: ", pinned), ("B: ", view)]


def described(view: View) -> str:
    """The state of a view in words: model, prompt, and what is ablated."""
    text = visible(view.text.encode("utf-8", "surrogatepass"))
    text = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
    return f"{view.model}, “{text}”, {view.edit or 'plain'}"


def rerun_if_outer_changed() -> None:
    """Rerun the whole page if what it shows around the views has changed."""
    before = st.session_state.get("outer")
    if before is not None and before != outer(current()):
        st.session_state["outer"] = None
        rerun()


def _body(page: Page) -> None:
    rerun_if_outer_changed()
    with errors_on_page():
        with st.container(horizontal=True, vertical_alignment="bottom"):
            page.controls(current(), model_of(current().model))
            if current().pinned is not None:
                _comparison()
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


def _comparison() -> None:
    """The choice between the pinned view beside the current one, and their difference."""
    choose(
        "Pinned view",
        "subtract",
        [False, True],
        format_func=lambda subtract: "A − B" if subtract else "A, B",
        help="A is the pinned view, B the current one. A − B subtracts the numbers of B from those "
        "of A: maps, patterns, tokens, bars and curves of equal shape.",
    )
    st.button("Unpin", on_click=lambda: change(pinned=None, subtract=False))


def _mount(page: Page, columns: Sequence[tuple[View, Results]]) -> None:
    """Mount the views of the current and the pinned view, earlier ones dimmed."""
    drawn = drawn_columns(page, columns)
    if len(columns) > len(drawn):
        (views,), (view, _) = drawn, columns[-1]
        canvas(
            f"canvas_{page.name}_difference",
            views,
            view,
            on_pick=lambda pick: _apply_click(page, pick, [each["b"] or each for each in views]),
        )
        return
    places = zip(columns, drawn, st.columns(len(columns)), ("A", "B"), strict=False)
    for (view, answers), fresh, place, name in places:
        with place:
            if len(columns) > 1:
                st.caption(f"{name}: {escape_markdown(described(view))}")
            views, stale = _with_earlier(f"{page.name}_{name}", fresh, answers)
            canvas(
                f"canvas_{page.name}_{name}",
                views,
                view,
                stale=stale,
                on_pick=lambda pick, views=views: _apply_click(page, pick, views),
            )


def drawn_columns(page: Page, columns: Sequence[tuple[View, Results]]) -> list[list[ViewData]]:
    """The views of one or two states: side by side on one scale, or their differences."""
    drawings = [
        [with_run(page, view, drawing) for drawing in page.views(view, model, answers.results)]
        for view, answers in columns
        for model in [model_of(view.model)]
    ]
    if len(columns) == 1:
        return drawings
    (pinned, _), (view, _) = columns
    if not view.subtract:
        return [*share_scales(*drawings)]
    states = f"A (pinned): {described(pinned)}; B: {described(view)}"
    return [differences(drawings[0], drawings[1], states, view.score)]


def with_run(page: Page, view: View, drawing: ViewData) -> ViewData:
    """The drawing of a state with heads ablated, which says of which run it is."""
    if not (page.reads_prompt and view.edit):
        return drawing
    return {"run": f"Run: plain, not with {view.edit}", **drawing}


def _with_earlier(
    key: str, views: list[ViewData], answers: Results
) -> tuple[list[ViewData], list[str]]:
    """Add the earlier views of answers that are being computed again; return their ids too."""
    stored_as = ("earlier views", session_name(), key)
    earlier: list[ViewData] = STORE.get(stored_as) or []
    ids = {drawing["id"] for drawing in views}
    waiting = [drawing for drawing in earlier if drawing["id"] not in ids] if answers.states else []
    STORE.put(stored_as, [*views, *waiting])
    return [*views, *waiting], [drawing["id"] for drawing in waiting]


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
        pinned = None if view.pinned else replace(view, subtract=False)
        return replace(view, pinned=pinned, subtract=False), ()
    if pick["pick"] in ("selection", "collect"):
        view = replace(view, **with_selection(view, pick))
    elif pick["pick"] == "score":
        view = replace(view, score=pick["name"])
    elif pick["pick"] == "contrast":
        view = replace(view, contrast=min(max(int(pick["x"]), 0), CONTRASTS))
    else:
        view = page.on_pick(view, pick)
    return validated(view, model_of(view.model))
