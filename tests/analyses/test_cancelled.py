"""Cancelling while an analysis is prepared, before the first forward of its sweep."""

from importlib import import_module
from inspect import signature

import pytest
from settings_asked import ASKED, Asked

from interp.errors import Cancelled
from interp.model.network import Network
from interp.sweeps.worker import Worker

run_module = import_module("interp.execution.run")

WITH_SWEEP = [
    asked
    for asked in ASKED
    if {"cancelled", "memory", "resume"} <= signature(asked.analysis).parameters.keys()
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


@pytest.mark.parametrize("asked", WITH_SWEEP, ids=lambda asked: asked.analysis.__name__)
def test_each_forward_of_the_preparation_can_be_the_last(asked: Asked, monkeypatch):
    seen, settings = counting(monkeypatch), {}
    if "rows" in signature(asked.analysis).parameters:
        settings["rows"] = 1
    asked(**settings)
    forwards = seen.index("job")
    assert forwards > 0
    for last in range(1, forwards + 1):
        seen.clear()
        with pytest.raises(Cancelled, match="before the first value was measured"):
            asked(**settings, cancelled=lambda last=last: len(seen) >= last)
        assert seen == ["forward"] * last


def test_analyses_with_a_sweep_are_all_tested():
    names = {asked.analysis.__name__ for asked in WITH_SWEEP}
    assert names >= {"ablate", "ablate_heads", "patch_activations", "patch_paths", "erase"}
    assert names >= {"attribute_nodes", "attribute_edges"}
