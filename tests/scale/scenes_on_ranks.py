"""What happens to processes that hold a model together: a program for torchrun.

    torchrun --nproc-per-node 2 tests/scale/scenes_on_ranks.py FOLDER SCENE …

Writes what a rank saw to FOLDER/RANK.json.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from architectures import build, build_new, distance, tokens_of
from torch.distributed.device_mesh import init_device_mesh

import interp
from interp import edits, metrics
from interp.errors import InterpError
from interp.tensor_parallel import block_bytes

TIMEOUT = 20.0
RANK = int(os.environ["RANK"])


def refusal(call: Any) -> str:
    """The error of a call, or nothing."""
    try:
        call()
    except InterpError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def traffic(_: Path) -> dict[str, object]:
    """Bytes of a forward of 3 × 5 tokens, and of one in which heads are read."""
    model, tokens = interp.parallel(build("gpt2")), tokens_of("gpt2", batch=3, pos=5)[0]
    model.ranks.sent.clear()
    model(tokens)
    plain = dict(model.ranks.sent)
    interp.run(model, tokens, record="z")
    expected = block_bytes(model.config, 3, 5, torch.float64) * 2  # of two layers
    return {"plain": plain, "recorded": dict(model.ranks.sent), "of blocks": expected}


def folder(files: Path) -> dict[str, object]:
    """A model that is read from a folder, and what this rank holds of it."""
    whole = build("llama")
    model = interp.parallel(files / "model")
    tokens = tokens_of("llama", batch=2, pos=5)[0]
    return {
        "difference": distance(model(tokens), whole(tokens)),
        "held": sum(weight.numel() for weight in model.parameters()),
        "whole": sum(weight.numel() for weight in whole.parameters()),
        "description": str(model.description()),
    }


def harvest(files: Path) -> dict[str, object]:
    """Activations at all positions of some texts, whose shards rank 0 writes."""
    whole, tokens = build("gpt2"), tokens_of("gpt2", batch=6, pos=5)[0]
    places = ["resid_pre", "z"]
    stored = interp.harvest(interp.parallel(whole), tokens, places, files / "rows", shard_rows=7)
    cache = interp.run(whole, tokens, record=places).cache
    rows = stored.rows(range(stored.n_rows))
    names = [place.name for place in stored.places]
    again = interp.harvest(interp.parallel(whole), None, places, files / "rows", shard_rows=7)
    return {
        "difference": max(distance(rows[name], cache[name].flatten(0, 1)) for name in names),
        "shards": stored.index.n_shards,
        "again": again.n_rows,
    }


def mesh(_: Path) -> dict[str, object]:
    """A mesh of two dimensions, and one of its dimensions."""
    whole, tokens = build("gpt2"), tokens_of("gpt2", batch=2, pos=5)[0]
    interp.parallel(whole)  # makes the process group
    grid = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "heads"))
    one = interp.parallel(whole, grid["heads"])
    return {
        "two": refusal(lambda: interp.parallel(whole, grid)),
        "number": refusal(lambda: interp.parallel(whole, 2)),  # pyright: ignore[reportArgumentType]
        "difference": distance(one(tokens), whole(tokens)),
    }


def refusals(_: Path) -> dict[str, object]:
    """What a model of which each process has a share refuses."""
    model, tokens = interp.parallel(build("gpt2")), tokens_of("gpt2", batch=2, pos=5)[0]
    case = edits.zero("z", layer=0, head=1)
    misspelt = [edits.zero("z", layer=0, head=9)]
    return {
        "save": refusal(lambda: model.save("anywhere")),
        "processed": refusal(model.processed),
        "packed": refusal(lambda: interp.packed(model)),
        "parallel": refusal(lambda: interp.parallel(model)),
        "options": refusal(lambda: interp.parallel(build("gpt2"), device="cpu")),
        "another model": refusal(lambda: interp.parallel(build("llama" if RANK else "gpt2"))),
        "other weights": refusal(lambda: interp.parallel(_changed(build_new("gpt2"), by=RANK))),
        "misspelt": refusal(lambda: interp.run(model, tokens, edits=misspelt)),
        "after": float(interp.sweep(model, tokens, [case], metrics.logit(1)).values[0, 0]),
    }


def dead(_: Path) -> dict[str, object]:
    """Rank 1 ends while rank 0 waits for it."""
    model, tokens = interp.parallel(build("gpt2"), timeout=TIMEOUT), tokens_of("gpt2", 2, 5)[0]
    if RANK == 1:
        os._exit(0)
    start = time.monotonic()
    error = refusal(lambda: model(tokens))
    return {"error": error, "in time": time.monotonic() - start < 2 * TIMEOUT}


def late(_: Path) -> dict[str, object]:
    """Rank 1 does something else for longer than the timeout."""
    model, tokens = interp.parallel(build("gpt2"), timeout=2.0), tokens_of("gpt2", 2, 5)[0]
    if RANK == 1:
        time.sleep(12)
        return {}
    return {"error": refusal(lambda: model(tokens))}


def _changed(model: interp.Transformer, by: int) -> interp.Transformer:
    """The model with another final norm."""
    with torch.no_grad():
        next(w for name, w in model.named_parameters() if "final_norm" in name).add_(by)
    return model


SCENES = {scene.__name__: scene for scene in (traffic, folder, harvest, mesh, refusals, dead, late)}

if __name__ == "__main__":
    torch.set_num_threads(1)
    files = Path(sys.argv[1])
    seen: dict[str, object] = {}
    for name in sys.argv[2:]:
        seen[name] = SCENES[name](files)
        (files / f"{RANK}.json").write_text(json.dumps(seen, indent=1), encoding="utf-8")
    os._exit(0)  # as on_ranks does
