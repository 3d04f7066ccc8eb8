"""A circuit run by itself is the run in which every edge outside it carries given values."""

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    NIGHTLY,
    assert_close,
    build,
    covering,
    distance,
    padded,
    tokens_of,
)

from analyses import run_circuits
from interp import computation_graph, edits, metrics, run
from interp.errors import InvalidInput, UnknownPlace
from interp.graph import Graph, Writer

BOUND = 1e-12
ADDING = covering(
    (
        name
        for name, config in ARCHITECTURES.items()
        if all(s.norm.placement not in ("post", "stream") for s in config.stacks.values())
    ),
    nightly=NIGHTLY,
)
METRIC = metrics.logit_diff(1, 2)


def drawn(graph: Graph, share: float, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(len(graph.edges), generator=generator) < share


def writes_of(model, tokens) -> dict[str, torch.Tensor]:
    """What each writer writes in a run."""
    cache = run(model, *tokens, record="all").cache

    def output(writer: Writer) -> torch.Tensor:
        if writer.place is None:
            return model.get_parameter(writer.parameter).detach() * 0.5
        whole = cache[writer.place]
        return whole if writer.head is None else whole[..., writer.head, :]

    return {writer.name: output(writer) for writer in computation_graph(model).writers}


@pytest.mark.parametrize("name", ADDING)
def test_a_circuit_is_edits_of_all_edges_outside_it(name):
    """Random circuits, all edges, none; with values of another run, a vector, and zeros."""
    model, tokens = build(name), tokens_of(name, batch=2)
    graph = computation_graph(model)
    values = writes_of(model, tokens_of(name, batch=2, seed=1))
    values[graph.writers[1].name] = values[graph.writers[1].name].reshape(-1, model.d_model)[0]
    shares = (0.5, 0.9, 0.1, 1.0, 0.0)
    circuits = torch.stack([drawn(graph, share, n) for n, share in enumerate(shares)])
    # Where all that a reader reads is zero, its norm multiplies rounding by 1 / sqrt(eps) = 1000.
    with_embedding = circuits | torch.tensor(["embed" in writer.name for writer, _ in graph.edges])
    whole = tokens if len(tokens) > 1 else tokens[0]
    for others, kept_edges in ((values, circuits), (0.0, with_embedding)):
        rows = run_circuits(model, whole, kept_edges, others, METRIC)
        for row, circuit in zip(rows, kept_edges, strict=True):
            made = [
                edits.edge(w.name, r.name, others if others == 0.0 else others[w.name])
                for (w, r), inside in zip(graph.edges, circuit.tolist(), strict=True)
                if not inside
            ]
            done = run(model, *tokens, edits=made)
            assert_close(row, METRIC(done.logits, done.batch), BOUND)
        assert distance(rows[3], rows[4]) > 1e-6


@pytest.mark.parametrize("side", ["left", "right"])
def test_prompts_and_circuits_may_be_run_in_parts(side):
    """With little memory or padding, each circuit and prompt has the number that it has alone."""
    model = build("llama")
    rows = list(tokens_of("llama", batch=3, pos=6)[0])
    tokens = padded([rows[0], rows[1][:4], rows[2][:5]], side)
    graph = computation_graph(model)
    values = writes_of(model, (tokens_of("llama", batch=3, pos=6, seed=1)))
    circuits = torch.stack([drawn(graph, 0.5, n) for n in range(3)])
    targets = metrics.logit_diff((1, 2, 3), 0)
    done: list[tuple[int, int]] = []
    whole = run_circuits(model, tokens, circuits, values, targets)
    parts = run_circuits(
        model,
        tokens,
        circuits,
        values,
        targets,
        memory=60_000,
        progress=lambda *counts: done.append(counts),
    )
    assert_close(parts, whole, BOUND)
    assert len(done) > 1
    assert done[-1] == (9, 9)
    alone = run_circuits(
        model,
        tokens[1:2],
        circuits,
        {name: v[1:2] if v.ndim == 3 else v for name, v in values.items()},
        metrics.logit_diff(2, 0),
    )
    assert_close(whole[:, 1:2], alone, BOUND)


def test_a_metric_of_all_positions():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    graph = computation_graph(model)
    everything = torch.ones(1, len(graph.edges), dtype=torch.bool)
    plain = run(model, *tokens)
    losses = run_circuits(model, *tokens, everything, 0.0, metrics.loss())
    assert_close(losses[0], metrics.loss()(plain.logits, plain.batch), BOUND)


def test_a_whole_number_can_be_the_value_of_all_writers():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    whole, fraction = (run_circuits(model, *tokens, [[]], value, METRIC) for value in (0, 0.0))
    assert torch.equal(whole, fraction)


def test_circuits_are_named_by_their_edges():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    graph = computation_graph(model)
    edges = [(w.name, r.name) for w, r in graph.edges]
    mask = torch.zeros(2, len(edges), dtype=torch.bool)
    mask[0, ::3] = mask[1, 1::2] = True
    by_mask = run_circuits(model, *tokens, mask, 0.0, METRIC)
    by_name = run_circuits(model, *tokens, [edges[::3], edges[1::2]], 0.0, METRIC)
    assert_close(by_name, by_mask, 0.0)


@pytest.mark.parametrize(
    ("circuits", "values", "error", "message"),
    [
        ([[("L0H9", "logits")]], 0.0, UnknownPlace, "L0H9"),
        ([[("L1H0", "L0H0.q")]], 0.0, InvalidInput, "There is no edge"),
        (torch.ones(2, 3, dtype=torch.bool), 0.0, InvalidInput, "boolean tensor"),
        ([[("L0H0", "logits")]], {"L0H0": torch.zeros(8)}, InvalidInput, "embed.* are missing"),
    ],
)
def test_what_does_not_fit_is_refused(circuits, values, error, message):
    with pytest.raises(error, match=message):
        run_circuits(build("gpt2"), *tokens_of("gpt2"), circuits, values, METRIC)


def test_values_of_another_shape_are_refused():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    values = writes_of(model, tokens) | {"L0H0": torch.zeros(3, 1, 8, dtype=torch.float64)}
    with pytest.raises(InvalidInput, match="The values of L0H0"):
        run_circuits(model, *tokens, [[("L0H0", "logits")]], values, METRIC)
