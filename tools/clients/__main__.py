"""Compare what clients compute on TransformerLens with what they compute on ``interp.compat``.

``python -m tools.clients NAME PYTHON`` runs the calls of ``tools/clients/NAME_calls.py`` twice with
an interpreter whose environment has the client and TransformerLens: as they are, and after
``interp.compat.install()``. It prints one row for each value, and fails if one differs by more than
the bound.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

BOUND = 1e-5
"""Largest difference, relative to the largest value (or to 1)."""
RUN = """
import sys, warnings
from importlib import import_module
import torch
warnings.simplefilter("ignore")
client, on, path = sys.argv[1:]
if on == "interp.compat":
    from interp import compat
    compat.install()
torch.set_num_threads(1)
calls = import_module(f"tools.clients.{client}_calls")
values = {name: torch.as_tensor(value).detach().clone() for name, value in calls.results()}
import transformer_lens
values["module"] = str(type(transformer_lens))
torch.save(values, path)
"""


def values_on(client: str, python: str, on: str) -> dict[str, torch.Tensor]:
    """What a client computes on one of the two."""
    root = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "values.pt"
        command = [python, "-c", RUN, client, on, str(path)]
        environment = {**os.environ, "PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1"}
        subprocess.run(command, check=True, cwd=root, env=environment)
        return torch.load(path, weights_only=True)


def main(client: str, python: str) -> int:
    """Print the differences; the number of those over the bound."""
    theirs, ours = (values_on(client, python, on) for on in ("transformer_lens", "interp.compat"))
    if ours.pop("module") == theirs.pop("module"):
        raise SystemExit("Both runs used the same library.")
    failed = len(theirs.keys() ^ ours.keys())
    print("| value | shape | largest difference |\n| --- | --- | --- |")
    for name in [*theirs, *(name for name in ours if name not in theirs)]:
        if name not in ours or name not in theirs:
            print(f"| {name} | | only on {'one' if name in ours else 'TransformerLens'} |")
            continue
        expected, actual = theirs[name].double(), ours[name].double()
        if expected.shape != actual.shape:
            failed += 1
            print(f"| {name} | {tuple(expected.shape)} | {tuple(actual.shape)} |")
            continue
        difference = (actual - expected).nan_to_num(posinf=9.0, neginf=9.0).abs()
        largest = float(difference.max()) if difference.numel() else 0.0
        bound = BOUND * max(1.0, float(expected.nan_to_num(0, 0, 0).abs().max()))
        failed += largest > bound
        print(f"| {name} | {tuple(expected.shape)} | {largest:.1e} |")
    print(f"{client}: {len(theirs)} values, {failed} differ by more than {BOUND:g}.")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(*sys.argv[1:3])))
