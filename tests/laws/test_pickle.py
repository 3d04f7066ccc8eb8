"""Exceptions, the inputs of sweeps and results survive pickling.

Processes that share work exchange all of these: an exception that can't be unpickled ends the pool.
"""

import importlib
import pickle
import pkgutil
from collections.abc import Iterator

import pytest
import torch
from architectures import assert_identical, build, tokens_of

import analyses
import apps
import interp
from analyses import PartialScan, ScanInterrupted
from interp import Interrupted, Sweep, edits, metrics, sweep
from interp.edits import KINDS as KINDS_OF_EDIT
from interp.edits.edit import Edit
from interp.metrics import KINDS as KINDS_OF_METRIC
from interp.metrics import Metric

MODEL = build("gpt2")
TOKENS = tokens_of("gpt2", batch=2, pos=4)[0]
VALUES = torch.linspace(-1, 1, 4, dtype=torch.float64)


def again(value: object) -> object:
    return pickle.loads(pickle.dumps(value))


def double(z: torch.Tensor, hook: object) -> torch.Tensor:
    return 2 * z


EDITS: list[Edit] = [
    edits.zero("z", layer=1, head=(0, -1), pos=2),
    edits.mean("z", layer=0),
    edits.mean("z", VALUES, layer=0),
    edits.resample("z", layer=0, seed=3),
    edits.scale(("scale", 0, "ln1"), 0.5),
    edits.add("z", VALUES, layer=0, batch=1),
    edits.replace("logits", 2.0, unit=5),
    edits.edge("L0H1", "L1H0.q", VALUES.repeat(2), pos=2),
    edits.apply("z", double, layer=0),
]
METRICS: list[Metric] = [
    metrics.loss(),
    metrics.masked_loss(TOKENS),
    metrics.logit(1),
    metrics.logit_diff((1, 2), 3, pos=0),
    metrics.prob(2, pos="mask"),
    metrics.accuracy(4),
    metrics.kl(torch.zeros(2, 4, 13)),
    metrics.kl(torch.zeros(2, 4, 13), pos=-1),
]


SCRIPTS = ("__main__", "apps.explorer_script")
"""Modules that run when they are imported; the page would leave Streamlit state behind."""


def exceptions() -> Iterator[type[BaseException]]:
    """Every exception that one of the packages defines."""
    for package in (interp, analyses, apps):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith(SCRIPTS):
                module = importlib.import_module(info.name)
                classes = (value for value in vars(module).values() if isinstance(value, type))
                for kind in classes:
                    if issubclass(kind, BaseException) and kind.__module__ == info.name:
                        yield kind


EXCEPTIONS = sorted(set(exceptions()), key=lambda kind: kind.__qualname__)


def part_of_a_sweep() -> Sweep:
    heads = [edits.zero("z", layer=layer, head=head) for layer in (0, 1) for head in range(3)]
    stop = iter([False, True]).__next__
    return sweep(MODEL, TOKENS, heads, METRICS[3], memory=30_000, cancelled=stop)


def part_of_a_scan() -> PartialScan:
    return PartialScan({"model": "gpt2"}, {"counts": torch.tensor([3])})


PARTS = {Interrupted: part_of_a_sweep, ScanInterrupted: part_of_a_scan}
"""What the exceptions of interrupted work hold."""


@pytest.mark.parametrize("kind", EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_an_exception_is_unpickled_with_what_it_holds(kind):
    part = PARTS.get(kind)
    error = kind("what came") if part is None else kind(part())
    if part is None:
        error.result = {"done": 3}
    loaded = again(error)
    assert type(loaded) is kind
    assert str(loaded) == str(error)
    assert loaded.args == error.args
    if kind is Interrupted:
        assert_identical(loaded.result.values, error.result.values)
    elif kind is ScanInterrupted:
        assert_identical(loaded.result.tensors["counts"], error.result.tensors["counts"])
    else:
        assert loaded.result == error.result


def test_the_exceptions_are_found():
    assert {interp.InterpError, Interrupted, interp.errors.HookFailed} <= set(EXCEPTIONS)


@pytest.mark.parametrize("value", [*EDITS, *METRICS], ids=lambda value: value.kind)
def test_edits_and_metrics_are_unpickled_equal(value):
    loaded = again(value)
    assert loaded == value
    assert hash(loaded) == hash(value)
    if isinstance(value, Edit):
        assert loaded.digest == value.digest


def test_every_kind_is_among_them():
    assert {edit.kind for edit in EDITS} == set(KINDS_OF_EDIT)
    assert {metric.kind for metric in METRICS} == set(KINDS_OF_METRIC)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.kind)
def test_metrics_are_written_as_json_and_read_back_equal(metric):
    assert metrics.from_dict(metric.to_dict()) == metric


def test_a_sweep_is_unpickled_and_resumed():
    part = part_of_a_sweep()
    loaded = again(part)
    assert isinstance(loaded, Sweep)
    assert loaded.placed == part.placed
    assert loaded.notes == part.notes
    heads = [edit for (edit,) in part.edits]
    whole = sweep(MODEL, TOKENS, heads, METRICS[3], resume=loaded)
    assert whole.complete
    assert_identical(whole.values[part.done], part.values[part.done])
