"""What every test shares: repeatable examples, no downloads, and no silent loss of tests."""

import gc
import os
import shutil
from collections.abc import Generator
from importlib import import_module
from importlib.util import find_spec

import jaxtyping
import pytest
import torch
from hypothesis import settings

# Missing on a machine that only runs the GPU tests: nothing is checked there.
annotation_checks = import_module("annotation_checks") if find_spec("beartype") else None
if annotation_checks:
    jaxtyping.jaxtyped = annotation_checks.checked

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# The models here are tiny: two threads would mostly wait for one another, and in the processes that
# tests start too. `make test-rounding` has more of them, which add numbers in another order.
THREADS = os.environ.get("TEST_THREADS", "1")
torch.set_num_threads(int(THREADS))
os.environ["OMP_NUM_THREADS"] = THREADS

# A test that would download a model fails at once, the same with and without a network.
os.environ["HF_HUB_OFFLINE"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the agreement tests, which pytest must know before collecting them."""
    parser.addoption(
        "--write-models",
        action="store_true",
        help="write the errors found into models.md",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse options that would write a part of a table only."""
    if config.getoption("--write-models") and config.getoption("numprocesses", None):
        raise pytest.UsageError("--write-models needs one process, which sees all errors: -n 0")


ON_REQUEST = ("nightly", "notebook", "package", "site")
"""Markers of tests that run only where the marker is named."""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage among what tests make: not while they are collected, nor in what stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_runtest_setup() -> None:
    """In each test, number the calls of every function anew: see annotation_checks."""
    if annotation_checks:
        annotation_checks.begin_test()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that cannot run here or run only on request; those in a browser are slow."""
    for marker in ON_REQUEST:
        if marker not in config.option.markexpr:
            marked = {item for item in items if item.get_closest_marker(marker)}
            config.hook.pytest_deselected(items=list(marked))
            items[:] = [item for item in items if item not in marked]

    if not torch.cuda.is_available():
        needs_gpu = {item for item in items if item.get_closest_marker("gpu")}
        config.hook.pytest_deselected(items=list(needs_gpu))
        items[:] = [item for item in items if item not in needs_gpu]

    browser_tests = [item for item in items if item.get_closest_marker("browser")]
    for item in browser_tests:
        item.add_marker(pytest.mark.slow)
    # Where the whole suite is promised to run, a missing browser must fail, not hide tests.
    if CHROMIUM is None and "CI" not in os.environ:
        skip = pytest.mark.skip(reason="no Chromium on the PATH: install the package chromium")
        for item in browser_tests:
            item.add_marker(skip)
