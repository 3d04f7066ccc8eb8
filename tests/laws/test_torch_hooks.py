"""PyTorch's hooks on the modules of a model are refused, by name, by everything that runs it.

Parametrizations have their effect everywhere: the model computes with the parametrized weight.
"""

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    GENERATORS,
    assert_close,
    assert_identical,
    build,
    build_new,
    covering,
    tokens_of,
)
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import prune, spectral_norm, weight_norm
from torch.nn.utils.parametrizations import spectral_norm as spectral_parametrization
from torch.nn.utils.parametrize import register_parametrization, remove_parametrizations
from torch.utils.flop_counter import FlopCounterMode

from interp import Transformer, edits, load_cache, metrics, packed, run, sweep
from interp.errors import InvalidInput, StaleCache
from interp.kernels.packed import is_available
from interp.model.hashing import weight_hash

METRIC = metrics.logit_diff(1, 2)


def forwards(model: Transformer, tokens: tuple[Tensor, ...]) -> Iterator[Callable[[], object]]:
    """Everything that computes a forward."""
    yield lambda: model(*tokens)
    yield lambda: run(model, *tokens)
    yield lambda: run(model, *tokens, record="all", kernel="explicit")
    yield lambda: model.run_with_cache(*tokens)
    yield lambda: model.run_with_hooks(*tokens)
    yield lambda: swept(model, tokens)
    if any(model.config == config for config in GENERATORS.values()):
        yield lambda: model.generate(*tokens, max_new_tokens=1)


def swept(model: Transformer, tokens: tuple[Tensor, ...]) -> Tensor:
    """The metric with the last z of the model scaled, and without."""
    where = [place for place in model.names if place.point.label == "z"][-1]
    edit = edits.scale(where, 0.5)
    table = sweep(model, tokens if len(tokens) > 1 else tokens[0], [edit], METRIC)
    return torch.cat([table.values[0], table.baseline])


def whole(model: Transformer, tokens: tuple[Tensor, ...]) -> Tensor:
    """The same, computed by whole forwards."""
    where = [place for place in model.names if place.point.label == "z"][-1]
    runs = [run(model, *tokens, edits=made) for made in ([edits.scale(where, 0.5)], [])]
    return torch.cat([METRIC(done.logits, done.batch) for done in runs])


def doubled(module: nn.Module, inputs: object, out: object) -> object:
    return out * 2 if isinstance(out, Tensor) else out


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_a_hook_on_any_part_is_refused_by_every_forward(name):
    model, tokens = build_new(name), tokens_of(name)
    before = model(*tokens)
    for part_name, part in model.named_modules():
        handle = part.register_forward_hook(doubled)
        for forward in forwards(model, tokens):
            with pytest.raises(InvalidInput, match="forward hook of PyTorch") as caught:
                forward()
            assert part_name in str(caught.value)
        handle.remove()
    for forward in forwards(model, tokens):
        forward()
    assert_identical(model(*tokens), before)


@pytest.mark.parametrize(
    "register",
    [
        lambda part: part.register_forward_pre_hook(lambda module, inputs: None),
        lambda part: part.register_forward_hook(lambda *arguments: None, with_kwargs=True),
        lambda part: part.register_full_backward_hook(lambda *arguments: None),
        lambda part: part.register_full_backward_pre_hook(lambda *arguments: None),
        lambda part: prune.l1_unstructured(part, "weight_qkv", 0.5),
        lambda part: weight_norm(part, "weight_o"),
        lambda part: spectral_norm(part, "weight_o"),
    ],
    ids=["pre", "kwargs", "backward", "backward-pre", "prune", "weight-norm", "spectral-norm"],
)
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`:FutureWarning")
def test_hooks_of_every_kind_are_refused(register):
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    register(model.blocks[1].attn)
    for forward in forwards(model, tokens):
        with pytest.raises(InvalidInput, match=r"model\.decoder\.blocks\.1\.attn has a .*prune"):
            forward()


def test_pruning_made_permanent_is_a_weight_like_any_other():
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    prune.l1_unstructured(model.blocks[1].attn, "weight_qkv", 0.5)
    prune.remove(model.blocks[1].attn, "weight_qkv")
    assert_close(swept(model, tokens), whole(model, tokens))


def test_hooks_travel_with_copies():
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    model(*tokens)
    model.blocks[0].mlp.register_forward_hook(doubled)
    with pytest.raises(InvalidInput, match="mlp"):
        copy.deepcopy(model)(*tokens)


def test_hooks_on_every_module_are_refused_but_for_those_that_count():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    handle = register_module_forward_hook(doubled)
    try:
        for forward in forwards(model, tokens):
            with pytest.raises(InvalidInput, match="Every module"):
                forward()
    finally:
        handle.remove()
    with FlopCounterMode(display=False) as counter:
        for forward in forwards(model, tokens):
            forward()
    assert counter.get_total_flops() > 0


def test_parts_are_searched_only_after_a_hook_was_registered(monkeypatch):
    """A forward searches for hooks only if one was registered in this process since the last."""
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    searched = []
    monkeypatch.setattr("interp.model.network.refuse_hooks", searched.append)
    for _ in range(3):
        model(*tokens)
    assert len(searched) == 1
    nn.Linear(1, 1).register_forward_hook(doubled)
    for _ in range(3):
        model(*tokens)
    assert len(searched) == 2


# Parametrizations.


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight * 2


def weights_of(model: Transformer) -> list[tuple[str, str]]:
    """Each part with each of its weights."""
    return [
        (part, name)
        for part, module in model.named_modules()
        for name, _ in module.named_parameters(recurse=False)
    ]


def check_parametrized(name: str, chosen: list[tuple[str, str]]) -> None:
    tokens, changed, expected = tokens_of(name), build_new(name), build_new(name)
    for part, weight in chosen:
        register_parametrization(changed.get_submodule(part), weight, Doubled())
        module = expected.get_submodule(part)
        setattr(module, weight, nn.Parameter(getattr(module, weight).detach() * 2))
    assert_close(changed(*tokens), expected(*tokens), what=chosen)
    assert_close(run(changed, *tokens).logits, expected(*tokens), what=chosen)
    assert_close(swept(changed, tokens), whole(expected, tokens), what=chosen)


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_parametrized_weights_are_those_weights_everywhere(name):
    check_parametrized(name, weights_of(build(name)))


WEIGHTS = ["llama", "gpt2", "bert-types", "t5", "phi", "gemma2", "mixtral", "opt-350m"]
"""Models that together have every kind of weight. All weights of a model at once are doubled above;
each alone, of the last four, nightly."""


@pytest.mark.parametrize("name", covering(WEIGHTS, ["llama"], nightly=WEIGHTS[4:]))
def test_each_parametrized_weight_is_that_weight_everywhere(name):
    for weight in weights_of(build(name)):
        check_parametrized(name, [weight])


def test_what_is_made_of_a_parametrized_model_has_its_weights(tmp_path):
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    plain = run(model, *tokens, record="all").cache
    plain.save(tmp_path / "plain.cache")
    register_parametrization(model.blocks[0].attn, "weight_qkv", Doubled())
    logits = run(model, *tokens).logits
    processed = model.processed(center_unembed=False)
    assert_close(run(processed, *tokens).logits, logits, 1e-9)
    with pytest.raises(StaleCache):
        plain["pattern", 0]
    with pytest.raises(InvalidInput, match="other weights"):
        load_cache(tmp_path / "plain.cache", model)
    once = weight_hash(model)
    register_parametrization(model.blocks[0].attn, "weight_qkv", Doubled())
    assert weight_hash(model) != once
    remove_parametrizations(model.blocks[0].attn, "weight_qkv")
    assert_close(swept(model, tokens), whole(model, tokens))


@pytest.mark.skipif(not is_available(), reason="this PyTorch has no oneDNN")
def test_packing_follows_a_parametrized_weight():
    model, tokens = build_new("gpt2", dtype=torch.float32), tokens_of("gpt2")
    register_parametrization(model.blocks[0].attn, "weight_qkv", Doubled())
    fast = packed(model)
    for factor in (1.0, 3.0):
        with torch.no_grad():
            model.blocks[0].attn.parametrizations.weight_qkv.original.mul_(factor)
        assert_close(run(fast, *tokens).logits, run(model, *tokens).logits, 1e-5)


def test_a_weight_that_changes_whenever_it_is_read_leaves_nothing_to_derive():
    """Spectral norm in training mode iterates at each reading; in evaluation it does not."""
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    spectral_parametrization(model.blocks[0].attn, "weight_o")
    with pytest.raises(StaleCache):
        run(model.train(), *tokens, record="all").cache["result", 0]
    cache = run(model.eval(), *tokens, record="all").cache
    assert_close(cache["result", 0].sum(2) + model.blocks[0].attn.b_O, cache["attn_out", 0])
