"""Long analyses in worker threads: progress, partial results, cancelling and resuming.

A sweep runs in slices: it is cancelled after a short time and resumed from its partial result, so
that a page can show cells as they are computed, and jobs of several pages take turns.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock, Thread

import interp
from analyses.result import Result
from apps.explorer.messages import message_of
from apps.explorer.questions import Question
from apps.explorer.store import Store

FIRST_SLICE = 0.4
"""Seconds after which the first partial result is shown."""
LONGEST_SLICE = 3.0
ABANDONED = 5.0
"""Seconds after which a job that no page polls pauses."""
MAX_JOBS = 64
"""Largest number of stopped jobs that are kept for their partial results or errors."""


@dataclass(eq=False)
class Job:
    """An analysis that is running, waiting, cancelled or finished.

    Sessions share jobs: a job that one session cancelled goes on as long as another one shows it.

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
        last_polled: time at which a session last polled it.
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
    last_polled: float = 0.0

    def cancel(self) -> None:
        """Stop after the current forward, unless the job is polled again; keep partial results."""
        self.last_polled = -math.inf

    @property
    def should_pause(self) -> bool:
        """Whether it was cancelled, or is no longer shown on any page."""
        return time.monotonic() - self.last_polled > ABANDONED

    @property
    def state(self) -> tuple[object, ...]:
        """A value that changes when more than the progress of the job has to be shown."""
        return self.version, self.running, self.error

    @property
    def seconds_left(self) -> float | None:
        """Estimated time left at the average speed so far; ``None`` if not known yet."""
        if not self.done or not self.total:
            return None
        return self.seconds * (self.total - self.done) / self.done


class _Stopped(Exception):
    """Raised to stop a job that can't be resumed."""


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
        self._turns: SimpleQueue[tuple[Job, float] | None] = SimpleQueue()
        self._jobs: dict[Question, Job] = {}
        self._lock = Lock()
        self._closed = False
        # Daemon threads, so that stopping the command does not wait for an analysis.
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def poll(self, question: Question, *, cancelled: bool = False) -> Job:
        """The job of a question, which is started or resumed unless it has failed.

        Args:
            question: the question.
            cancelled: whether the caller has cancelled the job, which is then not resumed.
        """
        answer = self.store.get(question)
        if answer is not None:
            return Job(question, result=answer, complete=True)
        with self._lock:
            job = self._jobs.setdefault(question, Job(question))
            if cancelled:
                return job
            job.last_polled = time.monotonic()
            if not (job.running or job.error):
                job.running = True
                self._turns.put((job, FIRST_SLICE))
            return job

    def resume(self, question: Question) -> None:
        """Resume a job that was cancelled or has failed."""
        with self._lock:
            self._jobs.setdefault(question, Job(question)).error = ""
        self.poll(question)

    def run(self, question: Question) -> Result:
        """The answer to a quick question, from the store or computed in this thread.

        Raises:
            InterpError: the analysis raised it.
        """
        answer = self.store.get(question)
        if answer is None:
            answer = question.run(self.model_of(question.model))
            self.store.put(question, answer)
        return answer

    def close(self) -> None:
        """Stop all jobs, then the worker threads."""
        self._closed = True
        for _thread in self._threads:
            self._turns.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (turn := self._turns.get()) is not None:
            self._slice(*turn)

    def _slice(self, job: Job, seconds: float) -> None:
        """Run a job for some seconds, then let other jobs take their turn.

        A sweep repeats its preparation whenever it is resumed, so a slice lasts at least twice as
        long as the preparation. An analysis that can't be resumed runs to its end; if it is
        stopped, it starts again from the beginning.
        """
        began, before = time.monotonic(), job.seconds
        prepared = list[float]()
        resumes = job.question.takes("cancelled")

        def progress(done: int, total: int) -> None:
            job.done, job.total = done, total
            job.seconds = before + time.monotonic() - began
            if not resumes and (self._closed or job.should_pause):
                raise _Stopped

        def cancelled() -> bool:
            now = time.monotonic() - began
            prepared.append(now)
            is_over = now - prepared[0] > max(seconds, 2 * prepared[0])
            return self._closed or job.should_pause or is_over

        try:
            model = self.model_of(job.question.model)
            resume = getattr(job.result, "partial", None)
            job.result = job.question.run(model, progress, cancelled, resume)
            job.version += 1
        except _Stopped:
            job.done, job.seconds, job.running = 0, 0.0, False
            return
        except Exception as error:
            self._fail(job, error)
            return
        job.seconds = before + time.monotonic() - began
        if getattr(job.result, "partial", None) is None:
            self._end(job)
        elif self._closed or job.should_pause:
            job.running = False
        else:
            self._turns.put((job, min(2 * seconds, LONGEST_SLICE)))

    def _end(self, job: Job) -> None:
        if job.result is not None:
            self.store.put(job.question, job.result)
        job.complete, job.running = True, False
        with self._lock:
            self._jobs.pop(job.question, None)

    def _fail(self, job: Job, error: Exception) -> None:
        job.error, job.running = message_of(error), False
        with self._lock:
            ended = [own for own, other in self._jobs.items() if not other.running]
            for question in ended[:-MAX_JOBS]:
                del self._jobs[question]
