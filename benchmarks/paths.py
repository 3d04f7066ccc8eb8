"""Time to patch single edges exactly: a sweep against a loop of forwards with hooks.

In the input of one reader, the output u of one writer is replaced by its output u′ on other
prompts; the norm of that input and everything after it are recomputed. The metric is the difference
of two logits at the last position. With TransformerLens, u′ − u is added to the reader's own copy
of the stream.
"""

import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

import interp
from benchmarks.bench import Bench, Makers
from benchmarks.models import KERNELS
from benchmarks.patching import difference, difference_of, other_prompts
from benchmarks.sweeps import LastResult, gap_note, swept
from benchmarks.table import Mark, Row
from benchmarks.timing import Work
from interp import edits
from interp.edits import Edit
from interp.graph import Graph, Reader, Writer

PATHS = Mark(5, times_less=True)
DRAWN = {"q": 30, "k": 30, "v": 30, "MLP": 6, "logits": 4}
"""Number of edges by the kind of reader: about their proportions in GPT-2, with more rare ones."""

Edges = Sequence[tuple[Writer, Reader]]


def paths(bench: Bench) -> Iterator[Row]:
    """Some edges of all kinds, patched one at a time."""
    setting, graph = bench.setting, interp.computation_graph(bench.ours.default)
    tokens = setting.tokens(*setting.prompts)
    few, edges = drawn(graph, dict.fromkeys(DRAWN, 1)), drawn(graph, DRAWN)
    bench.timed(makers(bench, tokens, few, {}), rounds=1, warmup=0)  # to warm up
    results: dict[str, LastResult] = {}
    timed = bench.timed(makers(bench, tokens, edges, results), rounds=setting.long_rounds, warmup=0)
    for kernel in KERNELS:
        ours = f"sweep, {kernel}"
        row = Row(
            section="paths",
            work=f"{len(edges)} edges patched, {'×'.join(map(str, tokens.shape))}",
            kernel=kernel,
            against="TransformerLens run_with_hooks, use_split_qkv_input",
            mark=bench.mark(cpu=PATHS),
            note=gap_note(results, ours, "lens"),
        )
        yield bench.row(row, timed, ours, "lens")


def drawn(graph: Graph, counts: Mapping[str, int]) -> list[tuple[Writer, Reader]]:
    """Random edges by the kind of reader, except those from biases; the same in every call."""
    generator = random.Random(0)
    chosen: list[tuple[Writer, Reader]] = []
    for kind, n in counts.items():
        edges = [
            (writer, reader)
            for writer, reader in graph.edges
            if reader.name.endswith(kind) and writer.place is not None
        ]
        chosen += generator.sample(edges, min(n, len(edges)))
    return chosen


def makers(bench: Bench, tokens: Tensor, edges: Edges, results: dict[str, LastResult]) -> Makers:
    """The sweep in each kernel, and the loop of hooks; their values are kept in ``results``."""

    def make(name: str, how: Callable[..., Callable[[], Tensor]], *arguments: object) -> Work:
        results[name] = LastResult(how(bench, tokens, edges, *arguments))
        return results[name]

    ours = {f"sweep, {kernel}": (_sweep, kernel) for kernel in KERNELS}
    works = {**ours, "lens": (_lens,)}
    return {name: partial(make, name, *how) for name, how in works.items()}


def _sweep(bench: Bench, tokens: Tensor, edges: Edges, kernel: str) -> Callable[[], Tensor]:
    from analyses.methods.circuits import written  # noqa: PLC0415 - imports pandas

    model = bench.ours[kernel]
    values = written(model, [model.batch(other_prompts(bench, tokens))])
    edited: list[Edit] = [
        edits.edge(writer.name, reader.name, values[writer.name]) for writer, reader in edges
    ]
    return swept(model, tokens, edited, difference())


def _lens(bench: Bench, tokens: Tensor, edges: Edges) -> Callable[[], Tensor]:
    """A loop of ``run_with_hooks``, with outputs from a cache of TransformerLens."""
    model, writers = bench.peers.lens, dict.fromkeys(writer for writer, _ in edges)
    outputs, other_outputs = (
        _written(model, each, writers) for each in (tokens, other_prompts(bench, tokens))
    )
    changes = {writer: other_outputs[writer] - outputs[writer] for writer in writers}

    def patched(writer: Writer, reader: Reader) -> Tensor:
        def add(stream: Tensor, hook: object) -> Tensor:  # noqa: ARG001 - passed by the library
            read = stream if reader.head is None else stream[:, :, reader.head]
            read += changes[writer]
            return stream

        return difference_of(model.run_with_hooks(tokens, fwd_hooks=[(_input(reader), add)]))

    def patch_all() -> Tensor:
        with _separate_inputs(model):
            return torch.stack([patched(*edge) for edge in edges])

    return patch_all


@torch.no_grad()
def _written(
    model: Any,  # noqa: ANN401 - a class of transformer_lens
    tokens: Tensor,
    writers: Mapping[Writer, None],
) -> dict[Writer, Tensor]:
    """The output of each writer, ``[batch pos d_model]``."""
    wanted = ("embed", "hook_z", "hook_mlp_out")
    names = [name for name in model.hook_dict if name.endswith(wanted)]
    _, cache = model.run_with_cache(tokens, names_filter=names)

    def term(writer: Writer) -> Tensor:
        layer = writer.place.layer if writer.place else None
        if layer is None:
            return cache[f"hook_{writer}"]
        if writer.head is None:
            return cache[f"blocks.{layer}.hook_mlp_out"]
        z = cache[f"blocks.{layer}.attn.hook_z"][:, :, writer.head]
        return z @ model.blocks[layer].attn.W_O[writer.head]

    return {writer: term(writer) for writer in writers}


def _input(reader: Reader) -> str:
    """TransformerLens's name for a reader's copy of the stream."""
    block = f"blocks.{reader.place.layer}"
    if reader.head is not None:
        return f"{block}.hook_{reader.place.point.label}_input"
    return f"{block}.hook_resid_post" if reader.name == "logits" else f"{block}.hook_mlp_in"


@contextmanager
def _separate_inputs(model: Any) -> Generator[None]:  # noqa: ANN401 - a class of transformer_lens
    """Give each head and each MLP its own copy of the stream."""
    model.set_use_split_qkv_input(True)
    model.set_use_hook_mlp_in(True)
    try:
        yield
    finally:
        model.set_use_split_qkv_input(False)
        model.set_use_hook_mlp_in(False)
