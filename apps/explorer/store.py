"""A cache of results by their questions, limited in bytes; the least recently used are evicted."""

from collections import OrderedDict
from threading import Lock

from analyses.results import Result, nbytes
from apps.explorer.questions import Question

MAX_BYTES = 2**28


class Store:
    """Results of all sessions; safe to use from several threads.

    Args:
        max_bytes: largest total size of the stored tensors, in bytes.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._answers: OrderedDict[Question, tuple[Result, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, question: Question) -> Result | None:
        """The answer to a question; ``None`` if it is not stored."""
        with self._lock:
            if question not in self._answers:
                return None
            self._answers.move_to_end(question)
            return self._answers[question][0]

    def put(self, question: Question, answer: Result) -> None:
        """Store an answer, unless it is larger than the whole store."""
        size = nbytes(answer)
        with self._lock:
            self._answers.pop(question, None)
            if size <= self.max_bytes:
                self._answers[question] = answer, size
            while self._total() > self.max_bytes:
                self._answers.popitem(last=False)

    @property
    def nbytes(self) -> int:
        """Size of all stored tensors, in bytes."""
        with self._lock:
            return self._total()

    def _total(self) -> int:
        return sum(size for _, size in self._answers.values())
