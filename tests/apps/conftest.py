"""The command line as its users meet it, and one ablation that several tests look at."""

import json
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, sync_playwright
from typer.testing import CliRunner, Result

from analyses import Ablation
from apps.cli import app
from interp.execution.provenance import Provenance
from tools.browser import LAUNCHED, Served, described, served


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails beside a visitor's page prints what was on it, and the server's log."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    if report.when == "call" and report.failed and "visitor" in arguments:
        text = described(arguments["visitor"].page, arguments["server"])
        report.sections.append(("explorer", text))
    return report


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_frozen() -> Iterator[None]:
    """A model that is loaded does not have all objects of all tests visited, a second each time.

    ``test_offered.py`` tests what is frozen.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("apps.explorer.offered.freeze_lasting_objects", lambda: None)
        patch.setattr("apps.explorer.jobs.freeze_imported", lambda: None)
        yield


@pytest.fixture(scope="session")
def command() -> Callable[..., Result]:
    """Run ``interp`` with some words."""
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """A file of three prompts that the model can read."""
    file = tmp_path / "prompts.jsonl"
    rows = [("abcdab", "c", "d"), ("xyzxy", "z", "x"), ("kqk", "q", "k")]
    lines = [dict(zip(("text", "target", "distractor"), row, strict=True)) for row in rows]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    return file


@pytest.fixture
def finding() -> Callable[..., Ablation]:
    """A made-up result: clean values, and the effect of each head of a single layer on each."""

    def make(
        effects: list[list[float]], *, model: str = "made-up", agreement: float | None = None
    ) -> Ablation:
        effect = torch.tensor([effects], dtype=torch.float64)
        clean = torch.full((effect.shape[-1],), 2.0, dtype=torch.float64)
        provenance = Provenance(
            model=model,
            config="c",
            weights="w",
            tokens="t",
            edits=(),
            dtype="float64",
            device="cpu",
            kernel="auto",
            products="default",
            precision="ieee",
            seed=0,
            versions={"python": "3"},
            agreement=agreement,
        )
        names = tuple(f"L0H{head}" for head in range(len(effects)))
        return Ablation(
            clean=clean,
            ablated=clean + effect,
            units="heads",
            cells={"layer": (0,) * len(names), "head": (*range(len(names)),), "name": names},
            members=tuple((name,) for name in names),
            metric="loss",
            unit="nats",
            method="mean",
            part="z",
            provenance=provenance,
        )

    return make


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser, for as long as tests need one.

    It has a profile, so that visits one after another load and compile the same code once.
    """
    with sync_playwright() as playwright:
        folder = tmp_path_factory.mktemp("profile")
        profile = playwright.chromium.launch_persistent_context(folder, **LAUNCHED)
        profile.pages[0].close()
        assert profile.browser is not None
        yield profile.browser
        profile.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The explorer of all tests that need no server of their own; it begins with this model."""
    with served("induction-by-hand", folder=tmp_path_factory.mktemp("explorer")) as running:
        yield running
