"""Traced paths: exact sums, known circuits, removals against plain runs, and what is refused."""

from dataclasses import replace

import pytest
import torch
from architectures import ARCHITECTURES, PAIRS, assert_close, build, covering, tokens_of
from declared import (
    Call,
    Command,
    Declared,
    EachPrompt,
    Made,
    Symmetric,
    Without,
    example,
    odd,
    small,
)
from declared import prompts as kinds
from permuted import NORMALIZING_THE_STREAM

import interp
from analyses import direct_logit_attribution, trace_paths
from analyses.methods.attribution import logit_direction
from analyses.methods.frozen import (
    FrozenModel,
    integrated_gradients,
    output_norm,
    pattern_of,
    places_of_run,
)
from analyses.trace_paths.traced import Tracer
from interp import edits, run
from interp.errors import InvalidInput, InvalidTokens
from interp.model import Attention

BOUND = 1e-10
CLIPPED = ("olmo", "olmo2-clipped")


def is_traceable(name: str) -> bool:
    if name in (*PAIRS, *CLIPPED) or ARCHITECTURES[name].head is not None:
        return False
    try:
        interp.computation_graph(build(name))
    except InvalidInput:
        return False
    return True


TRACEABLE = [name for name in ARCHITECTURES if is_traceable(name)]


def frozen(name: str) -> tuple[FrozenModel, torch.Tensor]:
    """The run of one prompt, and the directions of two answers."""
    model = build(name)
    (batch,) = model.batches(tokens_of(name)[0][:1])
    with torch.no_grad():
        cache = run(model, batch, record=places_of_run(model)).cache
        direction, _ = logit_direction(model.unembed, torch.tensor([3, 5]), torch.tensor([1, 2]))
    return FrozenModel(model, cache, batch.is_real[0].nonzero()[:, 0]), direction


# ---- sums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", covering(TRACEABLE))
@torch.no_grad()
def test_what_is_read_sums_to_what_is_written_and_to_what_scores_add(name):
    """Values and MLPs: z W_O·g and mlp·g. Queries and keys: Σ (A − A by position) v W_O·g."""
    model, direction = frozen(name)
    pos = model.vectors.shape[1] - 1
    letters = set()
    for branch in model.branches:
        for writer in branch.writers:
            written = model.vectors[writer, pos] @ direction.mT
            for reading in model.readings(writer, pos, direction, scores=True):
                letters.add(reading.letter)
                expected = written
                if reading.letter in ("q", "k"):
                    expected = added_by_scores(model, branch, writer, pos, direction)
                assert_close(reading.total, expected, BOUND, f"{writer} {reading.letter}")
                if reading.letter == "v":
                    terms = reading.terms.clone()
                    terms[:, 0] *= 1.5
                    assert not torch.allclose(terms.sum((1, 2)) + reading.bias, expected)
    assert letters >= {"q", "k", "v"}


def added_by_scores(model, branch, writer, pos, direction) -> torch.Tensor:
    """Of one head, computed from its whole patterns."""
    attention, head = branch.step.f, writer - branch.writers[0]
    run_ = model.attention(branch)
    alone = pattern_of(attention, head, run_.bias[head, pos][None])[0]
    normed = output_norm(branch.layer, branch.step)
    if normed is not None:
        direction, _ = normed[0].pull_back(direction, model.at(normed[1])[pos])
    written = run_.values[:, head] @ attention.W_O[head] @ direction.mT
    return (run_.pattern[head, pos] - alone) @ written


@pytest.mark.parametrize("name", covering(TRACEABLE))
@torch.no_grad()
def test_all_edges_conserve_what_flows_through_a_node(name):
    """With every node traced: what a node reads is what it contributes."""
    model, direction = frozen(name)
    pos = model.vectors.shape[1] - 1
    tracer = Tracer(model, direction, pos, scores=False)
    nodes, _ = tracer.large_nodes(1e-9, 10**6)
    trace = tracer.trace(nodes, 0.0)
    out = {node: torch.zeros(2, dtype=torch.float64) for node in trace.nodes}
    for edge in trace.edges:
        out[edge.writer] += edge.effect
    for node, effect in trace.nodes.items():
        assert_close(effect, out[node], BOUND)
    logits, *others = trace.sums
    for each in others:
        assert_close(each.total, trace.nodes[each.reader], BOUND)
        assert_close(each.listed + each.bias, each.total, BOUND)
    ends = sum(effect for node, effect in trace.nodes.items() if node not in trace.traced)
    biases = sum(each.bias for each in trace.sums)
    assert_close(ends + biases, logits.total, BOUND)


def test_direct_edges_are_the_terms_of_direct_logit_attribution():
    model, tokens = build("gpt2"), tokens_of("gpt2")[0]
    settings = {"target": 3, "distractor": (5, 0), "pos": 2}
    result = trace_paths(model, tokens, **settings, least=1e-6, most=10**4, check=0)
    direct = direct_logit_attribution(model, tokens, **settings, by="head")
    assert_close(result.value, direct.value, BOUND)
    assert result.error <= BOUND
    frame = result.to_frame()
    frame = frame[frame["reader"].str.startswith("logits")]
    terms = {part.name: effect for part, effect in zip(direct.parts, direct.effect, strict=True)}
    assert len(frame) > 10
    for row in frame.to_dict("records"):
        expected = terms[row["writer"].partition("@")[0]][row["prompt"]]
        assert row["effect"] == pytest.approx(float(expected), abs=BOUND)
    sums = result.to_reading_frame()
    assert (sums["effect"] - sums["listed"] - sums["bias"] - sums["rest"]).abs().max() <= BOUND
    assert replace(result, value=result.value * 2).error > 0.1


def test_paths_through_values_alone_sum_to_the_logit_without_mlps():
    """Of a model of heads without biases, all paths from all embeddings."""
    model = build("seed")
    tokens = tokens_of("seed")[0][:1]
    result = trace_paths(model, tokens, target=3, scores=False, least=1e-9, most=10**4, check=0)
    reached = result.to_frame()
    from_embeddings = [float(node.effect) for node in result.nodes if node.kind == "embedding"]
    assert sum(from_embeddings) == pytest.approx(float(result.value), abs=BOUND)
    assert set(reached["part"]) == {"input", "v"}


def test_the_integral_of_a_saturated_softmax_is_its_whole_effect():
    """Where the gradient at the run is 0; too few points would miss it."""
    attention = interp.load("induction-by-hand").blocks[1].attn
    scores = torch.tensor([0.0, 400.0, -3.0, 1.0], dtype=torch.float64)
    bias = torch.tensor([0.0, 0.0, 0.0, -torch.inf], dtype=torch.float64)
    worth = torch.tensor([[1.0, 5.0, -2.0, 9.0]], dtype=torch.float64)
    gradients = integrated_gradients(attention, 0, scores, bias, worth)
    assert float(gradients @ scores) == pytest.approx(5 - 4 / 3, abs=1e-9)
    assert float(gradients.sum()) == pytest.approx(0.0, abs=1e-12)
    assert gradients[0, 3] == 0


# ---- known circuits -------------------------------------------------------------------------


def test_the_path_through_the_previous_token_head_is_at_the_top():
    """Of the induction head made by hand, whose key is what follows the earlier b."""
    model = interp.load("induction-by-hand")
    result = trace_paths(model, "abcab", target="c", distractor="a")
    paths = result.to_path_frame()
    assert set(paths["name"][:2]) == {
        "embed@2 → L0H0.v@3 → L1H0.k@5 → logits@5",
        "embed@5 → L1H0.q@5 → logits@5",
    }
    edges = result.to_frame().set_index("name")
    # Each of these parts alone carries the whole answer: removed, nothing of it is left.
    for name in ("L1H0@5 → logits@5", "L0H0@3 → L1H0.k@5", "embed@3 → L1H0.v@5"):
        assert edges["exact"][name] == pytest.approx(12.0, abs=1e-3)
    assert edges["effect"]["L1H0@5 → logits@5"] == pytest.approx(12.0, abs=1e-4)
    assert (paths["effect"][:2] > 10 * paths["control"][:2]).all()


def test_an_untrained_model_has_no_path_above_its_control():
    """The strongest path of the trained one is the induction head's, 6.5 times its control."""
    pair = interp.read_prompts("python-2l-pairs")[1]
    settings = {"target": pair.target, "distractor": pair.distractor, "check": 0}
    names = ("python-2l", "python-2l@0")
    trained, untrained = (
        trace_paths(interp.load(name), pair.text, **settings).to_path_frame().iloc[0]
        for name in names
    )
    assert trained["name"] == "embed@5 → L0H5.v@6 → L1H0.k@15 → logits@15"
    assert abs(trained["effect"]) > 5 * trained["control"]
    assert abs(untrained["effect"]) < 3 * untrained["control"]
    assert abs(trained["effect"]) > 20 * abs(untrained["effect"])


# ---- removals -------------------------------------------------------------------------------


def test_removals_of_edges_are_those_of_edits_of_edges():
    """Against edits of the computation graph, at the only position that the reader reads."""
    model = build("gpt2")
    tokens = tokens_of("gpt2")[0][:1]
    result = trace_paths(model, tokens, target=3, least=1e-3, most=60, check=10**5)
    metric = interp.metrics.logit(3)
    clean = float(run(model, tokens).logits[0, -1, 3])
    last = tokens.shape[1] - 1
    compared = {"q": 0, "input": 0, "logits": 0}
    for row in result.to_frame().to_dict("records"):
        reader, _, at = row["reader"].partition("@")
        with_bias = "MLP" in row["writer"]  # which is a part of this writer in the graph
        if row["part"] in ("k", "v") or not 0 < row["pos"] == int(at) or with_bias:
            continue
        edit = edits.edge(row["writer"].partition("@")[0], reader, 0.0, pos=row["pos"])
        changed = float(interp.sweep(model, tokens, [edit], metric).values[0, 0])
        assert row["exact"] == pytest.approx(clean - changed, abs=1e-9), row["name"]
        compared["logits" if reader == "logits" else row["part"]] += 1
    assert min(compared.values()) >= 3
    nodes = {node.name: node for node in result.nodes}
    head = next(node for node in result.nodes if node.kind == "head" and node.pos == last)
    zero = edits.zero("z", layer=head.layer, head=head.head, pos=last)
    changed = float(run(model, tokens, edits=[zero]).logits[0, -1, 3])
    assert nodes[head.name].exact == pytest.approx(clean - changed, abs=1e-9)


@pytest.mark.parametrize("letter", ["k", "v"])
def test_the_removal_of_a_key_or_a_value_changes_one_query_only(letter):
    """At the last token of one prompt, no other query reads the position after it has changed."""
    model = build("llama")
    tokens = tokens_of("llama")[0][:1]
    result = trace_paths(model, tokens, target=3, least=1e-3, most=60, check=10**5)
    frame = result.to_frame()
    last = tokens.shape[1] - 1
    rows = frame[(frame["part"] == letter) & (frame["pos"] == last)]
    metric, clean = interp.metrics.logit(3), float(run(model, tokens).logits[0, -1, 3])
    assert len(rows) >= 3
    for row in rows.to_dict("records"):
        head = row["reader"].partition(".")[0]
        alone = one_head_removed(model, tokens, row, head, letter, last)
        changed = float(interp.sweep(model, tokens, [alone], metric).values[0, 0])
        assert row["exact"] == pytest.approx(clean - changed, abs=1e-9), row["name"]


def one_head_removed(model, tokens, row, head, letter, last):
    """z of one head, from the attention computed anew without a writer at the last position."""
    layer, number = (int(text) for text in head.removeprefix("L").split("H"))
    places = [("attn_in", layer), ("pattern", layer), ("v", layer), ("result", layer - 1)]
    record = [place for place in places if place[1] >= 0]
    cache = run(model, tokens, record=[*record, "embed", ("mlp_out", 0)]).cache
    block = model.blocks[layer]
    writer = row["writer"].partition("@")[0]
    if writer == "embed":
        u = cache["embed"][0, last]
    elif writer.endswith("MLP"):
        u = cache["mlp_out", 0][0, last]
        u = u - block_bias(model.blocks[0])
    else:
        u = cache["result", layer - 1][0, last, int(writer.partition("H")[2])]
    x = cache["attn_in", layer].clone()
    x[0, last] -= u
    normed, old = block.steps[0].input_norm(x), block.steps[0].input_norm(cache["attn_in", layer])
    attn: Attention = block.attn
    kv = number * attn.kv_heads // attn.n_heads
    context = interp.model.Context.plain(x)
    q, k, v = attn.project(old, context, interp.model.untouched)
    _, new_k, new_v = attn.project(normed, context, interp.model.untouched)
    if letter == "k":
        k = k.clone()
        k[:, :, kv] = new_k[:, :, kv]
    else:
        v = v.clone()
        v[:, :, kv] = new_v[:, :, kv]
    q, k = attn.with_positions(q, k, context)
    z = attn.mix(q, k, v, context)[0, last, number]
    return edits.replace("z", z.detach(), layer=layer, head=number, pos=last)


def block_bias(block):
    return 0.0 if block.mlp.b_out is None else block.mlp.b_out


def test_named_nodes_and_edges_are_removed():
    model, names = interp.load("induction-by-hand"), ["L1H0@5", "L0H0@3 → L1H0.k@5"]
    settings = {"target": "c", "distractor": "a"}
    result = trace_paths(model, "abcab", **settings, check=names)
    frames = (result.to_node_frame(), result.to_frame())
    measured = [name for frame in frames for name in frame["name"][frame["exact"].notna()]]
    assert measured == names
    with pytest.raises(InvalidInput, match="no prompt has such a node or edge"):
        trace_paths(model, "abcab", **settings, check=["L1H3@5"])


# ---- what is found, and refused ---------------------------------------------------------------


def test_fewer_nodes_are_traced_where_most_is_smaller_and_the_values_stay():
    model = interp.load("python-2l")
    pair = interp.read_prompts("python-2l-pairs")[0]
    settings = {"target": pair.target, "distractor": pair.distractor, "check": 0, "scores": False}
    many, few = (trace_paths(model, pair.text, **settings, most=most) for most in (40, 3))
    assert sum(node.is_traced for node in few.nodes) <= 4 < sum(n.is_traced for n in many.nodes)
    wide, narrow = (
        {row["name"]: row["effect"] for row in each.to_frame().to_dict("records")}
        for each in (many, few)
    )
    direct = [name for name in narrow if "→ logits" in name]
    assert direct
    for name in direct:
        assert wide[name] == pytest.approx(narrow[name], abs=1e-4)


def test_a_figure_has_tokens_across_and_lines_that_lead_to_the_logits():
    result = DECLARED.made.make()
    drawing = result.drawing(1)
    assert [*drawing.columns] == [f"{n} {token}" for n, token in enumerate(result.tokens[1])]
    assert drawing.nodes[drawing.root].name.startswith("logits")
    assert drawing.rows[int(drawing.nodes[drawing.root].y)] == "logits"
    least = max(abs(weight) for _, end, weight, _ in drawing.lines if end == drawing.root)
    fewer = replace(drawing, least=least).drawn_lines
    assert 0 < len(fewer) < len(drawing.drawn_lines) <= len(drawing.lines)
    readable = {drawing.root, *(writer for writer, *_ in fewer)}
    assert all(reader in readable for _, reader, *_ in fewer)
    cut = [line for line in fewer if line[1] != drawing.root]
    alone = replace(drawing, edges={}, read_as={"v": {line[:2]: line[2] for line in cut}})
    assert len(cut) > 0
    assert alone.drawn_lines == []
    with pytest.raises(InvalidInput, match="prompt"):
        result.drawing(2)


@pytest.mark.parametrize("name", [*CLIPPED, "opt-post", "t5"])
def test_models_that_are_no_sum_are_refused(name):
    tokens = tokens_of(name)
    with pytest.raises(InvalidInput, match=r"clips|stream|one stack"):
        trace_paths(build(name), tokens if name in PAIRS else tokens[0], target=3)


def test_nothing_is_traced_of_an_answer_of_0():
    model = interp.load("induction-by-hand")
    nothing = trace_paths(model, "QxmvQxm", target=3)
    assert not nothing.to_frame().size
    assert "no path was traced" in nothing.summary()
    assert trace_paths(model, "QxmvQxm", target="v").to_frame().size


def test_a_target_is_one_token():
    with pytest.raises(InvalidTokens, match="target"):
        trace_paths(interp.load("python-2l"), "def f(self):", target=" several tokens here")


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, prompts, n):
    target = 3 if model.tokenizer is None else "b"
    result = trace_paths(model, prompts, target=target, least=0.3, check=2)
    return [
        {
            "edges": result.effect[result.prompt == i],
            "controls": result.control[result.prompt == i],
            "removed": result.exact[result.prompt == i].nan_to_num(),
            "paths": result.path_effect[result.path_prompt == i],
        }
        for i in range(n)
    ]


def of_case(**settings):
    return lambda case: trace_paths(
        case.model, case.clean, target=case.target, distractor=case.distractor, **settings
    )


DECLARED = Declared(
    analysis=trace_paths,
    made=Made(
        lambda: trace_paths(
            example.model(), ["abcab", "xyxy"], target=["c", "x"], distractor="a", check=100
        )
    ),
    call=Call(
        (small.MODEL, small.CLEAN),
        {"target": 1},
        {
            "target": (*odd.TOKEN, odd.NOTHING),
            "distractor": odd.TOKEN,
            "pos": (odd.TEXT, odd.BROKEN, odd.LISTED),
            "least": (odd.TEXT, odd.BELOW, 0.0, odd.BROKEN, odd.LISTED, odd.NOTHING, True),
            "most": odd.COUNT,
            "check": (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, odd.NOTHING, True),
            "seed": odd.SEED,
            "memory": odd.MEMORY,
        },
    ),
    command=Command(
        "trace",
        ("--check", "4"),
        "trace",
        "strongest path",
        "scores=True least=0.1 most=40 check=16",
        more=tuple(
            f"{table}.{kind}"
            for table in ("nodes", "paths", "readings")
            for kind in ("csv", "parquet")
        ),
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts, kinds.WITHOUT_EDGES, is_slow=True),
    of_each_pair=Without("it takes models with one stack"),
    symmetric=Symmetric(
        {"": of_case(check=0, least=0.2)},
        not_compared=("control", "rank"),
        refused=NORMALIZING_THE_STREAM,
    ),
)
