"""What happens to processes that hold a model together: a program for torchrun.

    torchrun --nproc-per-node 2 tests/scale/scenes_on_ranks.py FOLDER SCENE …

Writes what a rank saw to FOLDER/RANK.json.
"""

import copy
import json
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from architectures import build, build_new, distance, tokens_of
from torch.distributed.device_mesh import init_device_mesh

import interp
from interp import edits, metrics
from interp.errors import InterpError
from interp.model import KVCache
from interp.tensor_parallel import Ranks, block_bytes, ranks

TIMEOUT = 20.0
GRACE = 1.0
"""Seconds that a rank waits for the reports of others before it names those that do not answer."""
DIVIDED = ["q", "k", "v", "rot_q", "rot_k", "z", "pattern", "pre", "gate", "post"]
RANK = int(os.environ["RANK"])


def refusal(call: Any) -> str:
    """The error of a call, or nothing."""
    try:
        call()
    except InterpError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def traffic(_: Path) -> dict[str, object]:
    """Bytes of a forward of 3 × 5 tokens, and of one in which heads are edited."""
    model, tokens = interp.parallel(build("gpt2")), tokens_of("gpt2", batch=3, pos=5)[0]
    model.ranks.sent.clear()
    model(tokens)
    plain = dict(model.ranks.sent)
    model.ranks.sent.clear()
    interp.run(model, tokens, edits=[edits.zero("z", layer=0, head=1)])
    expected = block_bytes(model.config, 3, 5, torch.float64) * 2  # of two layers
    attn: Any = model.stacks[0].block(0).attn
    z_bytes = 3 * 5 * attn.heads.largest * attn.d_head * 8
    sent = {"plain": plain, "edited": dict(model.ranks.sent)}
    return {**sent, "of blocks": expected, "of z": z_bytes}


def generation(_: Path) -> dict[str, object]:
    """Texts of ranks and of one process, the heads of the KV cache, and bytes of each token."""
    whole, tokens = build("llama"), tokens_of("llama", batch=3, pos=5)[0]
    model = interp.parallel(whole)
    changes = [edits.scale("z", 3.0, layer=0, head=1)]
    extend, heads = KVCache.extend, set[int]()

    def extended(cache: Any, owner: Any, k: torch.Tensor, v: torch.Tensor) -> Any:
        heads.update([k.shape[2], v.shape[2]])
        return extend(cache, owner, k, v)

    def texts(**options: Any) -> list[torch.Tensor]:
        with mock.patch.object(KVCache, "extend", extended):
            text = model.generate(tokens, max_new_tokens=6, stop=(), **options)
        return [text, whole.generate(tokens, max_new_tokens=6, stop=(), **options)]

    model.ranks.sent.clear()
    ours, theirs = texts()
    sent = dict(model.ranks.sent)
    ours_edited, theirs_edited = texts(edits=changes)
    return {
        "same": [torch.equal(ours, theirs), torch.equal(ours_edited, theirs_edited)],
        "edited is another": not torch.equal(theirs, theirs_edited),
        "heads": sorted(heads),
        "sent": sent,
        "of blocks": block_bytes(model.config, 3, 5 + 5, torch.float64) * 2,
    }


def recording(files: Path) -> dict[str, object]:
    """What a rank stores of a recording, what it sends for a read, and what it then has."""
    whole, tokens = build("llama"), tokens_of("llama", batch=3, pos=5)[0]
    model = interp.parallel(whole)
    sent = model.ranks.sent
    ours, theirs = (interp.run(m, tokens, record="all").cache for m in (model, whole))
    cache, all_heads = (interp.run(m, tokens, store=DIVIDED).cache for m in (model, whole))
    bytes_of_run, estimated = cache.nbytes, interp.estimate(model, tokens, store=DIVIDED).kept
    sent.clear()
    described, before = str(cache), dict(sent)
    read = cache["z", 0]
    of_read, again = dict(sent), cache["z", 0]
    with mock.patch.object(Ranks, "join", lambda _, y, *__: y):
        part = cache["z", 0]
    ours.save(files / "run.cache")
    loaded = [interp.load_cache(files / "run.cache", m) for m in (model, whole)]
    every = {"read": ours, "copied": copy.copy(ours), "on ranks": loaded[0], "on one": loaded[1]}
    joined_bytes = cache.keep("all").nbytes
    sent.clear()
    kept_read, of_kept = distance(cache["pattern", 1], all_heads["pattern", 1]), dict(sent)
    differences = {
        name: max(distance(some[place], theirs[place]) for place in theirs)
        for name, some in every.items()
    }
    return {
        "bytes": [bytes_of_run, all_heads.nbytes, joined_bytes],
        "estimated": estimated - interp.estimate(model, tokens).kept,
        "described": [described.count("part stored"), before],
        "shapes": [list(part.shape), list(read.shape)],
        "sent": [of_read["all_gather"], read.nbytes, of_kept],
        "again": torch.equal(read, again),
        "differences": {**differences, "kept": kept_read},
        "rounded": torch.equal(ours.to(torch.float32)["q"], ours["q"].float()),
        "other places": refusal(lambda: ours["k" if RANK else "q", 0]),
        "no folder": refusal(lambda: ours.save(files / "nowhere" / "run.cache")),
        "pickled": refusal(lambda: pickle.dumps(ours)),
    }


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
    """Rank 1 ends while rank 0 reads what both recorded."""
    model, tokens = interp.parallel(build("gpt2"), timeout=TIMEOUT), tokens_of("gpt2", 2, 5)[0]
    cache = interp.run(model, tokens, record="z").cache
    if RANK == 1:
        os._exit(0)
    start = time.monotonic()
    error = refusal(lambda: cache["z", 0])
    return {"error": error, "in time": time.monotonic() - start < 2 * TIMEOUT}


def late(files: Path) -> dict[str, object]:
    """Rank 1 does something else until rank 0 has given up."""
    model, tokens = interp.parallel(build("gpt2"), timeout=2.0), tokens_of("gpt2", 2, 5)[0]
    if RANK == 1:
        while not (files / "0.json").exists():
            time.sleep(0.1)
        return {}
    return {"error": refusal(lambda: model(tokens))}


def _changed(model: interp.Transformer, by: int) -> interp.Transformer:
    """The model with another final norm."""
    with torch.no_grad():
        next(w for name, w in model.named_parameters() if "final_norm" in name).add_(by)
    return model


EVERY = (traffic, generation, recording, folder, harvest, mesh, refusals, dead, late)
SCENES = {scene.__name__: scene for scene in EVERY}

if __name__ == "__main__":
    torch.set_num_threads(1)
    ranks.GRACE = GRACE
    files = Path(sys.argv[1])
    seen: dict[str, object] = {}
    for name in sys.argv[2:]:
        seen[name] = SCENES[name](files)
        (files / f"{RANK}.json").write_text(json.dumps(seen, indent=1), encoding="utf-8")
    os._exit(0)  # as on_ranks does
