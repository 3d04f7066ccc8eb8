"""The notebooks on a pretrained model run; they assert what they claim."""

import pytest

from tools.notebook_pages import NOTEBOOKS, REAL, executed

PATHS = sorted((NOTEBOOKS / REAL).glob("*.ipynb"))


@pytest.mark.real
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_it_runs(path):
    executed(path)
