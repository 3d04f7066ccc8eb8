"""Long analyses in a worker thread: their progress, partial results, cancelling and resuming.

A sweep runs in slices: it is cancelled after a moment and resumed from what it has, so that a page
shows cells as they come, and jobs of several pages take turns.
"""

import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

import interp
from analyses.result import Result
from apps.explorer.questions import Question
from apps.explorer.store import Store
from apps.failures import code_and_message
from apps.terminal import print_stderr
from interp.errors import InterpError

FIRST_SLICE = 0.4
"""Seconds after which the first partial result is shown."""
LONGEST_SLICE = 3.0
ABANDONED = 5.0
"""Seconds without a look at a job after which it pauses."""
MAX_JOBS = 64
"""Jobs that ended and are remembered for their partial results or errors."""


@dataclass(eq=False)
class Job:
    """An analysis that runs, waits, was cancelled or has ended.

    Attributes:
        question: what it computes.
        done: of its progress.
        total: likewise; 0 before the first forward.
        result: what there is: ``None``, partial or whole.
        error: why it can't be computed.
        running: whether it is under way or waits for its turn.
        complete: whether ``result`` is whole.
        seconds: for which it has run.
        stopped: whether it was cancelled.
        looked_at: when somebody last asked for it.
    """

    question: Question
    done: int = 0
    total: int = 0
    result: Result | None = None
    error: str = ""
    running: bool = False
    complete: bool = False
    seconds: float = 0.0
    stopped: bool = False
    looked_at: float = 0.0

    def cancel(self) -> None:
        """Stop after the present forward; what is done is kept."""
        self.stopped = True

    @property
    def waits(self) -> bool:
        """Whether it should not go on: it was cancelled, or no page shows it any more."""
        return self.stopped or time.monotonic() - self.looked_at > ABANDONED

    @property
    def seconds_left(self) -> float | None:
        """At the speed until now; ``None`` while that is not known."""
        if not self.done or not self.total:
            return None
        return self.seconds * (self.total - self.done) / self.done


class Jobs:
    """The jobs of all sessions, one at a time, in turns.

    Args:
        model_of: loads a model by its name.
        store: where whole answers are kept.
        workers: threads.
    """

    def __init__(
        self, model_of: Callable[[str], interp.Transformer], store: Store, workers: int = 1
    ) -> None:
        self.model_of, self.store = model_of, store
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="analysis")
        self._jobs: dict[Question, Job] = {}
        self._lock = Lock()

    def look(self, question: Question) -> Job:
        """The job of a question, which begins, or goes on unless it was cancelled or failed."""
        answer = self.store.get(question)
        if answer is not None:
            return Job(question, result=answer, complete=True)
        with self._lock:
            job = self._jobs.setdefault(question, Job(question))
            job.looked_at = time.monotonic()
            if not (job.running or job.stopped or job.error):
                job.running = True
                self._pool.submit(self._slice, job, FIRST_SLICE)
            return job

    def resume(self, question: Question) -> None:
        """Let a job go on that was cancelled or failed."""
        with self._lock:
            job = self._jobs.setdefault(question, Job(question))
            job.stopped, job.error = False, ""
        self.look(question)

    def answer(self, question: Question) -> Result:
        """The answer of a quick question, computed here unless it is kept.

        Raises:
            InterpError: as the analysis does.
        """
        kept = self.store.get(question)
        if kept is None:
            kept = question.answer(self.model_of(question.model))
            self.store.put(question, kept)
        return kept

    def close(self) -> None:
        """Stop all jobs and the worker threads."""
        with self._lock:
            for job in self._jobs.values():
                job.cancel()
        self._pool.shutdown(cancel_futures=True)

    def _slice(self, job: Job, seconds: float) -> None:
        """Run a job for some seconds; then let others take their turn."""
        began, before = time.monotonic(), job.seconds

        def progress(done: int, total: int) -> None:
            job.done, job.total = done, total
            job.seconds = before + time.monotonic() - began

        def cancelled() -> bool:
            return job.waits or time.monotonic() - began > seconds

        try:
            model = self.model_of(job.question.model)
            resume = getattr(job.result, "partial", None)
            job.result = job.question.answer(model, progress, cancelled, resume)
        except Exception as error:
            self._fail(job, error)
            return
        job.seconds = before + time.monotonic() - began
        if getattr(job.result, "partial", None) is None:
            self._end(job)
        elif job.waits:
            job.running = False
        else:
            self._pool.submit(self._slice, job, min(2 * seconds, LONGEST_SLICE))

    def _end(self, job: Job) -> None:
        if job.result is not None:
            self.store.put(job.question, job.result)
        job.complete, job.running = True, False
        with self._lock:
            self._jobs.pop(job.question, None)

    def _fail(self, job: Job, error: Exception) -> None:
        if not isinstance(error, InterpError):
            print_stderr(traceback.format_exc())
        job.error, job.running = code_and_message(error)[1], False
        with self._lock:
            ended = [own for own, other in self._jobs.items() if not other.running]
            for question in ended[:-MAX_JOBS]:
                del self._jobs[question]
