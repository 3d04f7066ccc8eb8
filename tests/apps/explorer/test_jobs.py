"""Long analyses: partial results, cancelling, resuming, failing; and the store of answers."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import count

import pytest
import torch

import analyses
from analyses import ablate, attention_patterns, head_roles, top_texts
from analyses.results import nbytes
from apps.explorer import jobs as jobs_module
from apps.explorer import questions as questions_module
from apps.explorer import store as store_module
from apps.explorer.jobs import Jobs
from apps.explorer.questions import Question, question
from apps.explorer.store import Store
from apps.explorer.watch import progress_text
from interp.errors import InvalidInput
from interp.loading import load

run_module = import_module("interp.execution.run")

MODEL = "induction-by-hand"
TEXTS = ("abcab", "xyzxy", "kqkqk")


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    made = Jobs(load, Store(2**28))
    yield made
    made.close()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait(jobs: Jobs, asked: Question) -> jobs_module.Job:
    until(lambda: not jobs.poll(asked).running)
    return jobs.poll(asked)


def test_a_job_gives_the_answer_of_the_analysis(jobs):
    job = wait(jobs, question(ablate, MODEL, TEXTS))
    assert job.complete
    expected = ablate(load(MODEL), [*TEXTS])
    torch.testing.assert_close(job.result.ablated, expected.ablated, rtol=0, atol=0)
    assert jobs.poll(question(ablate, MODEL, TEXTS)).result is job.result


def test_slices_of_one_forward_give_the_same_numbers(jobs, monkeypatch):
    """A sweep that is cancelled after each forward and resumed, and one that is not."""
    monkeypatch.setattr(jobs_module, "FIRST_SLICE", 0.0)
    monkeypatch.setattr(jobs_module, "LONGEST_SLICE", 0.0)
    asked = question(ablate, MODEL, TEXTS, memory=1e6)
    job = wait(jobs, asked)
    expected = asked.run(load(MODEL))
    torch.testing.assert_close(job.result.ablated, expected.ablated, rtol=0, atol=0)
    assert job.complete


def test_cancel_keeps_what_is_done_and_resume_goes_on(jobs, monkeypatch):
    """The first slice is held until the job is cancelled, so that cells are left."""
    monkeypatch.setattr(jobs_module, "FIRST_SLICE", 60.0)
    begun, go = threading.Event(), threading.Event()

    def waiting(model, texts, *, progress=None, cancelled=None, resume=None):
        def tick(done: int, total: int) -> None:
            progress(done, total)
            begun.set()
            go.wait(60)

        return ablate(model, texts, memory=1e6, progress=tick, cancelled=cancelled, resume=resume)

    monkeypatch.setattr(analyses, "waiting", waiting, raising=False)
    asked = Question("waiting", MODEL, (TEXTS,))
    assert jobs.poll(asked).running
    assert begun.wait(60)
    job = jobs.poll(asked)
    jobs.cancel(asked)
    go.set()
    until(lambda: not job.running)
    assert not job.complete
    done = ~job.result.ablated.isnan()
    assert done.any()
    assert not done.all()
    assert not jobs.poll(asked, cancelled=True).running, "polling must not restart it"
    jobs.resume(asked)
    job = wait(jobs, asked)
    assert job.complete
    expected = ablate(load(MODEL), [*TEXTS], memory=1e6)
    torch.testing.assert_close(job.result.ablated, expected.ablated, rtol=0, atol=0)


def test_cancel_stops_a_phase_that_does_not_ask_for_it(jobs, monkeypatch):
    """As the ablations after a scan, whose sweep reports progress alone."""
    begun, go = threading.Event(), threading.Event()
    reports = []

    def in_phases(model, texts, *, progress=None, cancelled=None, resume=None):
        for done in range(1, 101):
            reports.append(done)
            progress(done, 100)
            begun.set()
            go.wait(60)

    monkeypatch.setattr(analyses, "in_phases", in_phases, raising=False)
    asked = Question("in_phases", MODEL, (TEXTS,))
    jobs.poll(asked)
    assert begun.wait(60)
    job = jobs.poll(asked)
    jobs.cancel(asked)
    go.set()
    until(lambda: not job.running)
    assert (job.complete, job.error) == (False, "")
    assert len(reports) == jobs_module.MAX_UNHEEDED + 1


def test_the_time_left_is_that_of_the_phase():
    job = jobs_module.Job(question(ablate, MODEL, TEXTS))
    job.note(40, 40, 100.0)
    assert job.seconds_left == 0
    job.note(1, 10, 101.0)
    assert job.seconds_left is None
    job.note(3, 10, 105.0)
    assert job.seconds_left == pytest.approx(4.0 * 7 / 2)


def test_cancel_stops_the_preparation_of_a_sweep_and_of_what_can_not_be_resumed(jobs, monkeypatch):
    """After the forward that is being computed; nothing is measured, and nothing is an error."""
    monkeypatch.setattr(jobs_module, "FIRST_SLICE", 0.0)
    forwards, begun, go = [], threading.Event(), threading.Event()
    compute = run_module.execute

    def waiting(*arguments: object) -> object:
        forwards.append(None)
        begun.set()
        go.wait(60)
        return compute(*arguments)

    monkeypatch.setattr(run_module, "execute", waiting)
    for asked in (question(ablate, MODEL, TEXTS, rows=1), question(head_roles, MODEL, rows=4)):
        jobs.poll(asked)
        assert begun.wait(60)
        job = jobs.poll(asked)
        jobs.cancel(asked)
        go.set()
        until(lambda job=job: not job.running)
        assert (job.result, job.error, job.total) == (None, "", 0)
        assert len(forwards) == 1
        for event in (begun, go):
            event.clear()
        forwards.clear()
    go.set()
    assert wait(jobs, question(ablate, MODEL, TEXTS, rows=1)).complete


def test_an_analysis_that_can_not_be_resumed_is_not_cut_into_slices(jobs, monkeypatch):
    """Of a corpus that is read in part, the result is a whole one to the page."""
    monkeypatch.setattr(jobs_module._Slice, "is_over", True)
    asked = question(top_texts, MODEL, TEXTS, of="L0H0", rows=1)
    job = wait(jobs, asked)
    assert job.result.n_texts == len(TEXTS)
    assert not job.result.notes


def test_what_can_not_be_resumed_is_stopped_and_begins_anew(jobs, monkeypatch):
    begun, go, counts = threading.Event(), threading.Event(), []

    def counted(model, texts, *, progress=None):
        for done in range(1, 4):
            counts.append(done)
            progress(done, 3)
            begun.set()
            go.wait(60)
        return ablate(model, texts)

    monkeypatch.setattr(analyses, "counted", counted, raising=False)
    asked = Question("counted", MODEL, (TEXTS,))
    jobs.poll(asked)
    assert begun.wait(60)
    job = jobs.poll(asked)
    jobs.cancel(asked)
    go.set()
    until(lambda: not job.running)
    assert counts == [1, 2]
    assert (job.result, job.error, job.done) == (None, "", 0)
    assert wait(jobs, asked).complete
    assert counts == [1, 2, 1, 2, 3]


def test_a_job_that_nobody_polls_pauses_and_resumes_when_polled(jobs, monkeypatch):
    monkeypatch.setattr(jobs_module, "ABANDONED", -1.0)
    asked = question(ablate, MODEL, TEXTS, memory=1e6)
    job = jobs.poll(asked)
    until(lambda: not job.running)
    assert not job.complete
    monkeypatch.setattr(jobs_module, "ABANDONED", 60.0)
    assert wait(jobs, asked).complete


@pytest.mark.parametrize("others", [("other",), ()])
def test_what_one_session_cancels_goes_on_without_a_break_while_another_shows_it(
    jobs, monkeypatch, others
):
    """Of an analysis that begins anew when it is stopped; it is stopped only if nobody else looks.

    Both sessions get the result of the same job.
    """
    begun, go, counts = threading.Event(), threading.Event(), []

    def counted(model, texts, *, progress=None):
        for done in range(1, 4):
            counts.append(done)
            progress(done, 3)
            begun.set()
            go.wait(60)
        return ablate(model, texts)

    monkeypatch.setattr(analyses, "counted", counted, raising=False)
    asked = Question("counted", MODEL, (TEXTS,))
    sessions = ("one", *others)
    (job,) = {jobs.poll(asked, session) for session in sessions}
    assert begun.wait(60)
    jobs.cancel(asked, "one")
    text = progress_text("a", jobs.poll(asked, "one", cancelled=True), cancelled=True)
    assert text == ("a: cancelled; another window still needs it" if others else "a: cancelling…")
    go.set()
    until(lambda: not job.running)
    assert (job.complete, counts) == ((True, [1, 2, 3]) if others else (False, [1, 2]))
    results = {jobs.poll(asked, session, cancelled=True).result for session in sessions}
    assert results == {job.result}


def test_a_waiting_job_that_one_session_cancels_keeps_its_place_for_another(jobs, monkeypatch):
    ran: list[str] = []
    monkeypatch.setattr(analyses, "noted", lambda _model, text: ran.append(text), raising=False)
    busy, begun, go = held_job(monkeypatch)
    jobs.poll(busy)
    assert begun.wait(60)
    first, second = (Question("noted", MODEL, (text,)) for text in ("first", "second"))
    for session in ("one", "other"):
        jobs.poll(first, session)
    jobs.poll(second, "one")
    jobs.cancel(first, "one")
    go.set()
    until(lambda: jobs.kept == 0)
    assert ran == ["first", "second"]


def test_a_job_knows_few_sessions(jobs, monkeypatch):
    busy, _, go = held_job(monkeypatch)
    for n in range(2 * jobs_module.MAX_VIEWERS):
        job = jobs.poll(busy, str(n))
    assert len(job.polled) == jobs_module.MAX_VIEWERS
    assert str(2 * jobs_module.MAX_VIEWERS - 1) in job.polled
    go.set()


def held_job(monkeypatch) -> tuple[Question, threading.Event, threading.Event]:
    """A job that runs until an event is set, so that the only worker is busy."""
    begun, go = threading.Event(), threading.Event()

    def waiting(model, texts):
        begun.set()
        go.wait(60)
        return ablate(model, [*texts])

    monkeypatch.setattr(analyses, "waiting", waiting, raising=False)
    return Question("waiting", MODEL, (TEXTS,)), begun, go


def test_a_waiting_job_that_is_cancelled_leaves_the_queue_at_once_and_never_runs(jobs, monkeypatch):
    ran: list[str] = []
    monkeypatch.setattr(analyses, "noted", lambda _model, text: ran.append(text), raising=False)
    busy, begun, go = held_job(monkeypatch)
    jobs.poll(busy)
    assert begun.wait(60)
    dropped, wanted = (Question("noted", MODEL, (text,)) for text in ("dropped", "wanted"))
    job = jobs.poll(dropped)
    jobs.poll(wanted)
    assert (job.running, jobs.kept) == (True, 3)
    jobs.cancel(dropped)
    assert (job.running, jobs.kept) == (False, 2)
    go.set()
    until(lambda: jobs.kept == 0)
    assert ran == ["wanted"]


def test_a_job_that_left_the_queue_can_be_asked_again(jobs, monkeypatch):
    busy, begun, go = held_job(monkeypatch)
    jobs.poll(busy)
    assert begun.wait(60)
    asked = question(ablate, MODEL, TEXTS)
    for _ in range(3):
        jobs.poll(asked)
        jobs.cancel(asked)
    jobs.poll(asked)
    go.set()
    assert wait(jobs, asked).complete


def test_abandoned_jobs_are_forgotten(jobs, monkeypatch):
    """Visitors who left: nobody polls, so nothing waits or is kept, however many there were."""
    monkeypatch.setattr(jobs_module, "ABANDONED", -1.0)
    busy, _, go = held_job(monkeypatch)
    go.set()
    for n in range(200):
        jobs.poll(replace(busy, arguments=(TEXTS, n)))
    until(lambda: jobs.kept == 0)


def test_a_job_waits_only_if_all_workers_are_busy(jobs, monkeypatch):
    busy, _, go = held_job(monkeypatch)
    first = jobs.poll(busy)
    assert progress_text("a", first, cancelled=False) == "a: running", "before a worker took it"
    second = jobs.poll(question(ablate, MODEL, TEXTS))
    assert progress_text("a", second, cancelled=False) == "a: waiting"
    go.set()


def test_the_state_of_a_job_in_words():
    job = jobs_module.Job(question(ablate, MODEL, TEXTS), running=True)
    assert progress_text("a", job, cancelled=False) == "a: waiting"
    job.active = True
    assert progress_text("a", job, cancelled=False) == "a: running"
    job.done, job.total, job.seconds = 1, 4, 2.0
    assert progress_text("a", job, cancelled=False) == "a: 1 of 4, 6 s left"
    assert progress_text("a", job, cancelled=True) == "a: cancelling…"
    job.running = False
    assert progress_text("a", job, cancelled=True) == "a: cancelled"
    job.error = "no"
    assert progress_text("a", job, cancelled=False) == "a: failed"


def counted(monkeypatch) -> tuple[list[str], threading.Event, threading.Event]:
    """An analysis that notes each call, and returns once an event is set."""
    calls, begun, go = list[str](), threading.Event(), threading.Event()

    def noted(model, text):
        calls.append(text)
        begun.set()
        go.wait(60)
        return ablate(model, [text])

    monkeypatch.setattr(analyses, "noted", noted, raising=False)
    return calls, begun, go


def in_threads(work: Callable[[], object], n: int) -> tuple[list[object], list[threading.Thread]]:
    """Results of the same work in several threads, in the order in which they end."""
    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(work())) for _ in range(n)]
    for thread in threads:
        thread.start()
    return results, threads


def test_a_quick_question_of_several_visitors_is_computed_once(jobs, monkeypatch):
    calls, begun, go = counted(monkeypatch)
    asked = Question("noted", MODEL, ("abcab",))
    results, threads = in_threads(lambda: jobs.run(asked), 4)
    assert begun.wait(60)
    go.set()
    for thread in threads:
        thread.join()
    assert calls == ["abcab"]
    assert results == [results[0]] * 4


def test_an_error_reaches_all_who_wait_for_the_answer(jobs, monkeypatch):
    _, begun, go = counted(monkeypatch)
    asked = Question("noted", MODEL, ("",))

    def error() -> str:
        with pytest.raises(InvalidInput) as raised:
            jobs.run(asked)
        return str(raised.value)

    results, threads = in_threads(error, 4)
    assert begun.wait(60)
    go.set()
    for thread in threads:
        thread.join()
    assert results == [results[0]] * 4
    assert not jobs._quick


@pytest.mark.parametrize("first", ["job", "page"])
def test_a_question_of_a_job_and_of_a_page_is_computed_once(jobs, monkeypatch, first):
    """Whoever asks second waits for the first, and neither for ever."""
    calls, begun, go = counted(monkeypatch)
    asked = Question("noted", MODEL, ("abcab",))

    def of_page() -> tuple[list[object], list[threading.Thread]]:
        return in_threads(lambda: jobs.run(asked), 1)

    def of_job() -> jobs_module.Job:
        return jobs.poll(asked)

    if first == "job":
        of_job()
        assert begun.wait(60)
        results, threads = of_page()
    else:
        results, threads = of_page()
        assert begun.wait(60)
        of_job()
    go.set()
    threads[0].join()
    job = wait(jobs, asked)
    assert job.complete
    assert results == [job.result]
    assert calls == ["abcab"]


def test_scores_that_a_question_takes_are_computed_once(jobs, monkeypatch):
    """They are a question of their own, whose answer another page may have got already."""
    calls, go = list[str](), threading.Event()
    go.set()

    def scored(model, text):
        calls.append(text)
        return ablate(model, [text])

    def ranked(scores, model, text):
        return ablate(model, [text], largest=len(scores))

    monkeypatch.setattr(analyses, "scored", scored, raising=False)
    monkeypatch.setattr(analyses, "ranked", ranked, raising=False)
    monkeypatch.setattr(questions_module, "_scores", lambda _: [1, 2])
    by = Question("scored", MODEL, ("abcab",))
    for text in ("abcab", "xyzxy"):
        job = wait(jobs, Question("ranked", MODEL, (text,), scored_by=by))
        assert len(job.result.members) == 2
    assert calls == ["abcab"]


def test_a_partial_result_counts_in_the_store_and_makes_room(jobs, monkeypatch):
    """Of a stopped job; once it is evicted, the job is forgotten and would begin anew."""
    parts = (Part(torch.zeros(10), n) for n in count(1))
    monkeypatch.setattr(
        analyses, "endless", lambda _model, *, resume=None: next(parts), raising=False
    )
    asked = Question("endless", MODEL)
    job = jobs.poll(asked)
    until(lambda: job.version > 1)
    jobs.cancel(asked)
    until(lambda: not job.running)
    assert jobs.kept == 1
    assert jobs.store.nbytes == nbytes(job.result) >= 40
    jobs.store.max_bytes = jobs.store.nbytes
    jobs.store.put("more", Numbers(torch.zeros(10)))
    assert jobs.kept == 0
    assert jobs.store.nbytes == 40
    assert jobs.poll(asked) is not job


def test_two_jobs_take_turns(jobs, monkeypatch):
    """A job of many slices waits for one that came later; alone it would never end."""
    ran: list[str] = []

    def sliced(_model, name, *, cancelled=None, resume=None):
        assert cancelled is not None
        assert len(ran) < 10_000
        ran.append(name)
        is_last = name == "short" or "short" in ran[:-1]
        return Slice(None if is_last else (resume or 0) + 1)

    monkeypatch.setattr(analyses, "sliced", sliced, raising=False)
    long, short = (Question("sliced", MODEL, (name,)) for name in ("long", "short"))
    jobs.poll(long)
    until(lambda: len(ran) > 2)
    jobs.poll(short)
    assert wait(jobs, long).complete
    assert ran.count("short") == 1
    assert ran[-1] == "long"


def test_an_error_stays_until_the_job_is_tried_again(jobs):
    asked = question(ablate, MODEL, ("",))
    job = wait(jobs, asked)
    assert "empty" in job.error
    assert not job.can_retry
    assert not job.complete
    assert not jobs.poll(asked).running
    jobs.resume(asked)
    assert "empty" in wait(jobs, asked).error


@dataclass(frozen=True)
class Slice:
    partial: int | None


@dataclass(frozen=True)
class Part:
    numbers: torch.Tensor
    partial: int


@dataclass(frozen=True)
class Numbers:
    numbers: torch.Tensor


def test_the_store_keeps_the_last_used_within_its_bytes():
    store = Store(max_bytes=100)
    questions = [Question("ablate", MODEL, (str(n),)) for n in range(3)]
    for earlier in questions[:2]:
        store.put(earlier, Numbers(torch.zeros(10)))
    assert store.get(questions[0]) is not None
    store.put(questions[2], Numbers(torch.zeros(10)))
    assert store.get(questions[1]) is None
    assert store.get(questions[0]) is not None
    assert store.nbytes == 80
    store.put(questions[1], Numbers(torch.zeros(1000)))
    assert store.get(questions[1]) is None
    assert store.nbytes == 80


def test_what_functions_of_results_return_is_stored_while_the_result_lives(monkeypatch):
    monkeypatch.setattr(store_module, "STORE", Store(2**20))
    calls: list[object] = []

    @store_module.stored
    def frame_of(result, name):
        calls.append(name)
        return result.to_frame()

    first, second = (ablate(load(MODEL), [text]) for text in ("abcab", "xyzxy"))
    frame = frame_of(first, "a")
    assert frame_of(first, "a") is frame
    assert frame_of(first, "b") is not frame
    assert frame_of(second, "a") is not frame
    assert calls == ["a", "b", "a"]
    assert store_module.STORE.nbytes >= 3 * frame.memory_usage(deep=True).sum()
    alive = weakref.ref(first)
    del first
    gc.collect()
    assert alive() is None, "the store keeps tables, not results"


def test_bytes_of_a_result_are_at_least_those_of_its_tensors():
    result = ablate(load(MODEL), [*TEXTS])
    assert nbytes(result) >= result.ablated.nbytes + result.clean.nbytes


def test_a_hundred_prompts_take_no_more_than_the_store_may():
    model = load(MODEL)
    jobs = Jobs(lambda _: model, Store(max_bytes=20_000))
    for n in range(100):
        jobs.run(question(attention_patterns, MODEL, "".join("abcdefghij"[int(c)] for c in str(n))))
        assert jobs.store.nbytes <= 20_000
    assert jobs.store.nbytes > 0
    jobs.close()
