"""An edit of an edge gives one reader another stream, and changes nothing else directly."""

import json
from functools import cache
from itertools import pairwise

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    as_where,
    assert_close,
    assert_identical,
    build,
    covering,
    distance,
    in_turn,
    padded,
    tokens_of,
)
from torch import Tensor

from interp import Cache, Start, Transformer, computation_graph, edits, metrics, run, sweep
from interp.edits import Edge, Edit
from interp.errors import InvalidEdit, InvalidInput, UnknownPlace
from interp.graph import Reader, Writer

BOUND = 1e-12
NAMES = [
    name
    for name, config in ARCHITECTURES.items()
    if all(s.norm.placement not in ("post", "stream") for s in config.stacks.values())
]
ADDING = covering(NAMES)
PADDING = ["none", "left", "right"]


def output(model: Transformer, cache: Cache, writer: Writer) -> Tensor:
    """What a writer writes, ``[batch pos d_model]`` or its bias ``[d_model]``."""
    if writer.place is None:
        return model.get_parameter(writer.parameter).detach()
    whole = cache[writer.place]
    return whole if writer.head is None else whole[..., writer.head, :]


def other_tokens(name: str) -> tuple[Tensor, ...]:
    return tokens_of(name, batch=2, pos=5, seed=1)


def reread(model: Transformer, tokens: tuple[Tensor, ...], reader: Reader, stream: Tensor) -> Edit:
    """The reader's tensor when it alone reads ``stream``, by runs that replace whole tensors."""
    where = as_where(reader.place)
    if reader.head is None:
        return edits.replace(where, stream)
    whole = run(
        model,
        *tokens,
        record=[reader.place],
        edits=[edits.replace(as_where(reader.stream), stream)],
    )
    return edits.replace(where, whole.cache[reader.place][:, :, reader.head], head=reader.head)


@cache
def drawn(name: str) -> list[tuple[Writer, Reader]]:
    """Some edges of a model: of every kind of reader, with writers of all kinds."""
    edges = computation_graph(build(name)).edges
    step = max(1, len(edges) // 12)
    return list(edges[:: step if step % 2 else step + 1])


@pytest.mark.parametrize("name", ADDING)
def test_the_reader_alone_reads_another_stream(name):
    """read(x + u′ − u), for one reader; the oracle replaces whole tensors in runs of its own."""
    model, tokens = build(name), tokens_of(name)
    cache = run(model, *tokens, record="all").cache
    other = run(model, *other_tokens(name), record="all").cache
    plain = run(model, *tokens).logits
    for writer, reader in drawn(name):
        old, new = output(model, cache, writer), output(model, other, writer) * 1.5
        expected = run(
            model,
            *tokens,
            edits=[reread(model, tokens, reader, cache[reader.stream] + new - old)],
        ).logits
        logits = run(model, *tokens, edits=[edits.edge(writer.name, reader.name, new)]).logits
        assert_close(logits, expected, BOUND, (writer, reader))
        if reader.name.endswith("logits"):
            assert distance(logits, plain) > 1e-6


@pytest.mark.parametrize("name", ADDING)
def test_all_edges_of_another_run_give_every_reader_that_run(name):
    """Every reader reads what it read there; without one writer's edges, its readers do not."""
    model, tokens = build(name), tokens_of(name)
    other = run(model, *other_tokens(name), record="all").cache
    graph = computation_graph(model)
    every = [
        edits.edge(writer.name, reader.name, output(model, other, writer))
        for writer, reader in graph.edges
    ]
    cache = run(model, *tokens, record="all", edits=every).cache
    for reader in graph.readers:
        assert_close(cache[reader.place], other[reader.place], BOUND, reader)
    left_out = graph.writers[0]
    fewer = [edge for edge in every if edge.where[0] != left_out.name]
    cache = run(model, *tokens, record="all", edits=fewer).cache
    for reader in graph.readers:
        same = distance(cache[reader.place], other[reader.place]) < 1e-6
        assert same == (left_out not in reader.sources), reader


@pytest.mark.parametrize("name", ADDING)
def test_a_writers_own_values_change_nothing(name):
    model, tokens = build(name), tokens_of(name)
    done = run(model, *tokens, record="all")
    for writer, reader in drawn(name):
        edit = edits.edge(writer.name, reader.name, output(model, done.cache, writer))
        assert_close(run(model, *tokens, edits=[edit]).logits, done.logits, BOUND)


@pytest.mark.parametrize(("name", "padding"), in_turn(NAMES, PADDING, kinds_a_name=1))
def test_a_sweep_of_edges_is_brute_force(name, padding):
    """Of single edges, of positions and rows, of several together and with edits of writers."""
    model, tokens = build(name), tokens_of(name, batch=3, pos=6)
    if padding != "none":
        tokens = tuple(padded([ids[0], ids[1][:-2], ids[2][:-1]], padding) for ids in tokens)
    cache = run(model, *tokens_of(name, batch=3, pos=6, seed=1), record="all").cache
    made: list[Edit | list[Edit]] = []
    for number, (writer, reader) in enumerate(drawn(name)):
        new = output(model, cache, writer)
        select: dict[str, object] = {}
        if "source" not in reader.place.point.axes:
            select = [{}, {"pos": -1}, {"pos": (0, 2)}, {"batch": 1}][number % 4]
        if select:
            new = new.reshape(-1, new.shape[-1])[0]
        made.append(edits.edge(writer.name, reader.name, new, **select))
    pairs = [list(pair) for pair in pairwise(made)]
    (first_writer, first_reader), *_ = drawn(name)
    zeroed = edits.scale(as_where(first_writer.place or first_reader.stream), 0.5)
    made += [*pairs, [zeroed, made[0]]]
    metric = metrics.logit_diff(1, 2)
    batch = tokens if len(tokens) > 1 else tokens[0]
    table = sweep(model, batch, made, metric)
    for row, case in zip(table.values, made, strict=True):
        done = run(model, *tokens, edits=case if isinstance(case, list) else [case])
        assert_close(row, metric(done.logits, done.batch), BOUND, case)


def test_edges_into_one_reader_add_up():
    """x + (u′ − u) + (v′ − v), in either order."""
    model, tokens = build("gpt2"), tokens_of("gpt2")
    cache = run(model, *tokens, record="all").cache
    pair = [edits.edge("L0H0", "L1H1.k", 0.0), edits.edge("embed", "L1H1.k", 0.0)]
    graph = computation_graph(model)
    reader = graph.reader("L1H1.k")
    stream = cache[reader.stream]
    for name in ("L0H0", "embed"):
        stream = stream - output(model, cache, graph.writer(name))
    expected = run(model, *tokens, edits=[reread(model, tokens, reader, stream)]).logits
    for several in (pair, pair[::-1]):
        assert_close(run(model, *tokens, edits=several).logits, expected, BOUND)
    assert distance(run(model, *tokens, edits=pair[:1]).logits, expected) > 1e-6


def test_an_edge_of_an_edited_writer_replaces_the_edited_value():
    """u is what the writer writes in this run: zeroing its z and its edge is zeroing its z."""
    model, tokens = build("gpt2"), tokens_of("gpt2")
    zero = edits.zero("z", layer=0, head=2)
    expected = run(model, *tokens, edits=[zero]).logits
    both = run(model, *tokens, edits=[zero, edits.edge("L0H2", "L1H0.v", 0.0)]).logits
    assert_close(both, expected, BOUND)
    result = edits.zero("result", layer=0, head=2)
    both = run(model, *tokens, edits=[result, edits.edge("L0H2", "L1H0.v", 0.0)]).logits
    assert_close(both, expected, BOUND)


def test_an_edge_is_data():
    edge = edits.edge("L0H1", "L1H0.q", torch.ones(8, dtype=torch.float64), pos=(0, 2))
    assert str(edge) == 'edge("L0H1", "L1H0.q", pos=(0, 2))'
    assert edits.from_dict(json.loads(json.dumps(edge.to_dict()))) == edge
    _, resolved = edge.resolved(build("gpt2"), ())
    assert isinstance(resolved, Edge)
    assert resolved.digest == edge.digest
    assert edge.digest != edits.edge("L0H1", "L1H0.q", 1.0, pos=(0, 2)).digest


def test_edges_are_differentiable():
    """d logits / d u′ through an edge, by a finite difference."""
    model, tokens = build("gpt2"), tokens_of("gpt2")
    values = torch.zeros(model.d_model, dtype=torch.float64, requires_grad=True)

    def score(u: Tensor) -> Tensor:
        made = edits.edge("L0H1", "L1MLP", u)
        return run(model, *tokens, edits=[made], keep_graph=True).logits[:, -1, 3].sum()

    (gradient,) = torch.autograd.grad(score(values), values)
    step = torch.zeros_like(values)
    step[2] = 1e-6
    slope = (score(step.detach()) - score((-step).detach())) / 2e-6
    assert_close(slope.detach(), gradient[2], 1e-6)
    assert gradient.abs().max() > 1e-6


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        ([edits.edge("L0H9", "L1H0.q", 0.0)], UnknownPlace, r"'L0H9' writes .*Nearest: L0H"),
        ([edits.edge("L0H1", "L1H0", 0.0)], UnknownPlace, "'L1H0' reads .*Nearest: L1H0"),
        ([edits.edge("L1H1", "L1H0.q", 0.0)], InvalidInput, "no edge L1H1 → L1H0.q"),
        (
            [edits.edge("L0H1", "L1H0.q", torch.ones(3, dtype=torch.float64))],
            InvalidEdit,
            r"shape \(3,\)",
        ),
        (
            [edits.edge("L0H1", "L1H0.q", torch.ones(8))],
            InvalidEdit,
            "the values are torch.float32",
        ),
        ([edits.edge("L0H1", "L1H0.q", 0.0, pos=9)], InvalidEdit, "9"),
        (
            [edits.edge("L0H1", "L1H0.q", 0.0), edits.zero(("normalized", 1, "ln1"))],
            InvalidEdit,
            "computed anew",
        ),
        (
            [edits.edge("L0H1", "L1H0.q", 0.0), edits.zero("q", layer=1, head=0)],
            InvalidEdit,
            "overwrites everything",
        ),
        (
            [edits.zero("q", layer=1, head=0), edits.edge("L0H1", "L1H0.q", 0.0)],
            InvalidEdit,
            "overwrites everything",
        ),
    ],
)
def test_what_has_no_effect_or_does_not_fit_is_refused(made, error, message):
    """By a run, and by a sweep before anything is computed."""
    model, tokens = build("gpt2"), tokens_of("gpt2")
    with pytest.raises(error, match=message):
        run(model, *tokens, edits=made)
    with pytest.raises(error, match=message):
        sweep(model, *tokens, [made], metrics.logit(1))


def test_edits_beside_an_edge_are_kept():
    """Zeroing another head's queries, or the stream before, is not undone by the edge."""
    model, tokens = build("gpt2"), tokens_of("gpt2")
    edge = edits.edge("L0H1", "L1H0.q", 0.0)
    alone = run(model, *tokens, edits=[edge]).logits
    for beside in (edits.zero("q", layer=1, head=1), edits.zero("attn_in", layer=1, pos=2)):
        assert distance(run(model, *tokens, edits=[edge, beside]).logits, alone) > 1e-6


def test_a_stream_that_norms_change_has_no_edges():
    with pytest.raises(InvalidInput, match="normalizes the stream itself"):
        run(build("bert"), *tokens_of("bert"), edits=[edits.edge("L0H0", "L1H0.q", 0.0)])


def test_a_run_that_starts_behind_the_writer_is_refused():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    stream = run(model, *tokens, record="resid_pre").cache["resid_pre", 1]
    with pytest.raises(InvalidEdit, match="not in the part of the model"):
        run(model, *tokens, start=Start(1, stream), edits=[edits.edge("L0H1", "L1H0.q", 0.0)])


def test_a_plain_run_keeps_nothing_for_edges():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    plain = run(model, *tokens, record="all")
    made = run(model, *tokens, record="all", edits=[edits.edge("L0H1", "logits", 0.0)])
    assert_identical(plain.cache["z", 0], made.cache["z", 0])


def test_shared_keys_are_named_by_their_head():
    """L0H3.k of a model whose heads share keys leads to the key/value head that L0H3 uses."""
    graph = computation_graph(build("llama"))
    readers = [str(reader) for reader in graph.readers]
    n_heads, n_shared = (sum(prefix in name for name in readers) for prefix in ("L0H", "L0KV"))
    last = f"L0H{n_heads - 1}.k"
    with pytest.raises(UnknownPlace, match=rf"{last[:-2]} uses L0KV{n_shared // 2 - 1}\.k"):
        graph.reader(last)
    with pytest.raises(UnknownPlace, match="Nearest"):
        graph.reader(f"L0H{n_heads}.k")
