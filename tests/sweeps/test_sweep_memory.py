"""Memory decides how many edited forwards are run as one; when it gives out, a sweep warns."""

from collections.abc import Sequence
from importlib import import_module

import pytest
import torch
from architectures import assert_close, assert_identical, build, padded, tokens_of
from torch import Tensor

from interp import edits, metrics, sweep
from interp.errors import HookFailed, InvalidInput, OutOfResources
from interp.model.network import Network
from interp.model.unembedding import Unembedding
from interp.sweeps.batched import Baseline, BatchedForward
from interp.sweeps.memory import Budget
from interp.sweeps.restart_map import RestartMap
from interp.sweeps.schedule import Job, cases_of
from interp.sweeps.worker import Worker, logits_formed

memory = import_module("interp.execution.free_bytes")

MODEL = build("gpt2")
TOKENS = tokens_of("gpt2", batch=2)[0]
METRIC = metrics.logit_diff(1, 2)
HEADS = [edits.zero("z", layer=layer, head=head) for layer in range(2) for head in range(3)]
SMALL = 20_000
"""Room for one edited forward of both prompts, not for three."""

OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    MemoryError(),
]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many edits each forward had."""
    copies, values = [], BatchedForward.values

    def counted(forward: BatchedForward) -> Tensor:
        copies.append(forward.copies)
        return values(forward)

    monkeypatch.setattr(BatchedForward, "values", counted)
    return copies


def fails_over(monkeypatch: pytest.MonkeyPatch, most: int, error: BaseException) -> None:
    """Forwards of more than so many copies do not fit."""
    values = BatchedForward.values

    def limited(forward: BatchedForward) -> Tensor:
        if forward.copies > most:
            raise error
        return values(forward)

    monkeypatch.setattr(BatchedForward, "values", limited)


def test_less_memory_means_fewer_edits_a_forward_and_the_same_numbers(sizes):
    whole = sweep(MODEL, TOKENS, HEADS, METRIC)
    assert max(sizes) == 3
    sizes.clear()
    small = sweep(MODEL, TOKENS, HEADS, METRIC, memory=SMALL)
    assert max(sizes) < 3
    assert_close(small.values, whole.values)
    assert small.notes == whole.notes == ()


def test_less_memory_means_fewer_prompts_a_forward():
    rows: list[int] = []

    def noting(jobs, work):
        for job in jobs:
            rows.append(len(job.rows))
            yield from work(job)

    table = sweep(MODEL, TOKENS, HEADS, METRIC, memory=SMALL / 2, executor=noting)
    assert rows == [1, 1]
    assert_close(table.values, sweep(MODEL, TOKENS, HEADS, METRIC).values)


@pytest.mark.parametrize("several", [HEADS, [edits.zero("z", layer=0, batch=1)]])
def test_too_little_memory_is_refused_with_the_estimate_before_anything_is_run(
    monkeypatch, several
):
    monkeypatch.setattr(Baseline, "of", lambda *_: pytest.fail("a forward was run"))
    with pytest.raises(OutOfResources, match=r"[KM]iB.*[KM]iB.*memory="):
        sweep(MODEL, TOKENS, several, METRIC, memory=1000)


def test_a_part_that_is_too_large_is_known_before_the_others_are_run(monkeypatch):
    """A batch that can't be taken apart needs more than rows that can."""
    monkeypatch.setattr(Baseline, "of", lambda *_: pytest.fail("a forward was run"))
    many = TOKENS.repeat(20, 1)
    with pytest.raises(OutOfResources, match="40 prompts"):
        sweep(MODEL, many, [*HEADS, edits.resample("z", layer=0)], METRIC, memory=SMALL)


@pytest.mark.parametrize("memory", [0, -1, float("nan"), float("inf"), "big", True, [1]])
def test_no_amount_of_memory(memory):
    with pytest.raises(InvalidInput, match=r"memory=.*positive number of bytes"):
        sweep(MODEL, TOKENS, HEADS, METRIC, memory=memory)


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_out_of_memory_halves_the_forwards_once_with_a_warning(monkeypatch, error):
    whole = sweep(MODEL, TOKENS, HEADS, METRIC)
    fails_over(monkeypatch, 2, error)
    counts: list[int] = []
    with pytest.warns(ResourceWarning, match="3 edits per forward: continued with 2") as caught:
        table = sweep(MODEL, TOKENS, HEADS, METRIC, progress=lambda done, _: counts.append(done))
    assert len(caught) == len(table.notes) == 1
    assert str(caught[0].message) == table.notes[0]
    assert counts == [4, 6, 10, 12]
    assert_close(table.values, whole.values)


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_out_of_memory_again_is_the_end(monkeypatch, error):
    fails_over(monkeypatch, 1, error)
    with pytest.raises(OutOfResources, match=r"2 edits.*2 prompts.*[KM]iB.*memory=") as caught:
        sweep(MODEL, TOKENS, HEADS, METRIC)
    assert caught.value.__cause__ is error


def test_one_edit_that_does_not_fit_can_not_be_halved(monkeypatch):
    at_all = [len(HEADS)]
    values = BatchedForward.values

    def failing(forward: BatchedForward) -> Tensor:
        if forward.edits:
            at_all.append(forward.copies)
            raise OUT_OF_MEMORY[0]
        return values(forward)

    monkeypatch.setattr(BatchedForward, "values", failing)
    with pytest.raises(OutOfResources, match="1 edits"):
        sweep(MODEL, TOKENS, HEADS[0], METRIC)
    assert at_all[1:] == [1]


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_out_of_memory_in_the_clean_forward(monkeypatch, error):
    def failing(*_: object) -> Baseline:
        raise error

    monkeypatch.setattr(Baseline, "of", failing)
    with pytest.raises(OutOfResources, match=r"unedited forward.*[KM]iB") as caught:
        sweep(MODEL, TOKENS, HEADS, METRIC)
    assert caught.value.__cause__ is error


def test_other_errors_pass_through_as_they_are(monkeypatch):
    """The converse: not every RuntimeError is about memory."""
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    fails_over(monkeypatch, 2, error)
    with pytest.raises(RuntimeError) as caught:
        sweep(MODEL, TOKENS, HEADS, METRIC)
    assert caught.value is error


def test_an_error_about_memory_in_a_users_function_is_the_functions_own():
    def failing(z, hook):
        raise RuntimeError("not enough memory for my table")

    with pytest.raises(HookFailed, match="my table"):
        sweep(MODEL, TOKENS, edits.apply("z", failing, layer=0), METRIC)


def test_without_a_word_the_numbers_are_the_same(sizes):
    """Whatever is free on this machine."""
    once, again = (sweep(MODEL, TOKENS, HEADS, METRIC) for _ in range(2))
    assert_identical(once.values, again.values)
    ragged = padded([TOKENS[0], TOKENS[1][:2]], "left")
    small = sweep(MODEL, ragged, HEADS, METRIC, memory=SMALL)
    assert_close(small.values, sweep(MODEL, ragged, HEADS, METRIC).values)


# The estimate.


def worker_of(model: Network) -> Worker:
    return Worker(RestartMap(model), Budget(2**40))


def job_of(model: Network, tokens: Sequence[Tensor], made: object, metric: object = METRIC) -> Job:
    batches = tuple(model.check(*tokens))
    items = tuple(cases_of(RestartMap(model), made))
    return Job(tuple(range(len(tokens[0]))), batches, metric, items, len(tokens[0]))


def estimate(name: str, tokens: Sequence[Tensor], made: object, metric: object = METRIC):
    model = build(name)
    return worker_of(model).footprint(job_of(model, tokens, made, metric))


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "marian", "bloom"])
@pytest.mark.parametrize("point", ["resid_pre", "z", "post"])
def test_what_is_kept_of_the_clean_forward_is_known_to_the_byte(name, point):
    model, tokens = build(name), tokens_of(name, batch=2)
    made = [edits.zero(point, layer=layer, pos=-1) for layer in range(2)]
    if len(model.stacks) > 1:
        made = [edits.zero(point, layer=layer, stack="decoder", pos=-1) for layer in range(2)]
    worker, job = worker_of(model), job_of(model, tokens, made)
    tensors = Baseline.of(worker.restart_map, job).tensors.values()
    assert worker.footprint(job).stored * 2 == sum(tensor.nbytes for tensor in tensors)


@pytest.mark.parametrize(
    ("edit", "metric", "formed"),
    [
        (HEADS[0], METRIC, 2),
        (HEADS[0], metrics.prob(1), MODEL.config.d_vocab),
        (HEADS[0], metrics.loss(), MODEL.config.d_vocab * TOKENS.shape[1]),
        (edits.scale("logits", 2.0), METRIC, MODEL.config.d_vocab),
        (edits.scale("final_normalized", 2.0), METRIC, 2),
        (edits.resample("logits"), METRIC, MODEL.config.d_vocab * TOKENS.shape[1]),
    ],
    ids=["target-distractor", "prob", "loss", "all-edited", "normed-edited", "resampled"],
)
def test_only_logits_that_are_formed_take_room(monkeypatch, edit, metric, formed):
    """As many as the sweep then forms for each prompt, at the end of its forwards."""
    sizes: list[int] = []

    def noting(kind: type, name: str) -> None:
        method = getattr(kind, name)

        def noted(*arguments, **options):
            made = method(*arguments, **options)
            sizes.append(made.numel() // len(made))
            return made

        monkeypatch.setattr(kind, name, noted)

    noting(Unembedding, "forward")
    noting(Unembedding, "some")
    job = job_of(MODEL, [TOKENS], [edit], metric)
    n_logits = logits_formed(MODEL, metric, job.cases[0].edits, TOKENS.shape[1])
    sweep(MODEL, TOKENS, [edit], metric)
    assert n_logits == formed == max(sizes)


def test_distances_of_padded_prompts_take_room():
    """Each prompt then has its own; without padding all share them."""
    (tokens,) = tokens_of("bloom", batch=2, pos=6)
    ragged = padded([tokens[0], tokens[1][:2]], "left")
    assert estimate("bloom", [ragged], HEADS).peak > estimate("bloom", [tokens], HEADS).peak
    (tokens,) = tokens_of("gpt2", batch=2, pos=6)
    ragged = padded([tokens[0], tokens[1][:2]], "left")
    assert estimate("gpt2", [ragged], HEADS).peak == estimate("gpt2", [tokens], HEADS).peak


def test_the_default_is_a_share_of_the_free_memory_with_a_limit_on_a_cpu(monkeypatch):
    sizes = import_module("interp.sweeps.memory")
    for free, default in ((2**30, 2**28), (2**40, sizes.MOST_ON_CPU)):
        monkeypatch.setattr(sizes, "free_bytes", lambda _, free=free: free)
        assert Budget.of(MODEL, None).nbytes == default
        assert Budget.of(MODEL, 2**35).nbytes == 2**35


def test_files_that_a_container_has_read_do_not_count_as_used(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_free_in_system", lambda: 10**12)
    cpu = torch.device("cpu")
    assert memory.free_bytes(cpu) == 10**12
    for name, content in (
        ("memory.max", "1000\n"),
        ("memory.current", "990\n"),
        ("memory.stat", "anon 200\ninactive_file 700\nactive_file 90\n"),
    ):
        (tmp_path / name).write_text(content)
    assert memory.free_bytes(cpu) == 710
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_bytes(cpu) == 10**12
