"""A pass: a function of batches that is run on workers, with its results in the order of batches.

    for label, result in pool.map(model, function, batches): ...

The batches are read as workers take them, so that they may be more than memory holds. A worker gets
the function once. Where it refers to the model, or to its modules and weights, it gets those of the
worker. Results that arrive early wait for those before them, so that what is made of them does not
depend on the workers; and no batch is read that is far ahead of the first one that is not done.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from interp.errors import InvalidInput, WorkerFailed
from interp.executors.backend import Event
from interp.executors.dispatch import POLL, TRIES, Dispatch, StartedWorkers
from interp.executors.jobs import Part, SerializedGroup, digest_of
from interp.executors.transfer import dumps
from interp.executors.worker_server import PartWorker, code_digest
from interp.io import check_cancelled
from interp.model import Network

AHEAD = 4
"""The most batches for each worker that are read and whose results are not used yet."""
Function = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class SentFunction:
    """The function of a pass as it is sent.

    Attributes:
        function: the function.
        package: the package that it is from, whose code must be the same on a worker.
        digest: the digest of that code.
    """

    function: Function
    package: str
    digest: str

    @classmethod
    def of(cls, function: Function) -> "SentFunction":
        """A function with the digest of its code; of a script or notebook, it travels by value."""
        defined = function
        while isinstance(defined, partial):
            defined = defined.func
        module = getattr(defined, "__module__", None) or type(defined).__module__
        package = module.partition(".")[0]
        return cls(function, package, code_digest(package))

    def opened(self, _: PartWorker) -> "SentFunction":
        """Check that the code is the same.

        Raises:
            InvalidInput: it is not.
        """
        if self.digest and code_digest(self.package) != self.digest:
            raise InvalidInput(
                f"The code of {self.package} is {code_digest(self.package)} here, but "
                f"{self.digest} in the driver. Install the same versions on all machines."
            )
        return self

    def outcomes(self, batch: Any) -> tuple[Any, ...]:  # noqa: ANN401 - whatever the function takes
        """What the function returns."""
        return (self.function(batch),)


@dataclass(frozen=True, eq=False)
class OpenPass:
    """A pass whose batches are sent.

    Attributes:
        header: the function, pickled.
        digest: a hash of it.
    """

    header: bytes
    digest: bytes

    @classmethod
    def of(cls, function: Function, model: Network) -> "OpenPass":
        """A pass over a model."""
        header = dumps(SentFunction.of(function), model)
        return cls(header, digest_of(header))

    def name_of(self, group: SerializedGroup) -> str:
        """The label of a batch."""
        return str(group.source.label)


@dataclass(eq=False)
class Item:
    """A batch that was read.

    Attributes:
        label: what it is called, and what the caller gets back with its result.
        digest: of the function and the batch.
        result: what the function returned, once it is there.
        error: what was raised instead.
    """

    label: Any
    digest: bytes = b""
    result: tuple[Any, ...] = ()
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        """Whether there is a result or an error."""
        return bool(self.result) or self.error is not None


class PassDispatch(Dispatch):
    """One pass over workers.

    Args:
        started: the workers.
        opened: the pass.
        batches: each batch with its label.
        limit: maximum number of workers that run at a time.
    """

    def __init__(
        self,
        started: StartedWorkers,
        opened: OpenPass,
        batches: Iterable[tuple[Any, Any]],
        limit: int,
    ) -> None:
        super().__init__(started, limit)
        self.opened, self.unread = opened, iter(batches)
        self.waiting: deque[Item] = deque()
        self.is_read = False

    def results(self) -> Generator[tuple[Any, Any]]:
        """Yield each label with the result of its batch, in order.

        Raises:
            WorkerFailed: a batch has ended three workers; raised when those before it are done.
            Exception: what reading the batches, or the function, raised; likewise.
        """
        try:
            while True:
                self._fill()
                if not self.waiting and self.is_read:
                    return
                is_next_done = bool(self.waiting) and self.waiting[0].is_done
                event = self.started.next_event(0.0 if is_next_done else POLL)
                if event is not None:
                    self._take(event)
                elif is_next_done:
                    item = self.waiting.popleft()
                    if item.error is not None:
                        raise item.error
                    yield item.label, item.result[0]
                check_cancelled()
        finally:  # results that were not used, for a pass that is resumed
            for item in self.waiting:
                if item.result:
                    self.started.unclaimed[item.digest] = item.result

    def give_up(self, part: Part) -> None:
        """Let the error take the place of the result."""
        self._end_with(
            part.serialized[0].source,
            WorkerFailed(f"A batch ended {TRIES} workers: {part}. The last {self.reason}."),
        )

    def _fill(self) -> None:
        """Send workers the next batches, as many as they can take."""
        while (free := self.free()) and (part := self._next()) is not None:
            self.started.send(free[0][0], part)

    def _next(self) -> Part | None:
        if self.again:
            return self.again.popleft()
        n_workers = min(self.limit, self.started.n)
        while not self.is_read and len(self.waiting) < AHEAD * n_workers:
            group = self._read()
            if group is not None:
                return Part(self.opened, [group])
        return None

    def _read(self) -> SerializedGroup | None:
        """The next batch; ``None`` if there is none, or if its result is there already."""
        item = Item("the next batch")
        try:
            pair = next(self.unread, None)
            if pair is None:
                self.is_read = True
                return None
            item.label = pair[0]
            group = SerializedGroup.of(item, pair[1], self.opened.digest)
        except Exception as error:  # raised when the batches before it are done
            self._end_with(item, error)
            self.waiting.append(item)
            return None
        item.digest = group.digest
        item.result = self.started.unclaimed.pop(group.digest, ())
        self.waiting.append(item)
        return None if item.result else group

    def _take(self, event: Event) -> None:
        if event.kind != "done":
            self.ended(event)
            return
        part, reply = self.started.take(event)
        item: Item = part.serialized[0].source
        if reply.error is None:
            item.result = self.started.unclaimed.pop(item.digest)
        else:
            self._end_with(item, reply.error)

    def _end_with(self, item: Item, error: BaseException) -> None:
        """End the pass after this batch."""
        item.error, self.is_read = error, True


def map_here(function: Function, batches: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Run a pass in this thread."""
    for label, batch in batches:
        yield label, function(batch)
