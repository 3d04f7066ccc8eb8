"""Writing a harvest: the texts, the index, then shards, which several processes may share.

    texts-00000.safetensors …    token ids of the texts
    index.json                   everything that the shards depend on; written once
    shard-00000.safetensors …    activations and ids of ``shard_rows`` tokens each

Every file is written under a temporary name and renamed, so it is whole or absent. A process takes
a shard by locking a file beside it; the kernel releases the lock of a process that is killed, and
another process then computes this shard, with the same bytes. A shard is written while the next is
computed, so two are in memory.
"""

import re
import shutil
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from interp.errors import Cancelled, InvalidInput, OutOfResources, reason, shorten
from interp.execution import size_of
from interp.harvests.dataset import Harvest
from interp.harvests.forwards import ROWS, Plan, ShardForwards, planned
from interp.harvests.index import (
    INDEX,
    Index,
    read_index,
    row_bytes,
    shard_name,
)
from interp.harvests.pieces import Corpus, Pieces, write_pieces
from interp.harvests.shards import HARVEST, SHARD, check_shard, present_shards
from interp.integers import as_seed, at_least
from interp.io import (
    Progress,
    ProgressLike,
    as_path,
    as_progress,
    beside,
    cancellable,
    check_cancelled,
    is_file,
    locked,
    save_tensors,
    write_whole,
)
from interp.names import Request
from interp.transformer import Transformer

SHARD_BYTES = 2**26
"""Bytes of the activations of a shard, by default."""
MOST_ROWS = 2**20
"""The most rows of a shard, by default."""
PAUSE = 0.1
"""Seconds between two looks at shards that other processes compute."""
TEXTS = "texts"
OF_MODEL = {"config": "architecture differs", "weights": "weights differ"}
PIECE_FILE = re.compile(r"texts-\d{5,}\.safetensors")
HIDDEN_FILE = re.compile(r"\.(texts|index|shard).*\.interp-(new|lock)")


def harvest(  # noqa: PLR0913 - the settings of one harvest, by keyword
    model: Transformer,
    texts: Any,  # noqa: ANN401 - what interp.prompts.pools_of reads
    record: Request,
    to: str | Path,
    *,
    dtype: object = None,
    max_length: int | None = None,
    rows: int = ROWS,
    shard_rows: int | None = None,
    seed: int = 0,
    progress: ProgressLike = None,
    cancelled: Callable[[], bool] | None = None,
) -> Harvest:
    """Store the activations of a corpus in a folder, one row for each token.

    One forward of each text computes all places, and stops after the last. The corpus is tokenized
    once, into the folder; the memory that is needed does not depend on its size. Before the first
    forward, the bytes are compared with the space on the disk.

    If the harvest is stopped, the same call continues it, and the folder then has the bytes of one
    that was not stopped: each shard depends on ``index.json`` alone, where ``rows`` stands as it
    was given first. Several processes may make the same call at once: each computes the shards that
    no other has taken, and returns when all are there. (With another processor, number of threads
    or GPU, activations may differ by rounding, as those of any forward do.) The processes of
    :func:`interp.parallel` compute each shard together, and rank 0 writes it.

    Args:
        model: a model that reads texts or token ids.
        texts: the path of a file with one text per line, or one JSON object with a ``text`` per
            line (``.jsonl``); an iterator of texts, or of rows of token ids; or all at once: texts,
            token ids padded with ``interp.PAD``, a batch, or ``(source, target)`` for an
            encoder–decoder. ``None`` continues a harvest with the texts in its folder; otherwise
            they are read again and compared.
        record: the places, as for :func:`interp.run`; each has one row for each token.
        to: the folder, created if missing.
        dtype: dtype of the stored activations, or its name: ``float16``, ``bfloat16``, ``float32``
            or ``float64``; by default that of the model.
        max_length: maximum number of tokens of a text, by default that of the context; a longer
            text is cut into several. Token ids are not cut.
        rows: maximum number of texts per forward, which has at most 4096 tokens (16 384 on a GPU)
            or a single text; a harvest that is continued keeps its own.
        shard_rows: rows of a shard; by default, as many as take 64 MiB.
        seed: seed of the order in which rows are read by default.
        progress: called after each forward with the number of rows so far, and of all.
        cancelled: called after each forward; if it returns True, the shards that are there remain.

    Returns:
        A reader of the folder.

    Raises:
        UnknownPlace: the model has no such place.
        InvalidInput: the folder has a harvest of another model, of other texts, places or settings,
            or other files; there is no text; a place has no row for each token; or activations are
            not finite, or too large for ``dtype``.
        OutOfResources: the disk has too little space, or can't be written.
        Cancelled: it was cancelled.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> model, texts = interp.load("python-2l"), ["def f(x): return x", "class A: pass"]
        >>> with TemporaryDirectory() as folder:
        ...     interp.harvest(model, texts, ("resid_post", 1), folder, dtype="float16")
        Harvest(18 rows of 2 texts, float16: blocks.1.hook_resid_post [256])
    """
    plan, folder = planned(model, record, dtype), as_path(to)
    wanted = Index(
        plan.computation(),
        plan.stored_places,
        plan.dtype,
        plan.stack_name,
        _default_rows(plan) if shard_rows is None else at_least(1, shard_rows, "shard_rows"),
        at_least(1, rows, "rows"),
        plan.forward_tokens,
        as_seed(seed),
        "",
        0,
        (),
    )
    if max_length is not None:
        max_length = at_least(2, max_length, "max_length")
    report = as_progress(progress, "rows")
    with cancellable(cancelled), _translated_errors(folder):
        index = _index(plan, wanted, texts, folder, max_length)
        _write_shards(plan, index, folder, report)
        _remove_leftovers(folder)
    return Harvest(folder)


def _default_rows(plan: Plan) -> int:
    """The power of two of rows whose activations take at most :data:`SHARD_BYTES`."""
    most = max(1, SHARD_BYTES // row_bytes(plan.stored_places, plan.dtype))
    return min(MOST_ROWS, 1 << (most.bit_length() - 1))


# ---- texts and index -------------------------------------------------------------------------


def _index(plan: Plan, wanted: Index, texts: object, folder: Path, max_length: int | None) -> Index:
    """The index in the folder, or a new one with the texts.

    Raises:
        InvalidInput: the folder has another harvest, or other files.
    """
    _create(folder)
    corpus = Corpus([stack.name for stack in plan.model.stacks])
    while not is_file(folder / INDEX):
        with claimed(folder / TEXTS) as is_ours:
            if is_ours and not is_file(folder / INDEX):
                return _write_index(plan, wanted, corpus, texts, folder, max_length)
        _wait()
    index = read_index(folder)
    _check_same(index, wanted, folder)
    if texts is not None:
        for _ in corpus.read(plan.model, texts, max_length):
            check_cancelled()
        if corpus.digest != index.texts:
            raise InvalidInput(
                f"{folder} has a harvest of {index.n_texts} other texts; these are "
                f"{corpus.n_texts}. Give the same texts and max_length=, texts=None to continue "
                "with those of the folder, or another folder."
            )
    return index


def _write_index(
    plan: Plan,
    wanted: Index,
    corpus: Corpus,
    texts: object,
    folder: Path,
    max_length: int | None,
) -> Index:
    if texts is None:
        raise InvalidInput(f"{folder} has no harvest yet; give its texts.")
    _remove_pieces(folder)
    read = (tensors for _, tensors in corpus.read(plan.model, texts, max_length))
    pieces = write_pieces(folder, read, plan.stack_name)
    index = replace(wanted, texts=corpus.digest, n_documents=corpus.n_documents, pieces=pieces)
    index.write(folder)
    return index


def _remove_pieces(folder: Path) -> None:
    """Remove the texts of a harvest that was stopped before its index was written.

    Raises:
        InvalidInput: the folder has other files.
    """
    for path in folder.iterdir():
        if not PIECE_FILE.fullmatch(path.name) and not HIDDEN_FILE.fullmatch(path.name):
            raise InvalidInput(
                f"{folder} holds {shorten(path.name)}, which is no part of a harvest that was "
                "begun: choose another folder."
            )
    for path in folder.iterdir():
        if PIECE_FILE.fullmatch(path.name):
            path.unlink()


def _create(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder.")
    folder.mkdir(parents=True, exist_ok=True)


def _check_same(index: Index, wanted: Index, folder: Path) -> None:
    """Check that a harvest was begun with the same model and settings.

    Raises:
        InvalidInput: it was not; the message names what differs.
    """
    names = ("places", "dtype", "shard_rows", "seed")
    then, now = (
        {**asdict(i.computation), **{n: getattr(i, n) for n in names}} for i in (index, wanted)
    )
    del now["model"]  # a name, which does not affect the numbers
    for name, value in now.items():
        if then[name] == value:
            continue
        if name in OF_MODEL:
            raise InvalidInput(
                f"{folder} has a harvest of {shorten(index.computation.model)}, whose "
                f"{OF_MODEL[name]} from those of this model, {shorten(wanted.computation.model)}. "
                "Give that model, or another folder."
            )
        before, after = (_described(v) for v in (then[name], value))
        raise InvalidInput(
            f"{folder} has a harvest with {name} {before}; this one has {after}. Give the same, or "
            "another folder."
        )


def _described(value: object) -> str:
    """A setting in a message; places by their names."""
    return ", ".join(place.name for place in value) if isinstance(value, tuple) else shorten(value)


# ---- shards ------------------------------------------------------------------------------------


def _write_shards(plan: Plan, index: Index, folder: Path, report: Progress | None) -> None:
    """Compute the shards that are not there, but those that other processes compute meanwhile."""
    for shard in present_shards(index, folder):
        check_shard(folder, index, shard)
    _check_space(index, folder)
    forwards = ShardForwards(plan, index, Pieces(folder, index))
    writes, agreed = _ranks_of(plan.model)
    with _ShardWriter(index, folder, report) as writer:
        while missing := agreed(sorted({*range(index.n_shards)} - present_shards(index, folder))):
            n_written = 0
            for shard in missing:
                lock = ExitStack()
                with lock:
                    path = folder / shard_name(shard)
                    is_ours = writes and lock.enter_context(claimed(path.with_suffix("")))
                    if agreed(is_ours and not path.exists()):
                        tensors = forwards.tensors(shard, writer.reporter())
                        if writes:
                            writer.write(shard, tensors, lock.pop_all())
                        n_written += 1
            writer.finish()
            if not n_written:
                _wait()


def _ranks_of(model: object) -> tuple[bool, Callable[[Any], Any]]:
    """Whether this process writes, and a function that gives what the process that writes decides.

    Of a model that several processes hold, each forward needs all of them: they compute the same
    shards, and the first writes these.
    """
    ranks = getattr(model, "ranks", None)
    if ranks is None:
        return True, lambda decision: decision
    return ranks.rank == 0, lambda decision: ranks.objects(decision)[0]


class _ShardWriter:
    """Writes each shard in a thread while the next is computed, and keeps its lock until then.

    Args:
        index: the index of the harvest.
        folder: its folder.
        report: called with the number of rows that are there, and of all.
    """

    def __init__(self, index: Index, folder: Path, report: Progress | None) -> None:
        self._index, self._folder, self._report = index, folder, report
        self._thread = ThreadPoolExecutor(1)
        self._pending: tuple[Future[None], ExitStack] | None = None
        self._last: set[int] = set()

    def reporter(self) -> Callable[[int], None]:
        """What reports the rows that a shard has so far, beside those of other shards."""
        there = present_shards(self._index, self._folder) | self._last
        n_there = _rows_of_all(self._index, there)

        def report(n_rows: int) -> None:
            if self._report is not None:
                self._report(n_there + n_rows, self._index.n_rows)

        return report

    def write(self, shard: int, tensors: dict[str, Tensor], lock: ExitStack) -> None:
        """Begin to write a shard, once the one before is there.

        Raises:
            OSError: the one before can't be written.
        """
        with lock:
            self.finish()
            self._pending = self._thread.submit(self._write, shard, tensors), lock.pop_all()
            self._last = {shard}

    def finish(self) -> None:
        """Wait until the last shard is there.

        Raises:
            OSError: it can't be written.
        """
        if self._pending is None:
            return
        (written, lock), self._pending = self._pending, None
        with lock:
            written.result()

    def _write(self, shard: int, tensors: dict[str, Tensor]) -> None:
        metadata = {HARVEST: self._index.digest, SHARD: str(shard)}
        path = self._folder / shard_name(shard)
        write_whole(path, lambda new: save_tensors(tensors, new, metadata))

    def __enter__(self) -> "_ShardWriter":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.finish()
        finally:
            self._thread.shutdown()


def _rows_of_all(index: Index, shards: set[int]) -> int:
    """The number of rows of some shards."""
    last = index.n_shards - 1
    missing_in_last = index.shard_rows - len(index.rows_of(last))
    return len(shards) * index.shard_rows - (missing_in_last if last in shards else 0)


def _check_space(index: Index, folder: Path) -> None:
    """Compare what remains to be written with the space on the disk.

    Raises:
        OutOfResources: there is too little.
    """
    left = index.n_rows - _rows_of_all(index, present_shards(index, folder))
    nbytes = left * (index.row_bytes + index.ids_bytes)
    free = shutil.disk_usage(folder).free
    if nbytes > free:
        raise OutOfResources(
            f"{folder} needs {size_of(nbytes)} for {left:,} rows at "
            f"{len(index.places)} places; {size_of(free)} are free. Free some space, choose "
            "another folder, or harvest fewer places, fewer texts, or in a smaller dtype."
        )


def _remove_leftovers(folder: Path) -> None:
    """Remove the locks and temporary files of killed processes."""
    for role in ("lock", "new"):
        suffix = beside(Path("name"), role).name.removeprefix(".name")
        for path in folder.glob(f".*{suffix}"):
            with claimed(folder / path.name[1 : -len(suffix)]) as is_ours:
                if is_ours and role == "new":
                    path.unlink(missing_ok=True)


@contextmanager
def claimed(path: Path) -> Generator[bool]:
    """Whether this process holds the lock of ``path`` in the block; False if another one does."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(path))
        except OutOfResources:
            yield False
        else:
            yield True


def _wait() -> None:
    time.sleep(PAUSE)
    check_cancelled()


@contextmanager
def _translated_errors(folder: Path) -> Generator[None]:
    """Errors of the disk and interruptions, with what remains of the harvest."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(
            f"The harvest was stopped; the shards in {folder} are whole, and the same call "
            "computes the others."
        ) from error
    except Cancelled as error:
        raise Cancelled(
            f"The harvest was cancelled; the shards in {folder} are whole, and the same call "
            "computes the others."
        ) from error
    except OSError as error:
        raise OutOfResources(
            f"{folder} can't be written: {reason(error)}. The shards that are there are whole; "
            "the same call computes the others, once there is space or permission."
        ) from error
