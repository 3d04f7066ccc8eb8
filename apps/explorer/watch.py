"""The progress bars of a page's jobs, which are polled while a job is running.

Polling is cheap, since it draws no views: the whole page is redrawn when there is more to show.
"""

from collections.abc import Callable, Mapping

import streamlit as st

from apps.explorer.jobs import Job, Jobs
from apps.explorer.messages import errors_on_page
from apps.explorer.questions import Question
from apps.explorer.state import address_differs, rerun, session_name, went_back

POLL = 0.2
"""Seconds between two polls of the jobs."""

States = dict[str, object]
"""The states of jobs, by name."""


def begin_drawing() -> None:
    """Record that nothing is drawn yet."""
    st.session_state["drawn"] = None


def note_drawn(states: States) -> None:
    """Record the states of the jobs whose results a page has drawn."""
    st.session_state["drawn"] = states


def watch(incomplete_jobs: Callable[[], Mapping[str, Job]], jobs: Jobs) -> None:
    """Show the progress of jobs.

    Args:
        incomplete_jobs: function that returns the incomplete jobs of the shown page, by name.
        jobs: the jobs of all sessions.
    """
    running = any(job.running for job in incomplete_jobs().values())
    st.session_state["watched"] = running
    # Back may have been pressed while the page was drawn, so the address is checked again.
    polls = running or address_differs()
    st.session_state["is_polling"] = False
    try:
        st.fragment(_poll, run_every=POLL if polls else None)(incomplete_jobs, jobs)
    finally:
        # From here on, a message of the browser begins each poll.
        st.session_state["is_polling"] = True


def _poll(incomplete_jobs: Callable[[], Mapping[str, Job]], jobs: Jobs) -> None:
    with errors_on_page():
        if st.session_state["is_polling"] and went_back():
            st.rerun()
        incomplete = incomplete_jobs()
        states = {name: job.state for name, job in incomplete.items()}
        with st.container(horizontal=True, gap="medium"):
            for name, job in incomplete.items():
                _progress(name, job, jobs)
        drawn, running = st.session_state["drawn"], any(job.running for job in incomplete.values())
        # A page that failed to draw (None) would only fail again.
        if drawn not in (None, states) or running != st.session_state["watched"]:
            rerun()


def _progress(name: str, job: Job, jobs: Jobs) -> None:
    """A bar with the time left, and a button to cancel or resume."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        cancelled = is_cancelled(job.question)
        text = progress_text(name, job, cancelled=cancelled)
        st.progress(job.done / job.total if job.total else 0.0, text)
        goes_on = cancelled and job.running and not job.should_pause
        if not job.error and (job.running or not cancelled) and not goes_on:
            key, args = f"cancel_{name}", [job, jobs]
            st.button("Cancel", key=key, on_click=_cancel, args=args, disabled=cancelled)
        elif job.can_retry or goes_on:
            label = "Try again" if job.error else "Continue"
            st.button(label, key=f"continue_{name}", on_click=_resume, args=[job, jobs])


def is_cancelled(question: Question) -> bool:
    """Whether this session has cancelled the job of a question."""
    return hash(question) in st.session_state.get("cancelled", ())


def _cancel(job: Job, jobs: Jobs) -> None:
    st.session_state.setdefault("cancelled", set()).add(hash(job.question))
    jobs.cancel(job.question, session_name())


def _resume(job: Job, jobs: Jobs) -> None:
    st.session_state.get("cancelled", set()).discard(hash(job.question))
    jobs.resume(job.question, session_name())


def progress_text(name: str, job: Job, *, cancelled: bool) -> str:
    """The state of a job in words.

    Args:
        name: the name of its question.
        job: the job.
        cancelled: whether this session has cancelled it.
    """
    if job.error or (cancelled and not job.running):
        how = "failed" if job.error else "cancelled"
        so_far = f" after {job.done} of {job.total}; the results so far are shown"
        return f"{name}: {how}{'' if job.result is None else so_far}"
    if cancelled and job.should_pause:
        return f"{name}: cancelling…"
    if cancelled:
        return f"{name}: cancelled; another window still needs it"
    if not job.total or not job.running:
        return f"{name}: {'running' if job.active else 'waiting'}"
    left = "" if job.seconds_left is None else f", {job.seconds_left:.0f} s left"
    return f"{name}: {job.done} of {job.total}{left}"
