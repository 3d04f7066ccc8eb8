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
    head_effects,
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


def row_of(prompts: Any, number: int) -> Any:
    """One prompt of several, with the padding that it has beside the others."""
    if isinstance(prompts, Batch):
        return prompts.rows(torch.tensor([number]))
    if isinstance(prompts[0], Batch):
        return [row_of(prompts[0], number)]
    return prompts[number : number + 1]


def ablated(model: Transformer, prompts: Any, n: int, **settings: Any) -> Rows:
    result = ablate_heads(model, prompts, metric=METRIC, **settings)
    return [{"clean": result.clean[i], "ablated": result.ablated[..., i]} for i in range(n)]


def ablated_layers(model: Transformer, prompts: Any, n: int) -> Rows:
    result = ablate(model, prompts, units="layers", method="zero", metric=METRIC)
    return [{"clean": result.clean[i], "ablated": result.ablated[:, i]} for i in range(n)]


def patterns(model: Transformer, prompts: Any, n: int) -> Rows:
    results = [attention_pattern(model, row_of(prompts, i), 1, 2) for i in range(n)]
    assert all(
        result.pattern.shape == (len(result.query_tokens), len(result.key_tokens))
        for result in results
    )
    return [{"pattern": result.pattern} for result in results]


def all_patterns(model: Transformer, prompts: Any, n: int) -> Rows:
    results = [attention_patterns(model, row_of(prompts, i), weighted=True) for i in range(n)]
    for result in results:
        assert {pattern.shape[1:] for pattern in result.patterns} == {
            (len(result.query_tokens), len(result.key_tokens))
        }
    return [
        {f"layer {n}": pattern for n, pattern in enumerate(result.patterns)} for result in results
    ]


def patterns_of_pairs(attention: str) -> Callable[[Transformer, Any, int], Rows]:
    def patterns(model: Transformer, pair: Any, n: int) -> Rows:
        rows = [[row_of(prompts, i) for prompts in pair] for i in range(n)]
        results = [
            attention_pattern(model, source, 0, 2, target=target, attention=attention)
            for source, target in rows
        ]
        return [{"pattern": result.pattern} for result in results]

    return patterns


def statistics(model: Transformer, prompts: Any, n: int, **settings: Any) -> Rows:
    result = attention_statistics(model, prompts, **settings)
    numbers = {"values": result.value, "uniform": result.uniform}
    return [{name: x[..., i, :].nan_to_num(-1) for name, x in numbers.items()} for i in range(n)]


def lenses(model: Transformer, prompts: Any, n: int) -> Rows:
    result = logit_lens(model, prompts)
    numbers = {name: getattr(result, name) for name in ("entropy", "kl", "probability")}
    return [{name: x[:, i, result.real[i]] for name, x in numbers.items()} for i in range(n)]


def predicted(model: Transformer, prompts: Any, n: int, *, ablate: str = "L1H0") -> Rows:
    result = predictions(model, prompts, targets=3, distractors=2, ablate=[ablate], method="zero")
    numbers = {"surprisal": result.surprisal.nan_to_num(-1.0), "kl": result.kl[None]}
    real = result.kl.isfinite()
    return [
        {
            **{name: x[:, i, real[i]] for name, x in numbers.items()},
            "probability": result.probability[:, :, i],
            "answers": result.answer_logit[..., i],
        }
        for i in range(n)
    ]


def attributed(model: Transformer, prompts: Any, n: int) -> Rows:
    result = direct_logit_attribution(model, prompts, target=3, by="source")
    real = [torch.tensor([token is not None for token in row]) for row in result.tokens]
    return [
        {"terms": result.effect[:, i], "sources": result.by_source[:, i, real[i]]} for i in range(n)
    ]


def effects_of_heads(model: Transformer, prompts: Any, n: int) -> Rows:
    """Attention that sums to 1, and two sides that sum to the effect."""
    result = head_effects(model, prompts, target=3, distractor=5, method="zero")
    bound = 1e-12 if model.dtype == torch.float64 else 1e-5
    for shares in (result.shares.sum(-1), result.uniform.sum(-1)):
        assert_close(shares, torch.ones_like(shares), bound)
    frame = result.to_prompt_frame()
    sides = torch.tensor((frame["to_target"] - frame["to_distractor"]).tolist())
    assert_close(sides, torch.tensor(frame["direct"].tolist()), bound)
    tensors = ("shares", "uniform", "strongest", "key", "direct", "of_target", "effect")
    return [{name: getattr(result, name)[:, i] for name in tensors} for i in range(n)]


def ordered(model: Transformer, prompts: Any, n: int, **settings: Any) -> Rows:
    result = order_sensitivity(model, prompts, permutations=["random"], draws=1, **settings)
    numbers = {"values": result.value, "unmoved": result.unmoved}
    return [{name: x[..., i].nan_to_num(-1) for name, x in numbers.items()} for i in range(n)]


def other_tokens(model: Transformer, prompts: Any, stack: str | None = None) -> Batch:
    """The same prompts with every token or pixel changed."""
    listed = isinstance(prompts, list) and isinstance(prompts[0], Batch)
    batch = model.batch(prompts[0] if listed else prompts, stack=stack)
    if batch.images is not None:
        return replace(batch, images=batch.images + 1)
    return replace(batch, ids=(batch.ids + 1) % model.d_vocab)


def paths(model: Transformer, prompts: Any, n: int) -> Rows:
    graph = computation_graph(model)
    edges = [(writer.name, reader.name) for writer, reader in graph.edges[::7]]
    other = other_tokens(model, prompts)
    result = patch_paths(model, prompts, other, metric=METRIC, edges=edges)
    return [{"clean": result.clean[i], "patched": result.patched[:, i]} for i in range(n)]


def attributed_edges(model: Transformer, prompts: Any, n: int) -> Rows:
    result = attribute_edges(
        model, prompts, other_tokens(model, prompts), metric=METRIC, steps=2, check=0
    )
    return [{"effect": result.effect[:, i], "sums": result.sum[:, i]} for i in range(n)]


def explained(model: Transformer, prompts: Any, n: int) -> Rows:
    """Which circuit is found depends on all prompts; its ends are those of each."""
    result = explain(model, prompts, other_tokens(model, prompts), metric=METRIC, steps=2)
    return [{"whole": result.whole[i], "empty": result.empty[i]} for i in range(n)]


def attributed_nodes(model: Transformer, prompts: Any, n: int) -> Rows:
    result = attribute_nodes(model, prompts, other_tokens(model, prompts), metric=METRIC, check=1)
    return [{"clean": result.clean[i], "effect": result.effect[:, i]} for i in range(n)]


def pruned(model: Transformer, prompts: Any, n: int) -> Rows:
    graph = computation_graph(model)
    scores = {(w.name, r.name): float(i % 7) for i, (w, r) in enumerate(graph.edges)}
    result = prune(
        scores, model, prompts, other_tokens(model, prompts), metric=metrics.prob(3), draws=1
    )
    return [{"values": result.value[:, i], "empty": result.empty[i]} for i in range(n)]


def patched(model: Transformer, prompts: Any, n: int) -> Rows:
    if isinstance(prompts, list) and isinstance(prompts[0], str):
        prompts = [2 * text for text in prompts]  # of which the last token is predicted
    several = isinstance(prompts, list | tuple) and not isinstance(prompts[0], str)
    pair = prompts if several else (prompts,)
    done = run(model, *pair)
    metric = metrics.logit(at_position(done.logits, done.batch, None).argmax(-1))
    names = [stack.name for stack in model.stacks]
    other = tuple(other_tokens(model, side, name) for name, side in zip(names, pair, strict=True))
    result = patch_activations(model, prompts, other, metric=metric, at=["resid_pre", "z"])
    lengths = result.lengths.tolist()
    return [{"patched": result.patched[..., : lengths[i], i]} for i in range(n)]


def trained(model: Transformer, prompts: Any, n: int) -> Rows:
    """Held out, each prompt is measured by the same lens."""
    result = train_lens(model, training_prompts(model), held_out=prompts, steps=1)
    kl = {"logit lens": result.logit_lens, "tuned lens": result.tuned_lens}
    return [{name: values[:, i] for name, values in kl.items()} for i in range(n)]


def top_cells(model: Transformer, prompts: Any, n: int, of: str = "L1H0") -> Rows:
    """Every cell of each prompt, by position and key."""
    result = top_texts(model, prompts, of=of, top=1000)
    order = (result.pos * 1000 + result.key).argsort(stable=True)
    control = result.control.nan_to_num(-1.0)  # of images
    return [
        {"value": result.value[cells], "control": control[cells]}
        for cells in (order[result.text[order] == i] for i in range(n))
    ]


def all_neurons(model: Transformer, prompts: Any, n: int, stack: str | None = None) -> Rows:
    """Every activation of each prompt, and what its ablation does."""
    settings = {"layer": 0, "stack": stack, "top": 1000, "method": "zero", "metric": METRIC}
    result = neurons(model, prompts, **settings)
    order = result.pos.argsort(dim=-1, stable=True)
    text, value = (cells.gather(-1, order) for cells in (result.text, result.value))
    return [
        {
            "value": torch.stack([v[t == i] for v, t in zip(value, text, strict=True)]),
            "clean": result.ablation.clean[i],
            "ablated": result.ablation.ablated[:, i],
        }
        for i in range(n)
    ]


def steered(model: Transformer, prompts: Any, n: int) -> Rows:
    """With a fixed vector, each prompt has the continuation that it has alone."""
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(model.d_model, generator=generator, dtype=torch.float64)
    result = steer(model, prompts, vector=vector, layer=0, new_tokens=3)
    numbers = {"kl": result.kl, "control": result.control, "steered": result.steered.double()}
    return [{name: values[:, i] for name, values in numbers.items()} for i in range(n)]


def training_prompts(model: Transformer) -> Any:
    read_by = model.stacks[0].input
    if isinstance(read_by, ImageInput):
        shape = (read_by.patches.channels, read_by.patches.height, read_by.patches.width)
        return torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    prompts = tokens_of(model.config)
    return prompts if len(prompts) > 1 else prompts[0]


ANALYSES = {
    "ablate": ablated_layers,
    "ablate_heads": lambda model, prompts, n: ablated(model, prompts, n, method="zero"),
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
    "head_effects": effects_of_heads,
}
NO_EDGES = ("a ready-made batch of an encoder", "a mask", "token types")
"""Prompts of a model whose norms change the stream."""
OF_EDGES = ("attribute_edges", "explain", "patch_paths", "prune")
REFUSED = {(name, kind) for name in OF_EDGES for kind in NO_EDGES}
# One of the texts is answered alike by all edges and by none.
REFUSED |= {(name, "texts") for name in ("explain", "prune")}
REFUSED |= {
    ("steer", kind)
    for kind in (*NO_EDGES, "images", "a ready-made batch of images")  # of encoders
}
REFUSED.add(("neurons", "texts"))  # of which the model has none
OF_PAIRS = {
    f"attention_pattern, {which}": patterns_of_pairs(which)
    for which in ("encoder", "decoder", "cross")
}
OF_PAIRS["direct_logit_attribution"] = lambda model, pair, n: attributed(model, tuple(pair), n)
OF_PAIRS |= {
    f"attention_statistics, {which}": lambda model, pair, n, which=which: statistics(
        model, tuple(pair), n, attention=which
    )
    for which in ("encoder", "decoder", "cross")
}
OF_PAIRS["order_sensitivity"] = lambda model, pair, n: ordered(model, tuple(pair), n)
OF_PAIRS["order_sensitivity, own"] = lambda model, pair, n: ordered(
    model, tuple(pair), n, scope="own"
)
OF_PAIRS["ablate"] = lambda model, pair, n: ablated_layers(model, tuple(pair), n)
OF_PAIRS |= {
    f"top_texts, {of}": lambda model, pair, n, of=of: top_cells(model, tuple(pair), n, of)
    for of in ("encoder.L1H0", "decoder.L1H2", "cross.L0H1", "decoder.L0N3")
}
OF_PAIRS["steer"] = lambda model, pair, n: steered(model, tuple(pair), n)
OF_PAIRS |= {
    f"neurons, {which}": lambda model, pair, n, which=which: all_neurons(
        model, tuple(pair), n, which
    )
    for which in ("encoder", "decoder")
}
OF_PAIRS["train_lens"] = lambda model, pair, n: trained(model, tuple(pair), n)
OF_PAIRS |= {
    f"predictions, {head}": lambda model, pair, n, head=head: predicted(
        model, tuple(pair), n, ablate=head
    )
    for head in ("encoder.L1H0", "decoder.L1H2", "cross.L0H1")
}
OF_PAIRS["logit_lens"] = lambda model, pair, n: lenses(model, tuple(pair), n)
OF_PAIRS["patch_activations"] = lambda model, pair, n: patched(model, tuple(pair), n)


# ---- prompts as they come: all together, and each alone --------------------------------------


def ids_of(lengths: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(D_VOCAB, (length,), generator=generator) for length in lengths]


def tokens(side: str) -> tuple[Transformer, Any, list[Any]]:
    rows = ids_of((4, 2, 6))
    return build("gpt2"), padded(rows, side, extra=1), [row[None] for row in rows]


def with_holes() -> tuple[Transformer, Any, list[Any]]:
    a, b, c = (int(token) for token in ids_of((3,))[0])
    ids = torch.tensor([[a, PAD, b, c], [PAD, c, PAD, a]])
    return build("llama"), ids, [torch.tensor([[a, b, c]]), torch.tensor([[c, a]])]


def ready_made(name: str) -> tuple[Transformer, Any, list[Any]]:
    model, rows = build(name), ids_of((4, 2, 6))
    ids = padded(rows, "left")
    return model, model.batch(ids), [model.batch(row) for row in rows]


def in_a_list() -> tuple[Transformer, Any, list[Any]]:
    """As ``model.check`` returns it."""
    model, batch, each = ready_made("gpt2")
    return model, [batch], [[prompt] for prompt in each]


def masked() -> tuple[Transformer, Any, list[Any]]:
    model, rows = build("bert"), ids_of((4, 2, 6))
    ids = padded(rows, "right")
    return (
        model,
        model.batch(ids.where(ids != PAD, 7), mask=ids != PAD),
        [r[None] for r in rows],
    )


def typed() -> tuple[Transformer, Any, list[Any]]:
    model, rows = build(replace(ARCHITECTURES["bert-types"], head=None)), ids_of((4, 3, 6))
    types = [(torch.arange(len(row)) >= 2).long() for row in rows]
    batch = model.batch(padded(rows, "left"), types=padded(types, "left").clamp(min=0))
    return model, batch, [model.batch(row, types=t) for row, t in zip(rows, types, strict=True)]


def images(*, batch: bool) -> tuple[Transformer, Any, list[Any]]:
    patches = EmbeddingConfig(patches=PatchConfig(4, 6, 2, channels=2, n_special=2))
    stack = StackConfig(2, PLAIN, MLPConfig(10), embedding=patches)
    model = build(Config(D_MODEL, 7, 8, encoder=stack, bias_u=True))
    pixels = torch.randn(
        3, 2, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    return model, model.batch(pixels) if batch else pixels, list(pixels.split(1))


def texts() -> tuple[Transformer, Any, list[Any]]:
    prompts = ["QxmvQxm", "ab", "abcab"]
    return load("induction-by-hand"), prompts, prompts


PROMPTS = {
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


def kinds_in_turn() -> list[Any]:
    """Every analysis with every kind of prompts; all are slow but, of every second analysis, one of
    each group of similar kinds."""
    cases = []
    for turn, name in enumerate(ANALYSES):
        allowed = [kind for kind in PROMPTS if (name, kind) not in REFUSED]
        later = {g for group in ALIKE for g in group if g != group[turn % len(group)]}
        if turn % 2 or name == "explain":  # which takes a second
            later = set(allowed)
        cases += [
            pytest.param(name, kind, marks=[pytest.mark.slow] if kind in later else [])
            for kind in allowed
        ]
    return cases


@pytest.mark.parametrize(("analysis", "kind"), kinds_in_turn())
def test_each_prompt_has_the_numbers_that_it_has_alone(analysis, kind):
    model, together, each = PROMPTS[kind]()
    bound = 1e-12 if model.dtype == torch.float64 else 1e-5
    rows = ANALYSES[analysis](model, together, len(each))
    for number, prompt in enumerate(each):
        alone = ANALYSES[analysis](model, [prompt] if isinstance(prompt, str) else prompt, 1)[0]
        assert rows[number].keys() == alone.keys()
        for name, expected in alone.items():
            assert_close(rows[number][name], expected, bound, name)


@pytest.mark.parametrize(("analysis", "kind"), sorted(REFUSED))
def test_a_question_that_a_model_does_not_have_is_refused(analysis, kind):
    model, together, each = PROMPTS[kind]()
    with pytest.raises(
        InvalidInput,
        match=r"normalizes the stream itself|faithfulness is undefined|no MLP|continue a text",
    ):
        ANALYSES[analysis](model, each[0:1] if kind == "texts" else together, len(each))


@pytest.mark.parametrize(("analysis", "ready"), in_turn(OF_PAIRS, [False, True], OF_PAIRS))
def test_each_pair_has_the_numbers_that_it_has_alone(analysis, ready):
    sides = ("right", "left") if ready else ("left", "right")
    model, sources, targets = build("t5"), ids_of((3, 5)), ids_of((4, 2), seed=1)
    pair = [padded(rows, side) for rows, side in zip((sources, targets), sides, strict=True)]
    if ready:
        pair = model.check(*pair)
    rows = OF_PAIRS[analysis](model, pair, 2)
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alone = OF_PAIRS[analysis](model, (source[None], target[None]), 1)[0]
        for name, expected in alone.items():
            assert_close(rows[number][name], expected, what=name)


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


@pytest.mark.parametrize("kind", REPLACED)
def test_the_mean_of_z_is_that_over_the_prompts_as_each_is_alone(kind):
    model, together, each = PROMPTS[kind]()
    z = torch.cat([run(model, prompt, record="z").cache["z", 1].flatten(0, 1) for prompt in each])
    edit = edits.replace("z", z.mean(0)[2], layer=1, head=2)
    rows = ablated(model, together, len(each), method="mean")
    for row, prompt in zip(rows, each, strict=True):
        done = run(model, prompt, edits=[edit])
        assert_close(row["ablated"][1, 2], METRIC(done.logits, done.batch)[0])


@pytest.mark.parametrize("method", ["mean", "resample"])
@pytest.mark.parametrize("kind", REPLACED)
def test_recording_z_in_parts_changes_nothing(kind, method):
    model, together, each = PROMPTS[kind]()
    few, whole = (ablated(model, together, len(each), method=method, rows=n) for n in (2, 64))
    for row, expected in zip(few, whole, strict=True):
        assert_close(row["ablated"], expected["ablated"])
