"""In every analysis, each prompt has the numbers that it has alone, in whatever form it is given.

Prompts are padded on either side or anywhere, have token types, are images or texts, or come as a
ready-made batch. A new analysis needs a line in ``ANALYSES``.
"""

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    D_MODEL,
    D_VOCAB,
    PLAIN,
    assert_close,
    build,
    in_turn,
    padded,
    tokens_of,
)
from torch import Tensor

import analyses
from analyses import (
    ablate,
    ablate_heads,
    attention_pattern,
    attention_patterns,
    attention_statistics,
    attribute_edges,
    attribute_nodes,
    direct_logit_attribution,
    explain,
    logit_lens,
    neurons,
    order_sensitivity,
    patch_activations,
    patch_paths,
    predictions,
    prune,
    steer,
    top_texts,
    train_lens,
)
from interp import (
    PAD,
    Config,
    EmbeddingConfig,
    MLPConfig,
    PatchConfig,
    StackConfig,
    Transformer,
    computation_graph,
    edits,
    load,
    metrics,
    run,
)
from interp.errors import InvalidInput
from interp.metrics.logits import at_position
from interp.model.batch import Batch, ImageInput

METRIC = metrics.logit(3)
Rows = list[dict[str, Tensor]]
"""The numbers of each prompt, by name."""


def row_of(given: Any, number: int) -> Any:
    """One prompt of several, with the padding that it has beside the others."""
    if isinstance(given, Batch):
        return given.rows(torch.tensor([number]))
    if isinstance(given[0], Batch):
        return [row_of(given[0], number)]
    return given[number : number + 1]


def ablated(model: Transformer, given: Any, n: int, **settings: Any) -> Rows:
    result = ablate_heads(model, given, metric=METRIC, **settings)
    return [{"clean": result.clean[i], "ablated": result.ablated[..., i]} for i in range(n)]


def ablated_layers(model: Transformer, given: Any, n: int) -> Rows:
    result = ablate(model, given, units="layers", method="zero", metric=METRIC)
    return [{"clean": result.clean[i], "ablated": result.ablated[:, i]} for i in range(n)]


def patterns(model: Transformer, given: Any, n: int) -> Rows:
    shown = [attention_pattern(model, row_of(given, i), 1, 2) for i in range(n)]
    assert all(one.pattern.shape == (len(one.query_tokens), len(one.key_tokens)) for one in shown)
    return [{"pattern": one.pattern} for one in shown]


def all_patterns(model: Transformer, given: Any, n: int) -> Rows:
    shown = [attention_patterns(model, row_of(given, i), weighted=True) for i in range(n)]
    for one in shown:
        assert {own.shape[1:] for own in one.patterns} == {
            (len(one.query_tokens), len(one.key_tokens))
        }
    return [{f"layer {n}": own for n, own in enumerate(one.patterns)} for one in shown]


def patterns_of_pairs(attention: str) -> Callable[[Transformer, Any, int], Rows]:
    def patterns(model: Transformer, given: Any, n: int) -> Rows:
        rows = [[row_of(own, i) for own in given] for i in range(n)]
        shown = [
            attention_pattern(model, source, 0, 2, target=target, attention=attention)
            for source, target in rows
        ]
        return [{"pattern": one.pattern} for one in shown]

    return patterns


def statistics(model: Transformer, given: Any, n: int, **settings: Any) -> Rows:
    found = attention_statistics(model, given, **settings)
    numbers = {"values": found.value, "uniform": found.uniform}
    return [{name: x[..., i, :].nan_to_num(-1) for name, x in numbers.items()} for i in range(n)]


def lenses(model: Transformer, given: Any, n: int) -> Rows:
    found = logit_lens(model, given)
    numbers = {name: getattr(found, name) for name in ("entropy", "kl", "probability")}
    return [{name: x[:, i, found.real[i]] for name, x in numbers.items()} for i in range(n)]


def predicted(model: Transformer, given: Any, n: int, *, ablate: str = "L1H0") -> Rows:
    found = predictions(model, given, targets=3, distractors=2, ablate=[ablate], method="zero")
    numbers = {"surprisal": found.surprisal.nan_to_num(-1.0), "kl": found.kl[None]}
    real = found.kl.isfinite()
    return [
        {
            **{name: x[:, i, real[i]] for name, x in numbers.items()},
            "probability": found.probability[:, :, i],
            "answers": found.answer_logit[..., i],
        }
        for i in range(n)
    ]


def attributed(model: Transformer, given: Any, n: int) -> Rows:
    found = direct_logit_attribution(model, given, target=3, by="source")
    real = [torch.tensor([token is not None for token in row]) for row in found.tokens]
    return [
        {"terms": found.effect[:, i], "sources": found.by_source[:, i, real[i]]} for i in range(n)
    ]


def ordered(model: Transformer, given: Any, n: int, **settings: Any) -> Rows:
    found = order_sensitivity(model, given, permutations=["random"], draws=1, **settings)
    numbers = {"values": found.value, "unmoved": found.unmoved}
    return [{name: x[..., i].nan_to_num(-1) for name, x in numbers.items()} for i in range(n)]


def other_tokens(model: Transformer, given: Any, stack: str | None = None) -> Batch:
    """The same prompts with every token or pixel changed."""
    listed = isinstance(given, list) and isinstance(given[0], Batch)
    batch = model.batch(given[0] if listed else given, stack=stack)
    if batch.images is not None:
        return replace(batch, images=batch.images + 1)
    return replace(batch, ids=(batch.ids + 1) % model.d_vocab)


def paths(model: Transformer, given: Any, n: int) -> Rows:
    graph = computation_graph(model)
    edges = [(writer.name, reader.name) for writer, reader in graph.edges[::7]]
    other = other_tokens(model, given)
    result = patch_paths(model, given, other, metric=METRIC, edges=edges)
    return [{"clean": result.clean[i], "patched": result.patched[:, i]} for i in range(n)]


def attributed_edges(model: Transformer, given: Any, n: int) -> Rows:
    result = attribute_edges(
        model, given, other_tokens(model, given), metric=METRIC, steps=2, check=0
    )
    return [{"effect": result.effect[:, i], "sums": result.sum[:, i]} for i in range(n)]


def explained(model: Transformer, given: Any, n: int) -> Rows:
    """Which circuit is found depends on all prompts; its ends are those of each."""
    result = explain(model, given, other_tokens(model, given), metric=METRIC, steps=2)
    return [{"whole": result.whole[i], "empty": result.empty[i]} for i in range(n)]


def attributed_nodes(model: Transformer, given: Any, n: int) -> Rows:
    result = attribute_nodes(model, given, other_tokens(model, given), metric=METRIC, check=1)
    return [{"clean": result.clean[i], "effect": result.effect[:, i]} for i in range(n)]


def pruned(model: Transformer, given: Any, n: int) -> Rows:
    graph = computation_graph(model)
    scores = {(w.name, r.name): float(i % 7) for i, (w, r) in enumerate(graph.edges)}
    result = prune(
        scores, model, given, other_tokens(model, given), metric=metrics.prob(3), draws=1
    )
    return [{"values": result.value[:, i], "empty": result.empty[i]} for i in range(n)]


def patched(model: Transformer, given: Any, n: int) -> Rows:
    if isinstance(given, list) and isinstance(given[0], str):
        given = [2 * text for text in given]  # of which the last token is predicted
    several = isinstance(given, list | tuple) and not isinstance(given[0], str)
    pair = given if several else (given,)
    done = run(model, *pair)
    metric = metrics.logit(at_position(done.logits, done.batch, None).argmax(-1))
    names = [stack.name for stack in model.stacks]
    other = tuple(other_tokens(model, own, name) for name, own in zip(names, pair, strict=True))
    found = patch_activations(model, given, other, metric=metric, at=["resid_pre", "z"])
    lengths = found.lengths.tolist()
    return [{"patched": found.patched[..., : lengths[i], i]} for i in range(n)]


def trained(model: Transformer, given: Any, n: int) -> Rows:
    """Held out, each prompt is measured by the same lens."""
    found = train_lens(model, training_prompts(model), held_out=given, steps=1)
    kl = {"logit lens": found.logit_lens, "tuned lens": found.tuned_lens}
    return [{name: own[:, i] for name, own in kl.items()} for i in range(n)]


def top_cells(model: Transformer, given: Any, n: int, of: str = "L1H0") -> Rows:
    """Every cell of each prompt, by position and key."""
    found = top_texts(model, given, of=of, top=1000)
    order = (found.pos * 1000 + found.key).argsort(stable=True)
    control = found.control.nan_to_num(-1.0)  # of images
    return [
        {"value": found.value[own], "control": control[own]}
        for own in (order[found.text[order] == i] for i in range(n))
    ]


def all_neurons(model: Transformer, given: Any, n: int, stack: str | None = None) -> Rows:
    """Every activation of each prompt, and what its ablation does."""
    settings = {"layer": 0, "stack": stack, "top": 1000, "method": "zero", "metric": METRIC}
    found = neurons(model, given, **settings)
    order = found.pos.argsort(dim=-1, stable=True)
    text, value = (own.gather(-1, order) for own in (found.text, found.value))
    return [
        {
            "value": torch.stack([v[t == i] for v, t in zip(value, text, strict=True)]),
            "clean": found.ablation.clean[i],
            "ablated": found.ablation.ablated[:, i],
        }
        for i in range(n)
    ]


def steered(model: Transformer, given: Any, n: int) -> Rows:
    """With a fixed vector, each prompt has the continuation that it has alone."""
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(model.d_model, generator=generator, dtype=torch.float64)
    found = steer(model, given, vector=vector, layer=0, new_tokens=3)
    numbers = {"kl": found.kl, "control": found.control, "steered": found.steered.double()}
    return [{name: own[:, i] for name, own in numbers.items()} for i in range(n)]


def training_prompts(model: Transformer) -> Any:
    read_by = model.stacks[0].input
    if isinstance(read_by, ImageInput):
        shape = (read_by.patches.channels, read_by.patches.height, read_by.patches.width)
        return torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    own = tokens_of(model.config)
    return own if len(own) > 1 else own[0]


ANALYSES = {
    "ablate": ablated_layers,
    "ablate_heads": lambda model, given, n: ablated(model, given, n, method="zero"),
    "attention_pattern": patterns,
    "attention_patterns": all_patterns,
    "attribute_edges": attributed_edges,
    "attribute_nodes": attributed_nodes,
    "direct_logit_attribution": attributed,
    "attention_statistics": statistics,
    "explain": explained,
    "logit_lens": lenses,
    "order_sensitivity": ordered,
    "neurons": all_neurons,
    "patch_paths": paths,
    "prune": pruned,
    "patch_activations": patched,
    "predictions": predicted,
    "steer": steered,
    "top_texts": top_cells,
    "train_lens": trained,
}
NO_EDGES = ("a ready-made batch of an encoder", "a mask", "token types")
"""Prompts of a model whose norms change the stream."""
OF_EDGES = ("attribute_edges", "explain", "patch_paths", "prune")
REFUSED = {(name, given) for name in OF_EDGES for given in NO_EDGES}
# One of the texts is answered alike by all edges and by none.
REFUSED |= {(name, "texts") for name in ("explain", "prune")}
REFUSED |= {
    ("steer", given)
    for given in (*NO_EDGES, "images", "a ready-made batch of images")  # of encoders
}
REFUSED.add(("neurons", "texts"))  # of which the model has none
OF_PAIRS = {
    f"attention_pattern, {which}": patterns_of_pairs(which)
    for which in ("encoder", "decoder", "cross")
}
OF_PAIRS["direct_logit_attribution"] = lambda model, given, n: attributed(model, tuple(given), n)
OF_PAIRS |= {
    f"attention_statistics, {which}": lambda model, given, n, which=which: statistics(
        model, tuple(given), n, attention=which
    )
    for which in ("encoder", "decoder", "cross")
}
OF_PAIRS["order_sensitivity"] = lambda model, given, n: ordered(model, tuple(given), n)
OF_PAIRS["order_sensitivity, own"] = lambda model, given, n: ordered(
    model, tuple(given), n, scope="own"
)
OF_PAIRS["ablate"] = lambda model, given, n: ablated_layers(model, tuple(given), n)
OF_PAIRS |= {
    f"top_texts, {of}": lambda model, given, n, of=of: top_cells(model, tuple(given), n, of)
    for of in ("encoder.L1H0", "decoder.L1H2", "cross.L0H1", "decoder.L0N3")
}
OF_PAIRS["steer"] = lambda model, given, n: steered(model, tuple(given), n)
OF_PAIRS |= {
    f"neurons, {which}": lambda model, given, n, which=which: all_neurons(
        model, tuple(given), n, which
    )
    for which in ("encoder", "decoder")
}
OF_PAIRS["train_lens"] = lambda model, given, n: trained(model, tuple(given), n)
OF_PAIRS |= {
    f"predictions, {head}": lambda model, given, n, head=head: predicted(
        model, tuple(given), n, ablate=head
    )
    for head in ("encoder.L1H0", "decoder.L1H2", "cross.L0H1")
}
OF_PAIRS["logit_lens"] = lambda model, given, n: lenses(model, tuple(given), n)
OF_PAIRS["patch_activations"] = lambda model, given, n: patched(model, tuple(given), n)


# ---- prompts as they come: all together, and each alone --------------------------------------


def ids_of(lengths: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(D_VOCAB, (length,), generator=generator) for length in lengths]


def tokens(side: str) -> tuple[Transformer, Any, list[Any]]:
    rows = ids_of((4, 2, 6))
    return build("gpt2"), padded(rows, side, extra=1), [row[None] for row in rows]


def with_holes() -> tuple[Transformer, Any, list[Any]]:
    a, b, c = (int(token) for token in ids_of((3,))[0])
    given = torch.tensor([[a, PAD, b, c], [PAD, c, PAD, a]])
    return build("llama"), given, [torch.tensor([[a, b, c]]), torch.tensor([[c, a]])]


def ready_made(name: str) -> tuple[Transformer, Any, list[Any]]:
    model, rows = build(name), ids_of((4, 2, 6))
    given = padded(rows, "left")
    return model, model.batch(given), [model.batch(row) for row in rows]


def in_a_list() -> tuple[Transformer, Any, list[Any]]:
    """As ``model.check`` returns it."""
    model, given, each = ready_made("gpt2")
    return model, [given], [[one] for one in each]


def masked() -> tuple[Transformer, Any, list[Any]]:
    model, rows = build("bert"), ids_of((4, 2, 6))
    given = padded(rows, "right")
    return (
        model,
        model.batch(given.where(given != PAD, 7), mask=given != PAD),
        [r[None] for r in rows],
    )


def typed() -> tuple[Transformer, Any, list[Any]]:
    model, rows = build(replace(ARCHITECTURES["bert-types"], head=None)), ids_of((4, 3, 6))
    types = [(torch.arange(len(row)) >= 2).long() for row in rows]
    given = model.batch(padded(rows, "left"), types=padded(types, "left").clamp(min=0))
    return model, given, [model.batch(row, types=t) for row, t in zip(rows, types, strict=True)]


def images(*, batch: bool) -> tuple[Transformer, Any, list[Any]]:
    patches = EmbeddingConfig(patches=PatchConfig(4, 6, 2, channels=2, n_special=2))
    stack = StackConfig(2, PLAIN, MLPConfig(10), embedding=patches)
    model = build(Config(D_MODEL, 7, 8, encoder=stack, bias_u=True))
    given = torch.randn(3, 2, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return model, model.batch(given) if batch else given, list(given.split(1))


def texts() -> tuple[Transformer, Any, list[Any]]:
    given = ["QxmvQxm", "ab", "abcab"]
    return load("induction-by-hand"), given, given


GIVEN = {
    "padded left": lambda: tokens("left"),
    "padded right": lambda: tokens("right"),
    "padded within": with_holes,
    "a ready-made batch": lambda: ready_made("gemma2"),
    "a ready-made batch of an encoder": lambda: ready_made("bert"),
    "a list of a ready-made batch": in_a_list,
    "a mask": masked,
    "token types": typed,
    "images": lambda: images(batch=False),
    "a ready-made batch of images": lambda: images(batch=True),
    "texts": texts,
}


ALIKE = [
    ("padded left", "padded right", "a list of a ready-made batch"),
    ("a ready-made batch of an encoder", "a mask"),
    ("images", "a ready-made batch of images"),
    ("padded within", "token types", "texts"),
]
"""Kinds of prompts that run almost the same code; all but the last three are of one model."""


def given_in_turn() -> list[Any]:
    """Every analysis with every kind of prompts; all are slow but, of every second analysis, one of
    each group of similar kinds."""
    found = []
    for turn, name in enumerate(ANALYSES):
        allowed = [given for given in GIVEN if (name, given) not in REFUSED]
        later = {g for own in ALIKE for g in own if g != own[turn % len(own)]}
        if turn % 2 or name == "explain":  # which takes a second
            later = set(allowed)
        found += [
            pytest.param(name, given, marks=[pytest.mark.slow] if given in later else [])
            for given in allowed
        ]
    return found


@pytest.mark.parametrize(("analysis", "given"), given_in_turn())
def test_each_prompt_has_the_numbers_that_it_has_alone(analysis, given):
    model, together, each = GIVEN[given]()
    bound = 1e-12 if model.dtype == torch.float64 else 1e-5
    found = ANALYSES[analysis](model, together, len(each))
    for number, prompt in enumerate(each):
        alone = ANALYSES[analysis](model, [prompt] if isinstance(prompt, str) else prompt, 1)[0]
        assert found[number].keys() == alone.keys()
        for name, expected in alone.items():
            assert_close(found[number][name], expected, bound, name)


@pytest.mark.parametrize(("analysis", "given"), sorted(REFUSED))
def test_a_question_that_a_model_does_not_have_is_refused(analysis, given):
    model, together, each = GIVEN[given]()
    with pytest.raises(
        InvalidInput,
        match=r"normalizes the stream itself|faithfulness is undefined|no MLP|continue a text",
    ):
        ANALYSES[analysis](model, each[0:1] if given == "texts" else together, len(each))


@pytest.mark.parametrize(("analysis", "ready"), in_turn(OF_PAIRS, [False, True], OF_PAIRS))
def test_each_pair_has_the_numbers_that_it_has_alone(analysis, ready):
    sides = ("right", "left") if ready else ("left", "right")
    model, sources, targets = build("t5"), ids_of((3, 5)), ids_of((4, 2), seed=1)
    given = [padded(rows, side) for rows, side in zip((sources, targets), sides, strict=True)]
    if ready:
        given = model.check(*given)
    found = OF_PAIRS[analysis](model, given, 2)
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alone = OF_PAIRS[analysis](model, (source[None], target[None]), 1)[0]
        for name, expected in alone.items():
            assert_close(found[number][name], expected, what=name)


def test_every_analysis_of_prompts_is_in_the_table():
    of_models = {
        name
        for name, function in analyses.available().items()
        if next(iter(signature(function).parameters)) == "model"
    }
    without_prompts = {"composition", "head_roles", "ov", "positions", "qk"}
    drawing_their_own = {"frequencies", "permutation_covariance"}
    of_all_prompts_together, of_scores = {"erase", "probe"}, {"prune"}
    left_out = without_prompts | drawing_their_own | of_all_prompts_together
    assert of_models | of_scores == set(ANALYSES) | left_out


REPLACED = ["token types", "images", "padded within"]


@pytest.mark.parametrize("given", REPLACED)
def test_the_mean_of_z_is_that_over_the_prompts_as_each_is_alone(given):
    model, together, each = GIVEN[given]()
    z = torch.cat([run(model, one, record="z").cache["z", 1].flatten(0, 1) for one in each])
    edit = edits.replace("z", z.mean(0)[2], layer=1, head=2)
    found = ablated(model, together, len(each), method="mean")
    for row, prompt in zip(found, each, strict=True):
        done = run(model, prompt, edits=[edit])
        assert_close(row["ablated"][1, 2], METRIC(done.logits, done.batch)[0])


@pytest.mark.parametrize("method", ["mean", "resample"])
@pytest.mark.parametrize("given", REPLACED)
def test_recording_z_in_parts_changes_nothing(given, method):
    model, together, each = GIVEN[given]()
    few, whole = (ablated(model, together, len(each), method=method, rows=n) for n in (2, 64))
    for one, other in zip(few, whole, strict=True):
        assert_close(one["ablated"], other["ablated"])
