"""Runs the cells of notebooks, each notebook in a process of its own, without a Jupyter kernel.

A kernel takes seconds to start and to import what all notebooks import. Here a process that has
imported it is forked for each notebook, in which IPython runs the cells as it does in a kernel.
"""

import multiprocessing
import os
from pathlib import Path

from tools.notebook_pages import read_notebook

IMPORTED = ["analyses", "interp", "IPython.core.interactiveshell", "pandas", "plotly.io", "torch"]
"""Modules that are imported once, in the process that is forked."""
SECONDS = 500
"""Time limit of a notebook."""


def runs(path: Path) -> bool:
    """Whether every cell of a notebook runs in time; the error of one that does not is printed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    process = context.Process(target=_run_cells, args=(path,))
    process.start()
    process.join(SECONDS)
    if process.exitcode is None:
        print(f"{path.name} was still running after {SECONDS} s")
        process.kill()
        process.join()
    return process.exitcode == 0


def _run_cells(path: Path) -> None:
    """Run the cells, up to the first that raises, which ends the process with 1."""
    import plotly.io  # noqa: PLC0415 - this module is imported by a process that needs none of these
    from IPython.core.interactiveshell import InteractiveShell  # noqa: PLC0415 - likewise
    from traitlets.config import Config  # noqa: PLC0415 - likewise

    os.chdir(path.parent)
    plotly.io.renderers.default = "plotly_mimetype"  # as in a kernel: a figure becomes JSON
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config, colors="nocolor")
    for cell in read_notebook(path)["cells"]:
        if cell["cell_type"] == "code" and not shell.run_cell("".join(cell["source"])).success:
            raise SystemExit(1)
