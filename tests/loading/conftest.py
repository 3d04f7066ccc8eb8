"""Fixtures: folders that ``transformers`` wrote, and copies that tests change."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from foreign_folders import MODELS, Folder


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each kind of model, as ``transformers`` writes it; read-only."""
    root = tmp_path_factory.mktemp("saved")
    for kind, make in MODELS.items():
        make().save_pretrained(root / kind)
    return {kind: root / kind for kind in MODELS}


@pytest.fixture
def copied(saved: dict[str, Path], tmp_path: Path) -> Callable[[str], Folder]:
    """Makes a copy of the folder of a kind."""
    return lambda kind: Folder(Path(shutil.copytree(saved[kind], tmp_path / f"a-{kind}")))


@pytest.fixture
def folder(copied: Callable[[str], Folder]) -> Folder:
    """A copy of a GPT-2 folder."""
    return copied("gpt2")
