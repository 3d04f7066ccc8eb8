"""A sweep computes less than one whole forward per edit, and the same values.

Reuse = brute force, for every architecture, at every place, for every kind of edit and selection,
with padding on either side: whatever is left out does not affect the metric.
"""

from collections.abc import Iterator

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    HALF,
    NIGHTLY,
    as_where,
    assert_close,
    assert_identical,
    build,
    in_turn,
    padded,
    tokens_of,
)
from torch import Tensor

from interp import Place, Run, Sweep, Transformer, edits, metrics, run, sweep
from interp.edits import Edit
from interp.errors import InvalidInput
from interp.metrics import Metric, measure
from interp.sweeps.schedule import Case

PADDING = ["none", "right", "left"]
PROMPTS = 3


def inputs(name: str, padding: str) -> tuple[Tensor, ...]:
    """Three prompts of six tokens; padded, of four, five and six."""
    tokens = tokens_of(name, batch=PROMPTS, pos=6)
    if padding == "none":
        return tokens
    return tuple(padded([ids[0], ids[1][:-2], ids[2][:-1]], padding) for ids in tokens)


def swept(model: Transformer, tokens: tuple[Tensor, ...], *args: object, **more: object) -> Sweep:
    return sweep(model, tokens if len(tokens) > 1 else tokens[0], *args, **more)


def whole_forward(model: Transformer, tokens: tuple[Tensor, ...], made: object) -> Run:
    return run(model, *tokens, edits=made if isinstance(made, list) else [made])


UNZEROED = ("one", "expert")
"""Last axes of tensors that are not zeroed: divisors, and router logits, whose top k would tie."""


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def selections(axes: tuple[str, ...]) -> Iterator[dict[str, object]]:
    """One part of a tensor after another."""
    yield {}
    yield {"batch": 1}
    if axes[-1] not in ("one", "key", "source", "expert"):
        yield {"unit": (0, 2)}
    if "expert" in axes:
        yield {"expert": (0, 2)}
    if "head" in axes or "kv_head" in axes:
        yield {"head": 0}
    if "key" in axes or "source" in axes:
        yield {"key": 1}
    if "pos" in axes or "query" in axes:
        yield from ({"pos": 2}, {"pos": -1}, {"pos": (1, -1)})


def kinds_at(where: tuple, axes: tuple[str, ...], shape: torch.Size, padding: str) -> list:
    """Edits of every kind at one place, and two edits together."""
    several: list[Edit | list[Edit]] = [
        edits.scale(where, -0.7, **part) for part in selections(axes)
    ]
    several += [
        edits.scale(where, 0.3) if axes[-1] in UNZEROED else edits.zero(where),
        edits.add(where, 0.4),
        edits.replace(where, drawn(shape[-1])),
        edits.mean(where, drawn(*shape[2:])),
        edits.resample(where, drawn(*shape)),
        edits.apply(where, lambda tensor, _: tensor * 1.5),
        [edits.scale(where, 0.2), edits.add("logits", 0.5, unit=2)],
    ]
    if padding == "none":
        several.append(edits.resample(where))
    if padding == "none" or axes[1] == "pos":
        several.append(edits.mean(where))
    return several


def edits_at_places(model: Transformer, tokens: tuple[Tensor, ...], padding: str) -> list[list]:
    """Every kind of edit at each place."""
    cache = run(model, *tokens, record="all").cache
    return [
        kinds_at(as_where(place), place.point.axes, cache[place].shape, padding)
        for place in model.layout
    ]


@pytest.mark.parametrize(("name", "padding"), in_turn(ARCHITECTURES, PADDING, HALF, 1, NIGHTLY))
def test_reuse_is_brute_force(name: str, padding: str) -> None:
    """metric(sweep)[edit, prompt] = metric(one whole forward with that edit)[prompt].

    One edit per place. The edits are divided among the metrics, in another way for each padding.
    """
    model, tokens = build(name), inputs(name, padding)
    turn, measured = PADDING.index(padding), several_metrics(model)
    made = [
        kinds[(5 * number + 7 * turn) % len(kinds)]
        for number, kinds in enumerate(edits_at_places(model, tokens, padding))
    ]
    for number, metric in enumerate(measured):
        share = made[(number + turn) % len(measured) :: len(measured)]
        assert_reuse_is_brute_force(model, tokens, share, [metric])


@pytest.mark.nightly
@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_reuse_is_brute_force_for_every_edit_and_metric(name: str, padding: str) -> None:
    model, tokens = build(name), inputs(name, padding)
    made = [edit for kinds in edits_at_places(model, tokens, padding) for edit in kinds]
    assert_reuse_is_brute_force(model, tokens, made, several_metrics(model))


def several_metrics(model: Transformer) -> list[Metric]:
    """Metrics of the last position, of another one, and of all."""
    measured = [metrics.logit_diff((1, 2, 3), 0), metrics.logit(3, pos=1), metrics.prob(2)]
    return measured if model.config.decoder is None else [*measured, metrics.loss()]


def assert_reuse_is_brute_force(
    model: Transformer, tokens: tuple[Tensor, ...], made: list, measured: list[Metric]
) -> None:
    forwards = [whole_forward(model, tokens, several) for several in made]
    for metric in measured:
        table = swept(model, tokens, made, metric)
        brute = torch.stack([measure(metric, done.logits, done.batch) for done in forwards])
        off = (table.values - brute).abs().amax(1) / brute.abs().amax(1).clamp(min=1)
        worst = int(off.argmax())
        assert table.complete
        assert off[worst] <= 1e-12, f"off by {off[worst]:.3g}: {metric} under {made[worst]}"


@pytest.mark.parametrize(
    ("name", "padding"),
    in_turn(["gpt2", "post-final", "bert", "uneven-pair"], PADDING[1:], ["gpt2", "uneven-pair"]),
)
def test_edits_made_together_are_brute_force(name: str, padding: str) -> None:
    """Edits at any two places, in any columns: the later one is not left out."""
    model, tokens = build(name), inputs(name, padding)
    places = [place for place in model.layout if "pos" in place.point.axes]
    exits = [place for place in places if place.layer is None]
    made = [
        [edits.scale(as_where(place), 0.3), edits.scale(as_where(other), -0.7, pos=pos)]
        for number, place in enumerate(places[::3])
        for other in (exits[-1], exits[-2], places[(7 * number) % len(places)])
        for pos in (1, -1)
    ]
    assert_reuse_is_brute_force(model, tokens, made, [metrics.logit(3), metrics.logit(3, pos=2)])


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "marian"])
def test_every_edit_changes_something(name: str) -> None:
    """The converse: these edits do change the values."""
    model, tokens = build(name), inputs(name, "none")
    made = [edits.scale(as_where(place), -0.7) for place in model.layout]
    if "scores" in {place.point.label for place in model.layout}:
        made = [edit for edit in made if "embed" not in edit.where]
    table = swept(model, tokens, made, metrics.logit_diff((1, 2, 3), 0))
    unmoved = [
        made[row].where
        for row in range(len(made))
        if table.effect[row].abs().max() < 1e-6 and "k" not in made[row].where
    ]
    assert unmoved == []


@pytest.mark.parametrize("padding", PADDING)
def test_every_metric_is_that_of_whole_forwards(padding: str) -> None:
    model, (tokens,) = build("gpt2"), inputs("gpt2", padding)
    other = model(tokens).detach().roll(1, 0)
    for metric in (metrics.loss(), metrics.logit(2), metrics.kl(other), metrics.kl(other, pos=-2)):
        plain, edit = run(model, tokens), edits.zero("z", layer=0)
        edited = run(model, tokens, edits=[edit])
        table = sweep(model, tokens, edit, metric)
        assert_close(table.baseline, measure(metric, plain.logits, plain.batch))
        assert_close(table.values[0], measure(metric, edited.logits, edited.batch))


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("name", ["gpt2", "bert", "uneven-pair"])
def test_a_divergence_without_a_reference_is_from_the_forward_without_edits(
    name: str, padding: str
) -> None:
    """However many prompts run as one; the converse: it changes with each edit."""
    model, batches = build(name), inputs(name, padding)
    made = [edits.scale("z", 0.3, layer=0, stack=model.stacks[-1].name), edits.scale("logits", 2.0)]
    reference = run(model, *batches).require_logits().detach()
    for pos in (None, -1):
        expected = swept(model, batches, made, metrics.kl(reference, pos))
        for memory in (None, 200_000):
            table = swept(model, batches, made, metrics.kl(pos=pos), memory=memory)
            assert_close(table.values, expected.values)
            assert_identical(table.baseline, torch.zeros_like(table.baseline))
            assert table.values.min() > 1e-4


def test_a_divergence_without_a_reference_needs_a_sweep() -> None:
    model, (tokens,) = build("gpt2"), inputs("gpt2", "none")
    with pytest.raises(InvalidInput, match=r"kl needs reference logits .* Only in a sweep"):
        measure(metrics.kl(), model(tokens), run(model, tokens).batch)


def test_looking_back_needs_a_model_that_does_not_look_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The converse: reusing earlier columns would be wrong where they attend to later ones."""
    model, (tokens,) = build("normed-set-encoder"), inputs("normed-set-encoder", "none")
    made, metric = [edits.scale("resid_pre", -0.7, layer=0, pos=3)], metrics.logit(2)
    forward = run(model, tokens, edits=made)
    brute = measure(metric, forward.logits, forward.batch)
    assert_close(sweep(model, tokens, made, metric).values[0], brute)
    monkeypatch.setattr(Case, "first_column", lambda *_: 3)
    assert not torch.allclose(sweep(model, tokens, made, metric).values[0], brute, atol=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "bloom", "bert", "uneven-pair"])
def test_company_changes_no_number(name: str) -> None:
    """Prompts and edits in one sweep do not affect each other."""
    model, tokens = build(name), inputs(name, "right")
    made = [edits.scale(as_where(place), 0.3) for place in list(model.layout)[::3]]
    made += (
        [
            edits.scale("resid_pre", 2.0, layer=0, pos=p, stack=model.stacks[-1].name)
            for p in (0, -1)
        ]
        if len(model.stacks) == 1
        else []
    )
    metric = metrics.logit_diff(1, 2)
    together = swept(model, tokens, made, metric).values
    for prompt in range(PROMPTS):
        alone = tuple(ids[prompt : prompt + 1] for ids in tokens)
        alone = tuple(ids[ids >= 0][None] for ids in alone)
        assert_close(swept(model, alone, made, metric).values[:, 0], together[:, prompt])
    for row in (0, len(made) - 1):
        assert_close(swept(model, tokens, [made[row]], metric).values[0], together[row])


BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5}
"""Bounds in the docstring of ``sweep``, relative to the largest number of an edit."""


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("memory", [None, 200_000, 30_000, 20_000])
@pytest.mark.parametrize("padding", PADDING)
def test_memory_changes_numbers_by_rounding_alone(
    memory: int | None, padding: str, dtype: torch.dtype
) -> None:
    """However many edits and prompts run in one batch, the values are those of whole forwards."""
    model, (tokens,) = build("gpt2", dtype=dtype), inputs("gpt2", padding)
    made = [edits.zero("z", layer=layer, head=head) for layer in range(2) for head in range(3)]
    made += [edits.scale("resid_pre", 0.0, layer=1, pos=p) for p in (0, 1, -1)]
    forwards = [whole_forward(model, (tokens,), edit) for edit in made]
    for metric in (metrics.loss(), metrics.logit(1)):
        table = sweep(model, tokens, made, metric, memory=memory)
        for row, done in enumerate(forwards):
            brute = measure(metric, done.logits, done.batch).double()
            assert_close(table.values[row], brute, BOUNDS[dtype], made[row])


def test_float32_agrees_with_brute_force() -> None:
    model, (tokens,) = build("gpt2", dtype=torch.float32), inputs("gpt2", "right")
    made = [edits.scale(as_where(place), 0.3) for place in model.layout]
    table = sweep(model, tokens, made, metrics.logit(1))
    for row, edit in enumerate(made):
        forward = run(model, tokens, edits=[edit])
        brute = measure(metrics.logit(1), forward.logits, forward.batch).double()
        assert_close(table.values[row], brute, BOUNDS[torch.float32], edit.where)


def test_permuting_prompts_permutes_the_table() -> None:
    model, (tokens,) = build("llama"), inputs("llama", "left")
    made = [edits.zero("z", layer=layer, head=head) for layer in range(2) for head in range(4)]
    order = torch.tensor([2, 0, 1])
    metric = metrics.logit_diff((1, 2, 3), (4, 5, 6))
    moved = metrics.logit_diff((3, 1, 2), (6, 4, 5))
    assert_close(
        sweep(model, tokens[order], made, moved).values,
        sweep(model, tokens, made, metric).values[:, order],
        1e-10,
    )


def test_places_are_found_in_both_stacks() -> None:
    """An edit of the encoder changes the target's logits, through cross-attention alone."""
    model, tokens = build("marian"), inputs("marian", "none")
    places = [place for place in model.layout if place.stack == "encoder"]
    first = Place(places[0].point, None, None, "encoder")
    table = swept(model, tokens, [edits.zero(as_where(first), pos=2)], metrics.logit(1))
    assert table.effect.abs().min() > 1e-6
