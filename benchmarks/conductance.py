"""Time of the conductance of every edge, against one forward and backward per step.

The metric is the difference of two logits at the last position; the path leads from the embeddings
of some prompts to those of others. The baseline is the minimum that gradients along such a path
take: forwards of our model and backwards to the stream before the first block, without recording.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

import interp
from benchmarks.bench import Bench, Makers
from benchmarks.patching import difference, other_prompts
from benchmarks.sweeps import LastResult
from benchmarks.table import Mark, Row
from benchmarks.timing import Work
from interp.metrics import measure

STEPS = 10
CONDUCTANCE = Mark(1.3)
AGAINST = f"{STEPS} forwards and backwards"


def conductance(bench: Bench) -> Iterator[Row]:
    """The scores of all edges along a path of ten steps."""
    setting, graph = bench.setting, interp.computation_graph(bench.ours.default)
    tokens = setting.tokens(*setting.prompts)
    other, results = other_prompts(bench, tokens), dict[str, LastResult]()
    makers = _makers(bench, tokens, other, results)
    timed = bench.timed(makers, rounds=setting.long_rounds, warmup=min(1, setting.warmup))
    work = f"conductance of {len(graph.edges)} edges, {STEPS} steps"
    row = Row(
        section="conductance",
        work=f"{work}, {'×'.join(map(str, tokens.shape))}",
        kernel="default",
        against=AGAINST,
        mark=bench.mark(cpu=CONDUCTANCE),
        note=_note(bench.ours.default, tokens, other, results),
    )
    yield bench.row(row, timed, "scores", "stream")
    by_weights = replace(row, against=f"{AGAINST} to all weights", mark=None, note="")
    yield bench.row(by_weights, timed, "scores", "weights")


def scored(model: interp.Transformer, tokens: Tensor, other: Tensor) -> Callable[[], Tensor]:
    """Conductance of all edges, ``[edge prompt]``."""
    from analyses.methods.attribution import Path, edge_scores  # noqa: PLC0415 - imports pandas

    graph = interp.computation_graph(model)
    clean, corrupt = [model.batch(tokens)], [model.batch(other)]

    def work() -> Tensor:
        path = Path.between(model, graph, clean, corrupt, difference())
        return edge_scores(path, graph, "conductance", steps=STEPS, tolerance=None).scores

    return work


def passes(model: interp.Transformer, tokens: Tensor, by: list[Tensor]) -> Work:
    """Plain forwards, each with a backward to some of the weights.

    A backward to the position embeddings passes through the stream of every layer, but computes no
    gradient with respect to a layer's weights.
    """
    batch = model.batch(tokens)

    @torch.enable_grad()
    def work() -> None:
        for _ in range(STEPS):
            total = measure(difference(), model(tokens), batch).sum()
            torch.autograd.grad(total, by)

    return work


def _makers(bench: Bench, tokens: Tensor, other: Tensor, results: dict[str, LastResult]) -> Makers:
    ours = bench.ours

    def make_scores() -> Work:
        results["scores"] = LastResult(scored(ours["default"], tokens, other))
        return results["scores"]

    return {
        "scores": make_scores,
        "stream": lambda: passes(ours["default"], tokens, [ours["default"].W_pos]),
        "weights": lambda: passes(ours["default"], tokens, [*ours["default"].parameters()]),
    }


@torch.no_grad()
def _note(
    model: interp.Transformer, tokens: Tensor, other: Tensor, results: dict[str, LastResult]
) -> str:
    """How far the sum of the scores of edges to the logits is from the change of the metric."""
    scores = results["scores"].last if "scores" in results else None
    if scores is None:
        return ""
    to_logits = [reader.name == "logits" for _, reader in interp.computation_graph(model).edges]
    clean, corrupt = (
        measure(difference(), model(each), model.batch(each)) for each in (tokens, other)
    )
    change = corrupt - clean
    gap = (scores[torch.tensor(to_logits)].sum(0) - change).abs().max() / change.abs().max()
    return f"edges to the logits sum to the metric's change within {gap.item():.1g} of it"
