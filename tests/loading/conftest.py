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
    """A copy of such a folder, by its kind; a second one takes the place of the first."""

    def copy(kind: str) -> Folder:
        path = tmp_path / f"a-{kind}"
        shutil.rmtree(path, ignore_errors=True)
        return Folder(shutil.copytree(saved[kind], path))

    return copy


@pytest.fixture
def folder(copied: Callable[[str], Folder]) -> Folder:
    """A copy of a GPT-2 folder."""
    return copied("gpt2")
