"""Long analyses in worker threads: progress, partial results, cancelling and resuming.

A sweep runs in slices: it is cancelled after a short time and resumed from its partial result, so
that a page can show cells as they are computed, and jobs of several pages take turns.
"""

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock, Thread, current_thread

import interp
from analyses.results import Progress, Result
from apps.explorer.garbage import freeze_imported
from apps.explorer.messages import message_of
from apps.explorer.questions import Question
from apps.explorer.store import Store
from interp.errors import Cancelled, InterpError, OutOfResources
from interp.io import cancellable, return_freed_memory

FIRST_SLICE = 0.1
"""Seconds after which the first partial result is shown."""
LONGEST_SLICE = 3.0
ABANDONED = 5.0
"""Seconds after which a job that no page polls pauses."""
MAX_JOBS = 64
"""Largest number of stopped jobs that are kept for their partial results or errors."""
MAX_VIEWERS = 100
"""Largest number of sessions of a job whose last polls are kept."""
MAX_UNHEEDED = 4
"""Number of reports of progress after which a phase that does not ask whether it was cancelled is
stopped."""
WAIT = 0.05
"""Seconds after which a quick question looks again whether the job of its answer has ended."""


@dataclass(eq=False)
class Job:
    """An analysis that is running, waiting, cancelled or finished.

    Sessions share jobs: a job that one session cancelled keeps running, without a break, as long
    as another one shows it.

    Attributes:
        question: the question that it answers.
        done: progress so far.
        total: progress in total; 0 before the first forward.
        result: the result: ``None``, partial or complete.
        version: number of times that ``result`` was updated.
        error: the message if it failed; else empty.
        running: whether it is running or waiting for its turn.
        complete: whether ``result`` is complete.
        seconds: time that it has run so far.
        phase: progress and seconds at the beginning of a phase with another total.
        polled: time at which each session last polled it, without those that cancelled it.
        active: whether a worker is computing it now, or will at once.
        can_retry: after an error, whether another attempt could succeed.
        turn: number of its place in the queue; an older place is passed over.
    """

    question: Question
    done: int = 0
    total: int = 0
    result: Result | None = None
    version: int = 0
    error: str = ""
    running: bool = False
    complete: bool = False
    seconds: float = 0.0
    phase: tuple[int, float] = (0, 0.0)
    polled: dict[str, float] = field(default_factory=dict[str, float])
    active: bool = False
    can_retry: bool = True
    turn: int = 0

    @property
    def should_pause(self) -> bool:
        """Whether all sessions that polled it have cancelled it, or no longer show it."""
        return time.monotonic() - max(self.polled.copy().values(), default=-math.inf) > ABANDONED

    @property
    def state(self) -> tuple[object, ...]:
        """A value that changes when more than the progress of the job has to be shown."""
        return self.version, self.running, self.error

    def note(self, done: int, total: int, seconds: float) -> None:
        """Record progress; with another total, it is that of another phase."""
        if self.total not in (0, total):
            self.phase = done, seconds
        self.done, self.total, self.seconds = done, total, seconds

    @property
    def seconds_left(self) -> float | None:
        """Estimated time left at the average speed of this phase; ``None`` if not known yet."""
        done, seconds = self.done - self.phase[0], self.seconds - self.phase[1]
        if done <= 0 or not self.total:
            return None
        return seconds * (self.total - self.done) / done


class _Slice:
    """The time that a job runs before another has its turn.

    A sweep repeats its preparation, which ends before the first progress, whenever it is resumed;
    so a slice lasts at least twice as long as that.

    Args:
        seconds: the least duration after the preparation.
    """

    def __init__(self, seconds: float) -> None:
        self._began, self._seconds = time.monotonic(), seconds
        self._prepared: float | None = None
        self._unheeded = 0

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    @property
    def is_over(self) -> bool:
        """Whether another job has its turn; never during the preparation."""
        prepared = self._prepared
        return prepared is not None and self.elapsed - prepared > max(self._seconds, 2 * prepared)

    def note_progress(self) -> None:
        """Record that there is progress."""
        self._unheeded += 1
        if self._prepared is None:
            self._prepared = self.elapsed

    def note_asked(self) -> None:
        """Record that the analysis asked whether it is cancelled."""
        self._unheeded = 0

    @property
    def is_unheeded(self) -> bool:
        """Whether there is much progress since the analysis asked that, as in its last phase."""
        return self._unheeded > MAX_UNHEEDED


class Jobs:
    """The jobs of all sessions, which take turns.

    Args:
        model_of: function that loads a model by its name.
        store: the store of complete results.
        workers: number of threads.
    """

    def __init__(
        self, model_of: Callable[[str], interp.Transformer], store: Store, workers: int = 1
    ) -> None:
        self.model_of, self.store = model_of, store
        self._turns: SimpleQueue[tuple[Job, float, int] | None] = SimpleQueue()
        self._jobs: dict[Question, Job] = {}
        self._quick: dict[Question, Future[Result]] = {}
        self._lock = Lock()
        self._closed = False
        # Daemon threads, so that stopping the command does not wait for an analysis.
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def poll(self, question: Question, session: str = "", *, cancelled: bool = False) -> Job:
        """The job of a question, which is started or resumed unless it has failed.

        Args:
            question: the question.
            session: the session that shows the job.
            cancelled: whether the caller has cancelled the job, which is then not resumed.
        """
        answer = self.store.get(question)
        if answer is not None:
            return Job(question, result=answer, complete=True)
        with self._lock:
            if cancelled:
                return self._jobs.get(question, Job(question))
            job = self._jobs.setdefault(question, Job(question))
            job.polled[session] = time.monotonic()
            if len(job.polled) > MAX_VIEWERS:
                del job.polled[min(job.polled, key=job.polled.__getitem__)]
            if not (job.running or job.error):
                self._queue(job, FIRST_SLICE)
            return job

    def is_settled(self, question: Question) -> bool:
        """Whether nothing is left to compute: it is answered, or its job has failed."""
        with self._lock:
            job = self._jobs.get(question)
        return self.store.get(question) is not None or bool(job is not None and job.error)

    def cancel(self, question: Question, session: str = "") -> None:
        """Stop a job after the current batch; keep partial results.

        A job that waits for its turn is taken out of the queue at once. If another session shows
        the job, it keeps running, or its place in the queue.
        """
        with self._lock:
            job = self._jobs.get(question)
            if job is None:
                return
            job.polled.pop(session, None)
            if job.should_pause and not job.active:
                job.turn += 1
                job.running = False
                self._forget_stopped()

    @property
    def kept(self) -> int:
        """Number of jobs that are running, waiting, or kept for their partial results."""
        with self._lock:
            return len(self._jobs)

    def resume(self, question: Question, session: str = "") -> None:
        """Resume a job that was cancelled or has failed."""
        with self._lock:
            self._jobs.setdefault(question, Job(question)).error = ""
        self.poll(question, session)

    def run(self, question: Question) -> Result:
        """The answer to a quick question, from the store or computed in this thread.

        If another visitor's thread or job is computing it, its answer is waited for.

        Raises:
            InterpError: the analysis raised it, or its job has failed.
        """
        future = Future[Result]()
        while True:
            with self._lock:
                answer, job = self.store.get(question), self._jobs.get(question)
                if answer is not None:
                    return answer
                if job is not None and job.error:
                    raise InterpError(job.error)
                if job is None or not self._can_wait_for(job):
                    elsewhere = self._quick.get(question)
                    self._quick.setdefault(question, future)
                    break
                job.polled[""] = time.monotonic()
            time.sleep(WAIT)
        if elsewhere is not None:
            try:
                return elsewhere.result()
            except Cancelled:  # by a visitor who left
                return self.run(question)
        try:
            answer = self._compute(question)
            self.store.put(question, answer)
            future.set_result(answer)
        except BaseException as error:
            future.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._quick[question]
        return answer

    def _can_wait_for(self, job: Job) -> bool:
        """Whether a job that is running will end: for a worker, only if another one runs it."""
        return job.active or (job.running and current_thread() not in self._threads)

    def _compute(
        self,
        question: Question,
        progress: Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
        resume: object = None,
    ) -> Result:
        """Run a question; the scores that it takes are computed once for all that take them."""
        scores = None if question.scored_by is None else self.run(question.scored_by)
        model = self.model_of(question.model)
        return question.run(model, progress, cancelled, resume, scores)

    def _next_result(self, job: Job, progress: Progress, cancelled: Callable[[], bool]) -> Result:
        """The next result of a job, or the answer that a quick question of a visitor has got."""
        with self._lock:
            future = self._quick.get(job.question)
        answer = self.store.get(job.question) if future is None else future.result()
        if answer is not None:
            return answer
        resume = getattr(job.result, "partial", None)
        return self._compute(job.question, progress, cancelled, resume)

    def close(self) -> None:
        """Stop all jobs, then the worker threads."""
        self._closed = True
        for _thread in self._threads:
            self._turns.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (turn := self._turns.get()) is not None:
            job, seconds, number = turn
            with self._lock:
                if number != job.turn:
                    continue
                job.active = not self._stops(job)
            ended = self._slice(job, seconds) if job.active else True
            if ended:
                return_freed_memory()
                freeze_imported()
            with self._lock:
                job.active = job.running = False
                if not (ended or self._stops(job)):
                    self._queue(job, min(2 * seconds, LONGEST_SLICE))
                self._forget_stopped()

    def _queue(self, job: Job, seconds: float) -> None:
        """Let a job run for some seconds: at once if there is a worker for each running job."""
        job.running = True
        job.active = sum(other.running for other in self._jobs.values()) <= len(self._threads)
        self._turns.put((job, seconds, job.turn))

    def _stops(self, job: Job) -> bool:
        return self._closed or job.should_pause

    def _slice(self, job: Job, seconds: float) -> bool:
        """Run a job for some seconds, so that other jobs can take their turn.

        An analysis that can't be resumed runs to its end; if it is stopped, it starts again from
        the beginning.

        Returns:
            Whether it has ended: it is complete, failed, or can't be resumed.
        """
        part, before = _Slice(seconds), job.seconds
        resumes = job.question.takes("resume")

        def stops() -> bool:
            return self._stops(job)

        def progress(done: int, total: int) -> None:
            part.note_progress()
            job.note(done, total, before + part.elapsed)
            if (not resumes or part.is_unheeded) and stops():
                raise Cancelled

        def cancelled() -> bool:
            part.note_asked()
            return resumes and (part.is_over or stops())

        try:
            with cancellable(None if resumes else stops):
                job.result = self._next_result(job, progress, cancelled)
            job.version += 1
        except Cancelled:
            job.done, job.seconds = (job.done, job.seconds) if resumes else (0, 0.0)
            return True
        except Exception as error:
            # Only a lack of memory, or a bug, can be gone at another attempt.
            job.can_retry = not isinstance(error, InterpError) or isinstance(error, OutOfResources)
            job.error = message_of(error)
            return True
        job.seconds = before + part.elapsed
        if getattr(job.result, "partial", None) is not None:
            self.store.put(("partial", job.question), job.result, lambda: self._evicted(job))
            return False
        self.store.put(job.question, job.result)
        job.complete = True
        with self._lock:
            self._forget(job)
        return True

    def _evicted(self, job: Job) -> None:
        """Forget a stopped job whose partial result had to make room."""
        with self._lock:
            if not job.running:
                self._forget(job)

    def _forget(self, job: Job) -> None:
        job.turn += 1
        self._jobs.pop(job.question, None)
        self.store.drop(("partial", job.question))

    def _forget_stopped(self) -> None:
        """Forget jobs that stopped without a partial result, and all but the latest others.

        A job with an error is kept too, so that it is not tried again at each poll.
        """
        stopped = [job for job in self._jobs.values() if not job.running]
        answered = [job for job in stopped if job.error or job.result is not None]
        for job in {*stopped} - {*answered[-MAX_JOBS:]}:
            self._forget(job)
