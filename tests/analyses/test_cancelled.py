"""Cancelling while an analysis is prepared, before the first forward of its sweep."""

from importlib import import_module
from inspect import signature
from typing import get_args

import pytest
from declared import Declared, declarations

from interp import Sweep
from interp.errors import Cancelled
from interp.model.network import Network
from interp.sweeps.worker import Worker

run_module = import_module("interp.execution.run")

WITH_SWEEP = [
    declared
    for declared in declarations().values()
    if "resume" in (parameters := signature(declared.analysis, eval_str=True).parameters)
    and Sweep in get_args(parameters["resume"].annotation)
]


def counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The forwards of runs and the jobs of sweeps, in order, as they are computed."""
    seen = list[str]()
    for name in ("execute", "execute_measured"):
        compute = getattr(run_module, name)

        def counted(model: Network, *arguments: object, compute=compute) -> object:
            seen.append("forward")
            return compute(model, *arguments)

        monkeypatch.setattr(run_module, name, counted)
    work = Worker.__call__

    def worked(worker: Worker, job: object) -> object:
        seen.append("job")
        return work(worker, job)

    monkeypatch.setattr(Worker, "__call__", worked)
    return seen


@pytest.mark.parametrize("declared", WITH_SWEEP, ids=lambda declared: declared.name)
def test_each_forward_of_the_preparation_can_be_the_last(declared: Declared, monkeypatch):
    seen, settings = counting(monkeypatch), {}
    if "rows" in signature(declared.analysis).parameters:
        settings["rows"] = 1
    declared.result_of_call(**settings)
    forwards = seen.index("job")
    assert forwards > 0
    for last in range(1, forwards + 1):
        seen.clear()
        with pytest.raises(Cancelled, match="before the first value was measured"):
            declared.result_of_call(**settings, cancelled=lambda last=last: len(seen) >= last)
        assert seen == ["forward"] * last


def test_analyses_with_a_sweep_are_all_tested():
    names = {declared.name for declared in WITH_SWEEP}
    assert names >= {"ablate", "ablate_heads", "patch_activations", "patch_paths", "erase"}
    assert names >= {"attribute_nodes", "attribute_edges"}
