"""Ablation of any unit: against brute force, its algebra, what it shows, and what it refuses."""

import re
from math import nan

import pytest
import torch
from architectures import ARCHITECTURES, assert_close, build, covering, in_turn, padded, tokens_of
from declared import Call, Command, Declared, EachPrompt, Made, Symmetric, example, odd, small

import interp
from analyses import ablate, ablate_heads
from analyses.methods.components import Replacements, components_of
from analyses.methods.components.gathered import donor_tokens
from interp import PAD, edits, metrics, run
from interp.errors import InvalidInput, UnknownPlace

METRIC = metrics.logit(3)
NAME = re.compile(r"(?:(encoder|decoder|cross)\.)?L(\d+)(?:(H|KV|N)(\d+)|ATTN|MLP)")
POINTS = {"N": "post", "ATTN": "attn_out", "MLP": "mlp_out"}


def where(name, part="z"):
    """The place and the selection of a component, from its name alone."""
    stack, layer, kind, index = NAME.fullmatch(name).groups()
    point = POINTS.get(kind or name[-4:].lstrip("0123456789"), part)
    if stack == "cross":
        stack, point = "decoder", f"cross_{point}"
    axis = {} if kind is None else {"unit" if kind == "N" else "head": int(index)}
    return point, {"layer": int(layer), **axis} | ({} if stack is None else {"stack": stack})


def edited(model, tokens, made, metric=METRIC):
    """One whole forward."""
    done = run(model, *tokens, edits=made)
    return metric(done.logits, done.batch).double()


def prompts_of(name, **sizes):
    tokens = tokens_of(name, **sizes)
    return tokens if len(tokens) > 1 else tokens[0]


def of_lengths(lengths, seed=0, side="right"):
    generator = torch.Generator().manual_seed(seed)
    return padded([torch.randint(13, (n,), generator=generator) for n in lengths], side)


SPLIT = [
    name
    for name, config in ARCHITECTURES.items()
    for stack in config.stacks.values()
    if any(layer.mlp is not None and layer.mlp.experts for layer in stack.layer_kinds)
]
WITH_MLPS = [name for name, c in ARCHITECTURES.items() if all(s.mlp for s in c.stacks.values())]
DENSE = [name for name in WITH_MLPS if name not in SPLIT]
FEW_HEADS = ["gpt2", "llama", "neox", "biased-seed", "bert"]


@pytest.mark.parametrize(
    ("name", "units"),
    [
        *in_turn(ARCHITECTURES, ["heads", "layers"], kinds_a_name=1),
        *in_turn(DENSE, ["mlps", "neurons"], ["gpt2", "bart"], kinds_a_name=1),
        *in_turn(FEW_HEADS, ["pairs"], ["gpt2"]),
    ],
)
def test_zero_ablation_is_brute_force_on_every_architecture(name, units):
    model, tokens = build(name), tokens_of(name)
    ablation = ablate(model, prompts_of(name), units=units, method="zero", metric=METRIC)
    assert_close(ablation.clean, edited(model, tokens, []))
    for row, members in enumerate(ablation.members):
        made = [edits.zero(point, **at) for point, at in map(where, members)]
        assert_close(
            ablation.ablated[row], edited(model, tokens, made), what=ablation.cells["name"][row]
        )
    assert ablation.effect.abs().max() > 1e-3


@pytest.mark.parametrize("part", ["z", "pattern", "v"])
@pytest.mark.parametrize("name", covering(["gpt2", "llama", "t5", "uneven-pair"], ["llama", "t5"]))
def test_each_part_of_a_head_is_brute_force(name, part):
    model, tokens = build(name), tokens_of(name)
    ablation = ablate(model, prompts_of(name), method="zero", part=part, metric=METRIC)
    for row, (head,) in enumerate(ablation.members):
        point, at = where(head, part)
        assert_close(ablation.ablated[row], edited(model, tokens, [edits.zero(point, **at)]))
    shared = name in ("llama", "uneven-pair") and part == "v"
    assert all(("KV" in head) == shared for (head,) in ablation.members)


# ---- values from other prompts -----------------------------------------------------------------


def recorded(model, rows, point, at):
    """A component's tensor on each prompt alone, ``[pos *rest]``."""
    place = (point, at["layer"], *([at["stack"]] if "stack" in at else []))
    select = {"head": -2, "unit": -1}
    activations = []
    for row in rows:
        x = run(model, *(ids[ids != PAD][None] for ids in row), record=[place]).cache[place][0]
        for axis in set(select) & set(at):
            x = x.select(select[axis], at[axis])
        activations.append(x)
    return activations


MEANT = [
    ("gpt2", "z", {"one": "L1H2", "sublayer": ["L0ATTN", "L1MLP"], "neuron": "L0N3"}),
    ("llama", "v", {"one": "L1KV1", "two": ["L0KV0", "L0KV1"]}),
    ("t5", "z", {"all": ["encoder.L1H1", "decoder.L0N2", "cross.L1H0", "cross.L0ATTN"]}),
    ("t5", "v", {"across": ["cross.L1H2"], "encoder": "encoder.L0H0"}),
]


@pytest.mark.parametrize("per_position", [False, True])
@pytest.mark.parametrize(("name", "part", "groups"), MEANT)
def test_mean_ablation_is_brute_force_with_the_mean_over_the_reference(
    name, part, groups, per_position
):
    model, two = build(name), name == "t5"
    tokens = [of_lengths((4, 2, 5)), of_lengths((3, 5, 2), seed=1)][: 1 + two]
    others = [of_lengths((5, 3), seed=2, side="left"), of_lengths((5, 5), seed=3)][: 1 + two]
    alike = {"units": groups, "part": part, "per_position": per_position, "metric": METRIC}
    ablation = ablate(
        model,
        tuple(tokens) if two else tokens[0],
        reference=tuple(others) if two else others[0],
        rows=1,
        **alike,
    )
    for row, members in enumerate(ablation.members):
        for prompt, ids in enumerate(zip(*tokens, strict=True)):
            alone, made = [stack_ids[stack_ids != PAD][None] for stack_ids in ids], []
            for point, at in (where(member, part) for member in members):
                of = recorded(model, list(zip(*others, strict=True)), point, at)
                in_encoder = at.get("stack") == "encoder" or point == "cross_v"
                width = alone[0 if in_encoder else -1].shape[1]
                at_each = [
                    torch.stack([x[p] for x in of if len(x) > p]).mean(0) for p in range(width)
                ]
                mean = torch.stack(at_each) if per_position else torch.cat(of).mean(0)
                made.append(edits.replace(point, mean, **at))
            expected = edited(model, alone, made, METRIC)
            assert_close(ablation.ablated[row, prompt], expected[0], what=members)
    again = ablate(model, tuple(tokens) if two else tokens[0], **alike)
    assert (again.effect - ablation.effect).abs().max() > 1e-3


@pytest.mark.parametrize("seed", [0, 1])
def test_resample_ablation_is_brute_force_with_donors_from_the_reference(seed):
    model, tokens, others = build("gpt2"), of_lengths((4, 2, 5)), of_lengths((6, 3), seed=2)
    ablation = ablate(
        model, tokens, method="resample", reference=others, seed=seed, metric=METRIC, memory=9e4
    )
    row, column = donor_tokens(tokens != PAD, seed, others != PAD)
    for unit, (head,) in enumerate(ablation.members):
        point, at = where(head)
        of = recorded(model, list(zip(others, strict=True)), point, at)
        for prompt, ids in enumerate(tokens):
            n = int((ids != PAD).sum())
            z = torch.stack([of[row[prompt, p]][column[prompt, p]] for p in range(n)])
            made = [edits.replace(point, z, **at)]
            assert_close(ablation.ablated[unit, prompt], edited(model, [ids[None, :n]], made)[0])


@pytest.mark.parametrize("method", ["mean", "resample"])
@pytest.mark.parametrize("part", ["z", "v", "pattern"])
def test_prompts_are_their_own_reference(method, part):
    """Of one length, since a position that no other prompt has takes one of another's."""
    tokens = prompts_of("llama", batch=4)
    model, alike = build("llama"), {"method": method, "part": part, "metric": METRIC}
    ablation = ablate(model, tokens, reference=tokens, **alike)
    assert torch.equal(ablation.ablated, ablate(model, tokens, **alike).ablated)


@pytest.mark.parametrize("method", ["mean", "resample"])
@pytest.mark.parametrize("name", ["llama", "t5"])
def test_a_reference_of_the_same_prompt_alone_changes_nothing(name, method):
    """What a prompt computes is replaced by itself."""
    model, prompt = build(name), prompts_of(name, batch=1)
    per_position = method == "mean"
    for part in ("z", "pattern", "v"):
        alike = {"method": method, "part": part, "per_position": per_position, "metric": METRIC}
        assert ablate(model, prompt, reference=prompt, **alike).effect.abs().max() <= 1e-12
    other = ablate(
        model, prompt, reference=prompts_of(name, batch=1, seed=5), method=method, metric=METRIC
    )
    assert other.effect.abs().max() > 1e-3


@pytest.mark.parametrize("method", ["mean", "resample"])
def test_patterns_are_replaced_by_position_wherever_padding_is(method):
    """Prompts of one length: padding on either side or within changes nothing."""
    model, tokens = build("gpt2"), prompts_of("gpt2", batch=3, pos=4)
    alike = {"method": method, "part": "pattern", "metric": METRIC, "seed": 1}
    holes = torch.full((3, 6), PAD)
    for row, columns in enumerate(([0, 1, 2, 3], [0, 2, 3, 5], [2, 3, 4, 5])):
        holes[row, columns] = tokens[row]
    plain = ablate(model, tokens, **alike)
    assert_close(ablate(model, holes, **alike).ablated, plain.ablated)
    point, at = where("L1H1", "pattern")
    of = torch.stack(recorded(model, [(row,) for row in tokens], "pattern", {"layer": 1}))[:, 1]
    row, _ = donor_tokens(tokens != PAD, 1)
    values = of.mean(0) if method == "mean" else of[row[:, 0]]
    expected = edited(model, [tokens], [edits.replace(point, values, **at)])
    assert_close(plain.ablated[plain.cells["name"].index("L1H1")], expected)


# ---- algebra -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["zero", "mean", "resample"])
def test_groups_of_one_are_the_heads_and_of_none_change_nothing(method):
    model, tokens = build("gpt2"), of_lengths((4, 2, 5))
    heads = ablate(model, tokens, method=method, metric=METRIC)
    groups = {f"group {name}": [name] for (name,) in heads.members} | {"nothing": []}
    ablation = ablate(model, tokens, units=groups, method=method, metric=METRIC)
    assert_close(ablation.ablated[:-1], heads.ablated)
    assert torch.equal(ablation.ablated[-1], ablation.clean)
    assert heads.effect.abs().max() > 1e-3


@pytest.mark.parametrize("method", ["zero", "mean", "resample"])
def test_one_group_of_none_changes_nothing(method):
    model, (tokens,) = build("gpt2"), tokens_of("gpt2")
    result = ablate(model, tokens, units={"none": []}, method=method, metric="loss")
    assert not result.effect.any()


@pytest.mark.parametrize("method", ["zero", "resample"])
def test_a_pair_has_no_order(method):
    model, tokens = build("gpt2"), of_lengths((4, 2, 5))
    groups = {"ab": ["L0H1", "L1H2"], "ba": ["L1H2", "L0H1"], "c": ["L0H0", "L0H2"]}
    effect = ablate(model, tokens, units=groups, method=method, metric=METRIC).effect
    assert_close(effect[0], effect[1])
    assert (effect[2] - effect[0]).abs().max() > 1e-3


def test_an_interaction_is_the_effect_together_less_the_effects_alone():
    model, tokens = build("gpt2"), of_lengths((4, 2, 5, 3, 6))
    heads = ablate(model, tokens, method="zero", metric=METRIC)
    alone = dict(zip(heads.cells["name"], heads.effect, strict=True))
    ablation = ablate(model, tokens, units="pairs", method="zero", metric=METRIC)
    assert len(ablation.members) == 6 + 15
    for row, members in enumerate(ablation.members):
        if len(members) == 1:
            assert_close(ablation.effect[row], alone[members[0]])
            assert ablation.interaction[row].isnan().all()
        else:
            a, b = members
            assert_close(ablation.interaction[row], ablation.effect[row] - alone[a] - alone[b])
    frame = ablation.to_interaction_frame()
    assert list(frame.columns)[:5] == ["first", "second", "name", "interaction", "low"]
    assert len(frame) == 15
    assert frame["size"].max() > 1e-3


def test_heads_whose_outputs_only_add_up_do_not_interact():
    """In the last layer, without a norm, a logit is linear in z; through the layer it isn't."""
    ablation = ablate(
        build("biased-seed"), prompts_of("biased-seed"), units="pairs", method="zero", metric=METRIC
    )
    size = ablation.to_interaction_frame().set_index("name")["size"]
    within = [name for name in size.index if name.count("L1") == 2]
    assert size[within].max() <= 1e-12
    assert size.drop(within).min() > 1e-6


@pytest.mark.parametrize("name", ["gpt2", "neox", "gemma2"])
def test_without_any_layer_the_embedding_is_read_out(name):
    """Zero ablation of a layer passes the stream on unchanged; of one of two it doesn't."""
    model, tokens = build(name), prompts_of(name)
    layers = ablate(model, tokens, units="layers", method="zero", metric=METRIC)
    every = [part for members in layers.members for part in members]
    ablation = ablate(model, tokens, units={"all": every}, method="zero", metric=METRIC)
    x = run(model, tokens, record="all").cache["resid_pre", 0]
    with torch.no_grad():
        logits = model.unembed(model.stacks[0].final_norm(x))
    assert_close(ablation.ablated[0], logits[:, -1, 3])
    assert (ablation.ablated - layers.ablated).abs().min() > 1e-3


def test_kl_is_the_divergence_from_the_model_itself():
    model, tokens = build("gpt2"), of_lengths((4, 2, 5, 3))
    ablation = ablate(model, tokens, method="zero", metric="kl", rows=2)
    assert ablation.clean.abs().max() <= 1e-12
    expected = ablate(model, tokens, method="zero", metric=metrics.kl(model(tokens)))
    assert_close(ablation.ablated, expected.ablated)
    assert ablation.effect.min() > 0


def test_the_short_form_has_the_same_numbers():
    model, tokens = build("gpt2"), of_lengths((4, 2, 5))
    for metric in ("kl", "loss"):
        short = ablate_heads(model, tokens, metric=metric)
        assert_close(ablate(model, tokens, metric=metric).ablated, short.ablated.flatten(0, 1))


def test_layers_restrict_every_kind_of_unit():
    model = build("t5")
    for units in ("heads", "layers", "mlps", "neurons", "pairs"):
        alike = {"units": units, "method": "zero", "metric": METRIC}
        whole = ablate(model, prompts_of("t5"), **alike)
        part = ablate(model, prompts_of("t5"), layers=[1], **alike)
        assert set(part.cells["name"]) < set(whole.cells["name"])
        assert "L0" not in " ".join(part.cells["name"])
        at = [whole.cells["name"].index(name) for name in part.cells["name"]]
        assert_close(part.ablated, whole.ablated[at])


# ---- interruption ------------------------------------------------------------------------------


@pytest.mark.parametrize("units", ["neurons", "pairs"])
def test_a_cancelled_call_returns_what_is_done_and_is_resumed(units):
    model, tokens, seen = build("gpt2"), of_lengths((4, 2, 5, 3, 6, 2)), []
    alike = {"units": units, "method": "resample", "metric": METRIC, "memory": 6e4}
    whole = ablate(model, tokens, progress=lambda *at: seen.append(at), **alike)
    assert seen[-1] == (len(whole.members),) * 2
    assert len(seen) > 4
    cells = []
    stop = {"progress": lambda *at: cells.append(at), "cancelled": lambda: bool(cells)}
    begun = ablate(model, tokens, **stop, **alike)
    done = ~begun.ablated.isnan()
    assert 0 < done.sum() < done.numel()
    assert torch.equal(begun.ablated[done], whole.ablated[done])
    assert "cancelled" in begun.summary()
    assert "partial" not in begun.payload()
    begun.figure()
    again = ablate(model, tokens, resume=begun.partial, **alike)
    assert torch.equal(again.ablated, whole.ablated)
    assert again.partial is None
    with pytest.raises(InvalidInput, match="resume"):
        ablate(model, tokens, resume=begun.partial, **alike | {"seed": 1})


# ---- what is shown -----------------------------------------------------------------------------


STATISTICS = ["effect", "low", "high", "size", "share", "n", "p", "q", "significant"]


@pytest.mark.parametrize(
    ("name", "units", "columns"),
    [
        ("gpt2", "heads", ["layer", "head", "name"]),
        ("t5", "heads", ["stack", "layer", "head", "name"]),
        ("t5", "layers", ["stack", "layer", "name"]),
        ("gpt2", "neurons", ["layer", "neuron", "name"]),
        ("gpt2", "pairs", ["first", "second", "name"]),
        ("gpt2", {"few": ["L0H1", "L1MLP"]}, ["name", "members"]),
    ],
)
def test_frames_name_the_units_then_the_statistics(name, units, columns):
    model, alike = build(name), {"units": units, "method": "zero", "metric": METRIC}
    ablation = ablate(model, prompts_of(name, batch=6), **alike)
    frame, long = ablation.to_frame(), ablation.to_prompt_frame()
    assert list(frame.columns) == columns + STATISTICS
    assert list(long.columns) == [*columns, "prompt", "clean", "ablated", "effect"]
    assert len(long) == 6 * len(frame)
    mean_effect = long.groupby("name")["effect"].mean()
    assert frame.set_index("name")["effect"].sub(mean_effect).abs().max() <= 1e-12


def test_the_map_of_heads_has_a_row_a_layer_of_each_stack():
    ablation = ablate(build("uneven-pair"), prompts_of("uneven-pair"), method="zero", metric=METRIC)
    figure = ablation.figure()
    rows = ["encoder 0", "encoder 1", "decoder 0", "cross 0"]
    assert list(figure.layout.yaxis.ticktext) == rows
    z = torch.tensor(figure.data[0].z, dtype=torch.float64)
    assert torch.equal(z.flatten(), ablation.effect.mean(-1))


def test_the_map_of_pairs_is_symmetric_and_empty_on_the_diagonal():
    ablation = ablate(
        build("gpt2"), prompts_of("gpt2"), units="pairs", method="zero", metric=METRIC
    )
    figure = ablation.figure()
    z = torch.tensor(
        [[nan if value is None else value for value in row] for row in figure.data[0].z]
    )
    assert torch.equal(z.isnan(), torch.eye(6, dtype=torch.bool))
    assert torch.equal(z.nan_to_num(), z.T.nan_to_num())
    assert list(figure.layout.xaxis.ticktext) == list(figure.layout.yaxis.ticktext)


def test_bars_show_the_largest_of_many():
    model = interp.load("rasp-reverse")
    ablation = ablate(model, ["abcd", "dca"], units="neurons", method="zero", metric="kl")
    frame, figure = ablation.to_frame(), ablation.figure()
    assert ablation.mean_effects() == frame.set_index("name")["effect"].to_dict()
    assert len(frame) > 40 == len(figure.data[0].x)
    assert list(figure.data[0].x) == pytest.approx(frame["effect"].head(40).tolist())
    few = ablate(model, ["abcd", "dca"], units="layers", method="zero", metric="kl").figure()
    assert list(few.layout.yaxis.ticktext) == ["L0", "L1", "L2"]


# ---- what it refuses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"units": "head"}, "heads, layers, mlps, neurons, features, pairs, or groups"),
        ({"units": {}}, "one or more groups"),
        ({"units": {"a": ["L0H1"]}, "layers": [0]}, "no layers="),
        ({"units": {"a": ["L0H1", "L0H1"]}}, "'a' names a component twice"),
        ({"layers": [2]}, "layers=2 must be an integer from 0 to 1"),
        ({"layers": []}, r"no heads in layers=\[\]"),
        ({"part": "q"}, "z, pattern, v"),
        ({"method": "one"}, "zero, mean, resample"),
        ({"metric": "los"}, '"loss", "kl"'),
        ({"method": "resample", "per_position": True}, 'method="mean"'),
        ({"method": "zero", "reference": torch.tensor([[1]])}, "has no use for reference="),
        ({"reference": torch.tensor([[1, 2]]), "per_position": True}, "up to 2 tokens"),
        ({"part": "pattern"}, "same length; these have 2 to 4 tokens"),
    ],
)
def test_what_it_refuses(settings, message):
    with pytest.raises(InvalidInput, match=message):
        ablate(build("gpt2"), of_lengths((4, 2)), **settings)


def single_head():
    attention = interp.AttentionConfig(n_heads=1, d_head=4)
    stack = interp.StackConfig(n_layers=1, attention=attention)
    return interp.Transformer(interp.Config(d_model=4, d_vocab=13, n_ctx=8, decoder=stack))


def test_what_a_model_does_not_have_is_refused_by_name():
    tokens = prompts_of("gpt2")
    with pytest.raises(UnknownPlace, match=r"'L0H3'. Nearest: L0H"):
        ablate(build("gpt2"), tokens, units={"a": ["L0H3"]})
    with pytest.raises(InvalidInput, match="no pairs"):
        ablate(single_head(), tokens, units="pairs")
    with pytest.raises(InvalidInput, match="no mlps"):
        ablate(build("seed"), prompts_of("seed"), units="mlps")
    with pytest.raises(InvalidInput, match="L0MLP is a mixture of experts"):
        ablate(build("mixtral"), prompts_of("mixtral"), units="neurons")
    with pytest.raises(InvalidInput, match="both as the tuple"):
        ablate(build("t5"), tokens)
    with pytest.raises(InvalidInput, match="at least two prompts"):
        ablate(build("gpt2"), tokens[:1], method="resample")


@pytest.mark.parametrize(
    ("architecture", "method"),
    [("llama", "mean"), ("gpt2", "zero"), ("t5", "resample"), ("bert", "mean")],
)
def test_an_estimate_is_the_derivative_along_the_replacement(architecture, method):
    """d/dε of the metric with x + ε·(replacement − x) in place of x, at ε = 0."""
    model, prompts, step = build(architecture), prompts_of(architecture), 1e-5
    settings = {"metric": METRIC, "method": method}
    estimated = ablate(model, prompts, estimate=True, **settings)
    measured = ablate(model, prompts, **settings)
    assert_close(estimated.clean, measured.clean)
    assert estimated.cells == measured.cells
    batches = model.batches(prompts)
    heads = components_of(model).heads
    replaced = Replacements(model, batches, method).edits(heads)
    for head, effect in zip(heads, estimated.effect, strict=True):
        whole = run(model, *batches, record=[head.place], edits=[replaced[head.name]])
        plain = run(model, *batches, record=[head.place])
        change = whole.cache[head.place] - plain.cache[head.place]
        ends = [
            METRIC(run(model, *batches, edits=[edits.add(head.place, x)]).logits, batches[-1])
            for x in (step * change, -step * change)
        ]
        quotient = (ends[0] - ends[1]) / (2 * step)
        assert quotient.tolist() == pytest.approx(effect.tolist(), rel=1e-5, abs=1e-8)
    assert not torch.allclose(estimated.effect, measured.effect, rtol=1e-3)


def test_only_the_units_with_the_largest_estimates_are_measured():
    model, prompts = build("llama"), prompts_of("llama")
    estimated, every, few = (
        ablate(model, prompts, metric=METRIC, **settings)
        for settings in ({"estimate": True}, {}, {"largest": 2})
    )
    sizes = estimated.effect.abs().mean(-1).tolist()
    names = {estimated.cells["name"][sizes.index(size)] for size in sorted(sizes)[-2:]}
    assert {*few.cells["name"]} == names
    rows = [every.cells["name"].index(name) for name in few.cells["name"]]
    assert_close(few.effect, every.effect[rows])
    assert f"the 2 of {len(sizes)} units with the largest first-order estimates" in few.summary()
    assert not few.is_estimate
    all_of_them = ablate(model, prompts, metric=METRIC, largest=len(sizes))
    assert torch.equal(all_of_them.ablated, every.ablated)
    assert all_of_them.notes == every.notes


def test_an_estimate_is_named_as_one():
    model, prompts = build("llama"), prompts_of("llama")
    estimated, measured = (
        ablate(model, prompts, metric=METRIC, estimate=estimate) for estimate in (True, False)
    )
    assert "(mean ablation, estimated to first order)" in estimated.headline()
    assert estimated.drawing().title.startswith("Estimated change of")
    assert "stimate" not in measured.summary() + measured.drawing().title
    bars = ablate(model, prompts, metric=METRIC, units="layers", estimate=True).drawing()
    assert bars.title.startswith("Estimated change of")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "kl"}, 'from one gradient, which excludes metric="kl"'),
        ({"units": "pairs"}, 'excludes units="pairs"'),
        ({"units": "pairs", "largest": 2, "estimate": False}, "largest=2: .* excludes units="),
        ({"largest": 2}, "estimate=True: .* excludes largest="),
    ],
)
def test_what_has_no_first_order_estimate_is_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        ablate(build("llama"), prompts_of("llama"), **({"estimate": True} | settings))
    with pytest.raises(InvalidInput, match="no gradient"):
        ablate(build("llama"), prompts_of("llama"), estimate=True, metric=metrics.accuracy(1))


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, prompts, n):
    result = ablate(model, prompts, units="layers", method="zero", metric=METRIC)
    return [{"clean": result.clean[i], "ablated": result.ablated[:, i]} for i in range(n)]


def ablation(units, **settings):
    return lambda case: ablate(case.model, case.clean, units=units, metric=case.metric, **settings)


DECLARED = Declared(
    analysis=ablate,
    made=Made(
        lambda: ablate(example.model(), ["abcab", "xyxy"], units="pairs"), ("effect", "effect")
    ),
    call=Call(
        (small.MODEL, small.CLEAN),
        small.METRIC,
        {
            "units": (*odd.CHOICE, {"a": 3}, {"a": [3]}, {"a": ["L0H0", "L0H0"]}),
            "layers": (odd.TEXT, 1, odd.BROKEN, odd.LISTED, [odd.BELOW], [odd.BROKEN], [True], []),
            "method": odd.CHOICE,
            "part": odd.CHOICE,
            "per_position": odd.SWITCH,
            "metric": odd.CHOICE,
            "estimate": odd.SWITCH,
            "largest": tuple(value for value in odd.COUNT if value is not None),
            **odd.SAMPLED,
            **odd.SWEPT,
        },
    ),
    command=Command(
        "ablate",
        ("--units", "layers"),
        "layers",
        "largest effect of 2 layers (mean ablation)",
        "units=heads metric=None method=mean part=z layers=None reference=None per_position=False "
        "estimate=False largest=None",
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair={"": numbers_of_prompts},
    symmetric=Symmetric(
        {
            "heads": ablation("heads", part="pattern", method="zero"),
            "key/value heads": ablation("heads", part="v"),
            "layers": ablation("layers"),
            "estimated": ablation("heads", estimate=True),
            "mlps": ablation("mlps", per_position=True),
            "neurons": ablation("neurons"),
            "pairs": ablation("pairs", method="zero"),
        },
        of_experts=("mlps",),
    ),
)
