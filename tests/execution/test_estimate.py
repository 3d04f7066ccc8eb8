"""What a run takes is known before it is computed: within 20 % of what PyTorch allocates.

Measured by PyTorch's profiler, which reports each allocation and its end.
"""

from dataclasses import replace
from importlib import import_module

import pytest
import torch
from allocations import BOUND, WIDE, allocated, wide
from architectures import (
    ARCHITECTURES,
    HALF,
    NIGHTLY,
    as_where,
    build_new,
    covering,
    in_turn,
    padded,
    tokens_of,
)

from interp import (
    AttentionConfig,
    Config,
    EmbeddingConfig,
    MLPConfig,
    PatchConfig,
    PositionsConfig,
    StackConfig,
    Start,
    Transformer,
    edits,
    estimate,
    metrics,
    run,
)
from interp.errors import OutOfResources, UnknownPlace

estimating = import_module("interp.estimates.runs")
running = import_module("interp.execution.run")

SHAPES = [(4, 64), (1, 200), (16, 16)]


OPTIONS = {
    "plain": {},
    "all": {"record": "all"},
    "z": {"record": "z"},
    "pattern": {"record": "pattern", "store": "pattern"},
    "explicit": {"kernel": "explicit"},
    "gradients": {"record": "resid_post", "gradients_of": metrics.loss()},
    "graph": {"keep_graph": True},
    "edits": {},
}


def check(model: Transformer, tokens: tuple, **options: object) -> None:
    estimate(model, *tokens, **options)  # the checks of annotations keep what they first see
    estimated = estimate(model, *tokens, **options)
    peak, stored = allocated(lambda: run(model, *tokens, **options))
    assert abs(estimated.peak - peak) <= BOUND * peak, (estimated.peak / peak, options)
    assert abs(estimated.kept - stored) <= BOUND * stored, (estimated.kept / stored, options)


@pytest.mark.parametrize(("name", "kind"), in_turn(WIDE, list(OPTIONS), HALF, 1, NIGHTLY))
def test_the_estimate_of_a_run_is_what_it_allocates(name, kind):
    model = build_new(wide(name), dtype=torch.float32)
    options = dict(OPTIONS[kind])
    if kind == "edits":
        places = [p for p in model.names if p.point.label in ("z", "resid_mid", "logits")]
        options["edits"] = [edits.scale(as_where(place), 2.0) for place in places]
    for batch, pos in SHAPES:
        check(model, tokens_of(model.config, batch=batch, pos=pos), **options)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", covering(["gpt2", "bloom", "gemma2", "t5"], ["bloom"]))
def test_padding_is_counted(name, side):
    model = build_new(wide(name), dtype=torch.float32)
    tokens = tuple(
        padded([row[: len(row) - 5 * number] for number, row in enumerate(rows)], side)
        for rows in tokens_of(model.config, batch=4, pos=64)
    )
    check(model, tokens)
    check(model, tokens, record="all")


def test_images_were_there_before():
    patches = PatchConfig(64, 64, 16, channels=3, n_special=1)
    stack = StackConfig(1, AttentionConfig(4, 192), MLPConfig(3072))
    stack = replace(stack, embedding=EmbeddingConfig(patches=patches))
    config = Config(768, 500, 17, encoder=stack, n_classes=500)
    model = build_new(config, dtype=torch.float32)
    check(model, (torch.randn(8, 3, 64, 64),))


def test_parts_of_a_model_are_counted():
    model = build_new(wide("gpt2"), dtype=torch.float64)
    tokens = tokens_of(model.config, batch=4, pos=64)
    check(model, tokens, stop_at_layer=1, record="all")
    stream = run(model, *tokens, stop_at_layer=1).stream
    check(model, tokens, start=Start(1, stream), record="resid_post")


def test_functions_are_not_called_and_nothing_is_drawn():
    """Also no random number: those that are drawn afterwards are the same."""
    model, called = build_new("gpt2"), []
    state = torch.get_rng_state()
    edit = edits.apply("z", lambda z, hook: called.append(hook), layer=0)
    estimated = estimate(model, *tokens_of("gpt2"), record="all", edits=[edit])
    assert estimated.peak >= estimated.kept > 0
    assert called == []
    assert torch.equal(torch.get_rng_state(), state)
    assert "KiB at the peak" in str(estimated)


def test_what_a_run_refuses_its_estimate_refuses():
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    with pytest.raises(UnknownPlace, match="Nearest"):
        estimate(model, *tokens, record="patern")


# Runs that are too large.

LONG = Config(
    64, 50_000, 2048, StackConfig(2, ARCHITECTURES["gpt2"].decoder.attention, MLPConfig(256))
)


@pytest.fixture(scope="module")
def long() -> Transformer:
    return Transformer(
        replace(LONG, decoder=replace(LONG.decoder, positions=PositionsConfig("none")))
    )


@pytest.mark.parametrize(
    ("record", "largest"), [(None, "logits"), ("all", "logits"), (["embed", "logits"], "logits")]
)
def test_a_run_that_can_not_fit_is_refused_before_it_starts(monkeypatch, long, record, largest):
    tokens = torch.zeros(8, 2048, dtype=torch.long)
    needed = estimate(long, tokens, record=record).peak
    monkeypatch.setattr(estimating, "free_bytes", lambda _: int(needed / 1.5))
    monkeypatch.setattr(Transformer, "stream", lambda *_: pytest.fail("a forward was run"))
    with pytest.raises(
        OutOfResources, match=rf"MiB at the peak.*free.*{largest} \(.*MiB\).*record="
    ):
        run(long, tokens, record=record)
    with pytest.raises(OutOfResources):
        long.run_with_cache(tokens)


def test_a_run_about_as_large_as_what_is_free_is_tried(monkeypatch, long):
    """The estimate may be off: only what clearly can't fit is refused."""
    started = []
    monkeypatch.setattr(running, "LARGE", 0)
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    needed = estimate(model, *tokens, record="all").peak
    for share in (0.9, 2.0):
        monkeypatch.setattr(estimating, "free_bytes", lambda _, share=share: int(needed * share))
        started.append(run(model, *tokens, record="all"))
    monkeypatch.setattr(estimating, "free_bytes", lambda _: int(needed / 1.4))
    with pytest.raises(OutOfResources):
        run(model, *tokens, record="all")


def test_small_runs_are_not_compared_with_what_is_free(monkeypatch):
    monkeypatch.setattr(estimating, "free_bytes", lambda _: pytest.fail("memory was looked up"))
    run(build_new("gpt2"), *tokens_of("gpt2"), record="all")
