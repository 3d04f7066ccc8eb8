"""Long analyses in a worker thread: their progress, partial results, cancelling and resuming.

A sweep runs in slices: it is cancelled after a moment and resumed from what it has, so that a page
shows cells as they come, and jobs of several pages take turns.
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
"""Seconds without a look at a job after which it pauses."""
MAX_JOBS = 64
"""Jobs that ended and are remembered for their partial results or errors."""


@dataclass(eq=False)
class Job:
    """An analysis that runs, waits, was cancelled or has ended.

    Sessions share it: after one of them has cancelled it, it runs as long as another one shows it.

    Attributes:
        question: what it computes.
        done: of its progress.
        total: likewise; 0 before the first forward.
        result: what there is: ``None``, partial or whole.
        version: how often there has been more of it.
        error: why it can't be computed.
        running: whether it is under way or waits for its turn.
        complete: whether ``result`` is whole.
        seconds: for which it has run.
        looked_at: when somebody last asked for it.
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
    looked_at: float = 0.0

    def cancel(self) -> None:
        """Stop after the present forward, unless it is looked at again; what is done is kept."""
        self.looked_at = -math.inf

    @property
    def waits(self) -> bool:
        """Whether it should not go on: it was cancelled, or no page shows it any more."""
        return time.monotonic() - self.looked_at > ABANDONED

    @property
    def state(self) -> tuple[object, ...]:
        """What changes when there is something else to show than its progress."""
        return self.version, self.running, self.error

    @property
    def seconds_left(self) -> float | None:
        """At the speed until now; ``None`` while that is not known."""
        if not self.done or not self.total:
            return None
        return self.seconds * (self.total - self.done) / self.done


class _Stopped(Exception):
    """A job was stopped that can't be resumed."""


class Jobs:
    """The jobs of all sessions, which take turns.

    Args:
        model_of: loads a model by its name.
        store: where whole answers are kept.
        workers: threads.
    """

    def __init__(
        self, model_of: Callable[[str], interp.Transformer], store: Store, workers: int = 1
    ) -> None:
        self.model_of, self.store = model_of, store
        self._turns: SimpleQueue[tuple[Job, float] | None] = SimpleQueue()
        self._jobs: dict[Question, Job] = {}
        self._lock = Lock()
        self._closed = False
        # Daemons, so that a command that is stopped does not wait for an analysis.
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def look(self, question: Question, *, cancelled: bool = False) -> Job:
        """The job of a question, which is started or resumed unless it failed.

        Args:
            question: what it computes.
            cancelled: whether who looks has cancelled it: it is left as it is.
        """
        answer = self.store.get(question)
        if answer is not None:
            return Job(question, result=answer, complete=True)
        with self._lock:
            job = self._jobs.setdefault(question, Job(question))
            if cancelled:
                return job
            job.looked_at = time.monotonic()
            if not (job.running or job.error):
                job.running = True
                self._turns.put((job, FIRST_SLICE))
            return job

    def resume(self, question: Question) -> None:
        """Let a job go on that was cancelled or failed."""
        with self._lock:
            self._jobs.setdefault(question, Job(question)).error = ""
        self.look(question)

    def run(self, question: Question) -> Result:
        """The answer of a quick question, computed here unless it is kept.

        Raises:
            InterpError: as the analysis does.
        """
        kept = self.store.get(question)
        if kept is None:
            kept = question.run(self.model_of(question.model))
            self.store.put(question, kept)
        return kept

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
        """Run a job for some seconds; then let others take their turn.

        A sweep that is resumed prepares itself anew: a slice lasts twice as long as that, at least.
        An analysis that can't be resumed is run whole, or stopped and begun anew.
        """
        began, before = time.monotonic(), job.seconds
        prepared = list[float]()
        resumes = job.question.takes("cancelled")

        def progress(done: int, total: int) -> None:
            job.done, job.total = done, total
            job.seconds = before + time.monotonic() - began
            if not resumes and (self._closed or job.waits):
                raise _Stopped

        def cancelled() -> bool:
            now = time.monotonic() - began
            prepared.append(now)
            return self._closed or job.waits or now - prepared[0] > max(seconds, 2 * prepared[0])

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
        elif self._closed or job.waits:
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
