"""What a reader reads is the sum of what its sources write, on every architecture that adds."""

import pytest
import torch
from architectures import ARCHITECTURES, assert_close, build, tokens_of

from interp import Cache, Transformer, bundled, card, load, run
from interp.errors import InvalidInput, UnknownPlace
from interp.graph import Writer, computation_graph
from interp.model.attention.attention import Attention

BOUND = 1e-12


def adds(name: str) -> bool:
    stacks = ARCHITECTURES[name].stacks.values()
    return all(stack.norm.placement not in ("post", "stream") for stack in stacks)


ADDING = [name for name in ARCHITECTURES if adds(name)]
CHANGED = [name for name in ARCHITECTURES if not adds(name)]


def output(model: Transformer, cache: Cache, writer: Writer) -> torch.Tensor:
    """What a writer writes, ``[batch pos d_model]`` or its bias ``[d_model]``."""
    if writer.place is None:
        return model.get_parameter(writer.parameter)
    whole = cache[writer.place]
    return whole if writer.head is None else whole[..., writer.head, :]


@pytest.mark.parametrize("name", ADDING)
def test_a_reader_reads_the_sum_of_its_sources(name):
    """stream(reader) = Σ of what its sources write; no term can be left out."""
    model = build(name)
    graph = computation_graph(model)
    cache = run(model, *tokens_of(model.config), record="all").cache
    for stream, sources in {(r.stream, r.sources) for r in graph.readers}:
        terms = [output(model, cache, writer) for writer in sources]
        assert_close(sum(terms), cache[stream], BOUND)
        assert all(term.abs().max() > 1e-3 for term in terms)


@pytest.mark.parametrize("name", ADDING)
def test_every_head_and_mlp_reads_and_writes(name):
    """As many readers and writers as the weights have heads, MLPs and biases."""
    model = build(name)
    graph = computation_graph(model)
    attentions = [part for part in model.modules() if isinstance(part, Attention)]
    q, kv = (sum(getattr(a, n) for a in attentions) for n in ("n_heads", "kv_heads"))
    kinds = [reader.name.split(".")[-1] for reader in graph.readers]
    assert [kinds.count(kind) for kind in "qkv"] == [q, kv, kv]
    names = [node.name for node in (*graph.readers, *graph.writers)]
    assert len(set(names)) == len(names) - sum(name.endswith("MLP") for name in names) // 2


@pytest.mark.parametrize("name", CHANGED)
def test_a_stream_that_norms_change_is_refused(name):
    with pytest.raises(InvalidInput, match="is not a sum of"):
        computation_graph(build(name))


def test_the_circuits_of_bundled_models_are_part_of_their_graphs():
    """Nodes and edges of a card have the names of the graph."""
    n_edges = 0
    for name in bundled():
        circuit = card(name).circuit
        if circuit is None:
            continue
        graph = computation_graph(load(name))
        for writer, reader in circuit.edges:
            graph.edge(writer, reader)
            n_edges += 1
    assert n_edges > 0


def test_an_edge_that_does_not_exist_is_refused():
    graph = computation_graph(build("gpt2"))
    assert graph.edge("L0H1", "L1H0.k")[1].head == 0
    with pytest.raises(InvalidInput, match=r"L1H0\.q reads the stream before L1H1"):
        graph.edge("L1H1", "L1H0.q")
    with pytest.raises(UnknownPlace, match=r"Nearest: .*L1H0\.q"):
        graph.reader("L1H0.Q")


def test_an_mlp_beside_attention_does_not_read_its_heads():
    """x ↦ x + attn(ln1(x)) + mlp(ln2(x)): both read x."""
    parallel, serial = computation_graph(build("neox")), computation_graph(build("gpt2"))
    with pytest.raises(InvalidInput, match="L0MLP reads the stream before L0H0"):
        parallel.edge("L0H0", "L0MLP")
    serial.edge("L0H0", "L0MLP")
