"""Tensors of a run and of an analysis are freed when nothing refers to them any more.

What refers to itself in a cycle is freed only when Python's garbage collector runs, which counts
objects and not bytes: activations of hundreds of megabytes would stay for many runs.
"""

import json
from pathlib import Path

import pytest
from without_annotation_checks import printed_by


@pytest.mark.slow
def test_runs_and_analyses_leave_no_tensors_to_the_garbage_collector():
    """The converse is a function that calls itself, whose scope has a tensor of 4000 bytes."""
    unfreed = json.loads(printed_by(Path(__file__).with_name("freed.py")))
    assert {name: nbytes for name, nbytes in unfreed.items() if nbytes} == {"a cycle": 4000}
