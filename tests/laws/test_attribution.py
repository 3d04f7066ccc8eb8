"""Scores of edges from gradients: their sums, where they are exact, and when their sign flips.

The reference patches one edge at a time, each in a separate run.
"""

from itertools import groupby

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    NIGHTLY,
    VARIED,
    assert_close,
    build,
    build_new,
    covering,
    tokens_of,
)
from torch import Tensor

from analyses.attribute_edges.cuts import cuts_of
from analyses.methods.attribution.edges import (
    EdgeScores,
    edge_scores,
    gradients_read,
    places_of_edges,
)
from analyses.methods.attribution.path import Path
from analyses.methods.attribution.refine import cuts_of_streams
from analyses.methods.circuits.written import written
from interp import Transformer, edits, metrics, sweep
from interp.errors import InvalidInput
from interp.graph import computation_graph
from interp.points import Place

METRIC = metrics.logit_diff(1, 2)


def adds(name: str) -> bool:
    stacks = ARCHITECTURES[name].stacks.values()
    return all(stack.norm.placement not in ("post", "stream") for stack in stacks)


def routes(name: str) -> bool:
    """Whether tokens are routed to experts, a discontinuity that gradients do not show."""
    stacks = ARCHITECTURES[name].stacks.values()
    layers = [stack.of_layer(layer) for stack in stacks for layer in range(stack.n_layers)]
    return any(layer.mlp is not None and layer.mlp.experts is not None for layer in layers)


ADDING = covering([name for name in ARCHITECTURES if adds(name)])
SMOOTH = ["gpt2", "neox", "llama"]
"""Without kinks such as those of a ReLU."""


def path_of(model: Transformer, *, swapped: bool = False) -> Path:
    both = [model.check(*tokens_of(model.config, seed=seed)) for seed in (0, 1)]
    clean, corrupt = reversed(both) if swapped else both
    return Path.between(model, computation_graph(model), clean, corrupt, METRIC)


def scored(model: Transformer, method: str, steps: int = 4, **settings: object) -> EdgeScores:
    settings = {"tolerance": None, "swapped": False} | settings
    path = path_of(model, swapped=settings.pop("swapped"))
    return edge_scores(path, computation_graph(model), method, steps=steps, **settings)


def exact(model: Transformer) -> Tensor:
    """The effect of each edge, by patching it."""
    clean, corrupt = (model.check(*tokens_of(model.config, seed=seed)) for seed in (0, 1))
    values = written(model, corrupt)
    patched = [
        edits.edge(writer.name, reader.name, values[writer.name])
        for writer, reader in computation_graph(model).edges
    ]
    return sweep(model, tuple(clean), patched, METRIC).effect


def errors(model: Transformer, attribution: EdgeScores) -> Tensor:
    """Relative errors of the sum over each cut, ``[cut prompt]``."""
    change = attribution.corrupt - attribution.clean
    sums = [attribution.scores[cut.edges].sum(0) for cut in cuts_of(computation_graph(model))]
    return (torch.stack(sums) - change).abs() / change.abs().max()


# ---- gradients ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ADDING)
def test_the_gradients_of_the_readers_of_a_stream_sum_to_its_own(name):
    """q, k and v of all heads, each pulled back through its weights and the norm alone."""
    model = build(name)
    graph, path = computation_graph(model), path_of(model)
    points = path.run(path.uniform(2), places_of_edges(model, graph))
    by_stream: dict[Place, Tensor] = {}
    for stream, readers in groupby(graph.readers, lambda reader: reader.stream):
        gradient = torch.stack([g.sum(0) for g in gradients_read(model, list(readers), points)])
        by_stream[stream] = by_stream[stream] + gradient if stream in by_stream else gradient
    for stream, gradient in by_stream.items():
        assert_close(gradient, points.gradient(stream))


# ---- what scores sum to ---------------------------------------------------------------------


@pytest.mark.parametrize("name", SMOOTH)
def test_the_error_of_conductance_falls_with_the_square_of_the_steps(name):
    """Over every cut; that of EAP-IG over the edges that leave the inputs."""
    model = build(name)
    few, many = (errors(model, scored(model, "conductance", n)) for n in (200, 400))
    assert bool((many <= 0.3 * few + 1e-9).all())
    assert float(many.max()) < 2e-3
    few, many = (errors(model, scored(model, "eap-ig", n)) for n in (200, 400))
    assert bool((many[0] <= 0.3 * few[0] + 1e-9).all())
    assert float(many[1:].max()) > 0.02


@pytest.mark.parametrize("name", covering(filter(adds, ARCHITECTURES), VARIED, NIGHTLY))
def test_an_adaptive_path_makes_conductance_complete(name):
    model = build(name)
    attribution = scored(model, "conductance", 10, tolerance=0.01)
    assert bool((attribution.points <= 101).all())
    assert (float(errors(model, attribution).max()) < 0.05) != routes(name)


def test_attribution_patching_is_not_complete():
    assert float(errors(build("gpt2"), scored(build("gpt2"), "eap")).max()) > 0.1


@pytest.mark.parametrize("name", ADDING)
def test_every_cut_has_the_streams_that_errors_are_measured_by(name):
    """One cut for each stream, but those in the middle of a decoder that reads an encoder."""
    model = build(name)
    names = [cut.name for cut in cuts_of(computation_graph(model))]
    assert names[0] == "inputs"
    assert names[-1] == "logits"
    inner = [cut for cut in names if cut.startswith(("decoder.", "cross."))]
    assert len(cuts_of_streams(model)) == len(names) - len(inner[1:])


# ---- where scores are exact -----------------------------------------------------------------


def test_where_all_that_follows_is_linear_attribution_patching_is_exact():
    """Values of the last layer and the logits, with no norm; queries and keys are not linear."""
    model = build("biased-seed")
    edges = computation_graph(model).edges
    off = (scored(model, "eap").scores - exact(model)).abs().amax(-1)
    names = [reader.name for _, reader in edges]
    linear = torch.tensor([name in ("logits", "L1H0.v", "L1H1.v", "L1H2.v") for name in names])
    assert float(off[linear].max()) < 1e-12
    attending = torch.tensor([name[-1] in "qk" for name in names])
    moving = torch.tensor([writer.place is not None for writer, _ in edges])
    assert float(off[attending & moving].min()) > 1e-9


@pytest.mark.parametrize("method", ["conductance", "eap", "eap-ig"])
def test_a_reader_without_weights_scores_exactly_zero(method):
    model = build_new("gpt2")
    with torch.no_grad():
        model.blocks[1].attn.W_Q[1].zero_()
    scores = scored(model, method).scores
    into = torch.tensor([str(reader) == "L1H1.q" for _, reader in computation_graph(model).edges])
    moving = torch.tensor(
        [
            writer.place is not None and writer.name != "pos_embed"
            for writer, _ in computation_graph(model).edges
        ]
    )
    assert bool((scores[into] == 0).all())
    assert bool((scores[~into & moving] != 0).all())


@pytest.mark.parametrize("name", ADDING)
def test_swapping_clean_and_corrupt_flips_the_sign(name):
    model = build(name)
    scores, other = (scored(model, "conductance", swapped=s).scores for s in (False, True))
    assert_close(scores, -other)
    scores, other = (scored(model, "eap", swapped=s).scores for s in (False, True))
    assert not torch.allclose(scores, -other)


@pytest.mark.parametrize("tolerance", [None, 0.01])
def test_prompts_are_scored_in_parts_of_any_size(tolerance):
    model = build("gpt2")
    in_parts, whole = (
        scored(model, "conductance", tolerance=tolerance, memory=m) for m in (1, None)
    )
    assert_close(in_parts.scores, whole.scores)
    assert in_parts.points.tolist() == whole.points.tolist()


def test_conductance_runs_the_points_of_a_long_path_in_blocks(monkeypatch):
    """Of which each begins where the one before ends; the sums over cuts stay complete."""
    model, times, run = build("gpt2"), [], Path.run

    def noted(path, block, record):
        times.append(block)
        return run(path, block, record)

    monkeypatch.setattr(Path, "run", noted)
    in_blocks = scored(model, "conductance", 7, memory=1)
    n = in_blocks.scores.shape[1]
    assert {block.shape for block in times} == {(2, 1)}
    assert len(times) == 7 * n
    assert torch.equal(times[0][-1], times[1][0])
    times.clear()
    assert_close(in_blocks.scores, scored(model, "conductance", 7).scores)
    assert [block.shape for block in times] == [(8, n)]


def test_a_metric_without_a_gradient_is_refused():
    path = path_of(build("gpt2"))
    flat = Path(path.model, path.batches, path.ends, metrics.accuracy(1))
    with pytest.raises(InvalidInput, match="no gradient"):
        flat.run(path.uniform(1), list(path.ends))
