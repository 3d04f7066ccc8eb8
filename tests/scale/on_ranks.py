"""Compares sharded models with whole ones, on every rank: a program for torchrun.

    torchrun --nproc-per-node 2 tests/scale/on_ranks.py FOLDER ["NAME DTYPE" …]

Writes the largest difference of each comparison of each architecture, in a dtype, to
FOLDER/RANK.json. An architecture that these ranks do not divide has the error instead.
"""

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from architectures import ARCHITECTURES, GENERATORS, as_where, build, distance, tokens_of
from torch import distributed as dist

import interp
from interp import edits, metrics
from interp.errors import InvalidInput
from interp.model import weight_hash
from interp.tensor_parallel import Ranks
from interp.tensor_parallel.parts import LOCAL
from interp.tensor_parallel.sharded import plan_of

Differences = dict[str, float]
DIVIDED = {"head", "kv_head", "d_mlp", "expert"}
"""Axes that are divided among ranks."""
DIFFERENTIATED: dict[str, Any] = {"record": "all", "gradients_of": metrics.logit(1)}
"""Options of a run that also has the gradients of all places."""


def of_runs(sharded: interp.Transformer, whole: interp.Transformer, tokens: Any) -> Differences:
    """Logits, all places and their gradients: of plain, edited and differentiated runs."""
    last = whole.stacks[-1]
    stack: dict[str, Any] = {} if len(whole.stacks) == 1 else {"stack": last.name}
    layer = len(last.blocks) - 1
    changed = [
        edits.zero("z", layer=0, head=1, **stack),
        edits.scale("pattern", 0.5, layer=layer, head=0, **stack),
        edits.zero("q", layer=layer, head=2, **stack),
    ]
    if interp.Place(interp.Point.POST) in last.block(layer).layout():
        changed.append(edits.zero("post", layer=layer, unit=1, **stack))
    everywhere = [
        edits.apply(as_where(place), _weighted(axes[0]))
        for place in whole.layout
        if (place.layer, place.stack) == (layer, last.name_in_places)
        and (axes := [n for n, axis in enumerate(place.point.axes) if axis in DIVIDED])
    ]
    kinds: dict[str, dict[str, Any]] = {
        "recorded": {"record": "all"},
        "explicit": {"record": "pattern", "kernel": "explicit"},
        "edited": {"record": "all", "edits": changed},
        "edited everywhere": {"record": "all", "edits": everywhere},
        "differentiated": DIFFERENTIATED,
        "edited and differentiated": DIFFERENTIATED | {"edits": everywhere},
    }
    differences = {"plain": distance(sharded(*tokens), whole(*tokens))}
    sharded.ranks.sent.clear()
    plain, sent = interp.run(sharded, *tokens), dict(sharded.ranks.sent)
    for kind, options in kinds.items():
        sharded.ranks.sent.clear()
        ours = interp.run(sharded, *tokens, **options)
        if kind == "recorded":
            is_inert = torch.equal(plain.require_logits(), ours.require_logits())
            differences["recorded, not inert"] = float(not is_inert)
            differences["exchanged"] = float(dict(sharded.ranks.sent) != sent)
        theirs = interp.run(whole, *tokens, **options)
        pairs = [(ours.require_logits(), theirs.require_logits())]
        pairs += [(ours.cache[place], theirs.cache[place]) for place in theirs.cache]
        differences[kind] = max(distance(*pair) for pair in pairs)
        if "gradients_of" in options:
            caches = (ours.cache, theirs.cache)
            differences[f"gradients, {kind}"] = of_gradients(*caches, whole, tokens, options)
    return differences


def _weighted(axis: int) -> Any:
    """Multiplies the entries along an axis by different numbers."""

    def weighted(x: torch.Tensor, _: Any) -> torch.Tensor:
        factors = torch.linspace(0.7, 1.3, x.shape[axis], dtype=x.dtype)
        return x * factors.view([-1 if n == axis else 1 for n in range(x.ndim)])

    return weighted


def of_gradients(
    ours: interp.Cache,
    theirs: interp.Cache,
    whole: interp.Transformer,
    tokens: Any,
    options: Any,
) -> float:
    """How much farther gradients of ranks are from those in float64 than gradients of one process.

    In float64, how far they are from those of one process.
    """
    expected = theirs
    if whole.W_E.dtype != torch.float64:
        double = [x.double() if x.is_floating_point() else x for x in tokens]
        expected = interp.run(copy.deepcopy(whole).double(), *double, **options).cache
    names = [(f"{place.point.label}_grad", *as_where(place)[1:]) for place in expected]
    of_ours, of_theirs = (
        max(distance(cache[name].double(), expected[name]) for name in names)
        for cache in (ours, theirs)
    )
    return of_ours - of_theirs


def of_parts(sharded: interp.Transformer, whole: interp.Transformer, tokens: Any) -> Differences:
    """Whether a rank stores the queries and keys of its heads: copies, where there are few keys."""
    last = whole.stacks[-1]
    attn: Any = sharded.stacks[-1].block(0).attn
    heads = attn.local.n_heads / attn.n_heads
    shares = {"q": heads, "k": attn.local.kv_heads / attn.kv_heads, "z": heads}
    wrong = {"bytes": 0.0, "bytes, edited": 0.0, "bytes, differentiated": 0.0}
    for name, share in shares.items():
        place = interp.Place(interp.Point[name.upper()], 0, stack=last.name_in_places)
        has_copies = name == "k" and attn.keys.has_copies  # which have a part of the gradient each
        kinds: dict[str, tuple[float, dict[str, Any]]] = {
            "bytes": (share, {}),
            "bytes, edited": (share, {"edits": [edits.scale(as_where(place), 0.5)]}),
            "bytes, differentiated": (
                1.0 if has_copies else share,
                {"gradients_of": metrics.logit(1)},
            ),
        }
        for kind, (stored, options) in kinds.items():
            ours, theirs = (
                interp.run(m, *tokens, record=[place], **options).cache for m in (sharded, whole)
            )
            wrong[kind] += abs(ours.nbytes - theirs.nbytes * stored)
    return wrong


def of_weight_gradients(
    sharded: interp.Transformer, whole: interp.Transformer, tokens: Any
) -> Differences:
    """Gradients with respect to weights, of a number that reads the logits and a cache."""
    last = whole.stacks[-1]
    places = [
        interp.Place(point, len(last.blocks) - 1, stack=last.name_in_places)
        for point in (interp.Point.PATTERN, interp.Point.K)
    ]
    plan, ranks = plan_of(whole, sharded.ranks), sharded.ranks
    for model in (sharded, whole):
        model.requires_grad_()
        model.zero_grad()
        run = interp.run(model, *tokens, record=places, keep_graph=True)
        read = sum(run.cache[place].square().mean() for place in places)
        (run.require_logits()[..., 1].mean() + read).backward()
    ours = dict(sharded.named_parameters(remove_duplicate=False))
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    for name, weight in whole.named_parameters():
        part, _, attribute = name.rpartition(".")
        split = plan.get(part, {}).get(attribute)
        of_rank = ours[name if split is None else f"{part}.{LOCAL}.{attribute}"]
        if weight.grad is not None and weight.grad.any():
            # An expert to which no token is routed has none.
            computed = torch.zeros_like(of_rank) if of_rank.grad is None else of_rank.grad
            if split is not None:
                computed = ranks.added(computed, split.shares, split.axis)
            pairs.append((computed, weight.grad))
    for model in (sharded, whole):
        model.zero_grad()
        model.requires_grad_(False)
    return {"gradients of weights": max(distance(*pair) for pair in pairs)}


def of_sweep(sharded: interp.Transformer, whole: interp.Transformer, tokens: Any) -> Differences:
    """Values of a sweep of heads at all and at some positions, of patterns, and of a stream."""
    last = whole.stacks[-1]
    stack: dict[str, Any] = {} if len(whole.stacks) == 1 else {"stack": last.name}
    cases = []
    for layer in range(len(last.blocks)):
        heads = last.block(layer).attn.n_heads
        cases += [edits.zero("z", layer=layer, head=head, **stack) for head in range(heads)]
        cases += [edits.zero("q", layer=layer, head=0, pos=2, **stack)]
        cases += [edits.scale("pattern", 0.5, layer=layer, head=heads - 1, **stack)]
        cases += [edits.zero("resid_post", layer=layer, pos=1, **stack)]
    read = tokens[0] if len(tokens) == 1 else tuple(tokens)
    metric = metrics.logit_diff(1, 2)
    ours, theirs = (interp.sweep(model, read, cases, metric) for model in (sharded, whole))
    return {"sweep": distance(ours.values, theirs.values)}


def of_weights(sharded: interp.Transformer, whole: interp.Transformer) -> Differences:
    """Weights that are read by name, products of them, and whether their hash is the same."""
    pairs = [(sharded.W_E, whole.W_E), (sharded.W_U, whole.W_U)]
    for ours, theirs in zip(sharded.stacks, whole.stacks, strict=True):
        for layer in range(len(ours.blocks)):
            a, b = ours.block(layer).attn, theirs.block(layer).attn
            names = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V")
            pairs += [(getattr(a, name), getattr(b, name)) for name in names]
            if not b.has_clip:
                pairs.append((a.S(1).form(), b.S(1).form()))
    alike = weight_hash(sharded) == weight_hash(whole)
    return {"weights": max(distance(*pair) for pair in pairs), "hash": 0.0 if alike else 1.0}


def of_architecture(name: str, dtype: torch.dtype) -> Differences:
    """All comparisons of one architecture."""
    whole, tokens = build(name, dtype=dtype), inputs_of(name, dtype)
    sharded = interp.parallel(whole)
    differences = of_runs(sharded, whole, tokens) | of_sweep(sharded, whole, tokens)
    differences |= of_weights(sharded, whole) | of_parts(sharded, whole, tokens)
    if dtype == torch.float64:
        differences |= of_weight_gradients(sharded, whole, tokens)
    if name in GENERATORS:
        ours, theirs = (model.generate(*tokens, max_new_tokens=3) for model in (sharded, whole))
        differences["generated"] = 0.0 if torch.equal(ours, theirs) else 1.0
    logits = sharded(*tokens).detach()
    every = [torch.empty_like(logits) for _ in range(dist.get_world_size())]
    dist.all_gather(every, logits)
    differences["ranks"] = 0.0 if all(torch.equal(logits, other) for other in every) else 1.0
    return differences


def inputs_of(name: str, dtype: torch.dtype) -> list[Any]:
    """Tokens, or images in the dtype of the model."""
    inputs = tokens_of(name, batch=2, pos=5)
    return [x.to(dtype) if x.is_floating_point() else x for x in inputs]


def without_sums(name: str) -> float:
    """How far the logits are from the right ones if ranks do not add what they compute."""
    whole, tokens = build(name), tokens_of(name, batch=2, pos=5)
    sharded = interp.parallel(whole)
    with mock.patch.object(Ranks, "sum", lambda _, y: y):
        return distance(sharded(*tokens), whole(*tokens))


def main(folder: str, *cases: str) -> None:
    """Compare and write."""
    torch.set_num_threads(1)
    results: dict[str, Differences | str] = {}
    for case in cases or tuple(f"{name} float64" for name in ARCHITECTURES):
        name, dtype = case.split()
        try:
            results[case] = of_architecture(name, getattr(torch, dtype))
        except InvalidInput as error:
            results[case] = str(error)
    results["without sums"] = {"plain": without_sums("gemma2")}
    path = Path(folder) / f"{dist.get_rank()}.json"
    path.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
    # Threads of gloo now and then abort a process at the end of Python, after all is written.
    dist.barrier()
    os._exit(0)
