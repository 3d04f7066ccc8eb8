"""A packed model computes what the model does, to within float32; with gradients, bit by bit."""

import copy
import gc
import io
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    as_where,
    assert_close,
    assert_identical,
    build,
    build_new,
    covering,
    padded,
    tokens_of,
)
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp import InterpError, Transformer, edits, metrics, packed, packing_gain, run
from interp.errors import InvalidInput
from interp.execution.provenance import Provenance
from interp.kernels.packed import PackedLinear, is_available
from interp.model.hashing import weight_hash
from interp.model.linear import Linear

pytestmark = pytest.mark.skipif(not is_available(), reason="this PyTorch has no packed products")

BOUND = 1e-5
NAME = "packed (oneDNN)"
SOME = ["gpt2", "llama", "bert", "uneven-pair"]


def model_of(name: str) -> Transformer:
    return build_new(name, dtype=torch.float32)


def kernel_of(model: Transformer) -> PackedLinear:
    kernel = model.unembed.linear
    assert isinstance(kernel, PackedLinear)
    return kernel


@pytest.fixture
def calls(monkeypatch) -> Iterator[dict[str, int]]:
    """How often the private operations were called."""
    counts = {"_linear_pointwise": 0, "_reorder_linear_weight": 0}

    def spy(name: str) -> None:
        operation = getattr(torch.ops.mkldnn, name)

        def counted(*args: object) -> Tensor:
            counts[name] += 1
            return operation(*args)

        monkeypatch.setattr(torch.ops.mkldnn, name, counted)

    for name in counts:
        spy(name)
    return counts


def matrices(model: Transformer) -> int:
    """How many products one forward takes: cross-attention splits its first matrix in two."""
    parts = [part for part in model.modules() if isinstance(part, Linear)]
    weights = [w for part in parts for w in part.parameters(recurse=False) if w.ndim == 2]
    return len(weights) + sum(type(part).__name__ == "CrossAttention" for part in parts)


# The same numbers.


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_every_place_and_the_logits_are_the_models(name):
    model, tokens = build(name, dtype=torch.float32), tokens_of(name)
    expected, got = run(model, *tokens, record="all"), run(packed(model), *tokens, record="all")
    assert_close(got.logits, expected.logits, BOUND)
    assert list(got.cache) == list(expected.cache)
    for place, value in expected.cache.items():
        assert_close(got.cache[place], value, BOUND, place)


@pytest.mark.parametrize("name", SOME)
def test_each_weight_is_packed_once_and_every_product_takes_it(name, calls):
    model, tokens = packed(model_of(name)), tokens_of(name)
    for times in (1, 2):
        logits = run(model, *tokens).logits
        assert calls == {
            "_linear_pointwise": times * matrices(model),
            "_reorder_linear_weight": matrices(model),
        }
    assert_identical(run(model, *tokens, record="all").logits, logits)


def test_the_model_itself_takes_the_default_kernel(calls):
    model = model_of("gpt2")
    packed(model)
    run(model, *tokens_of("gpt2"))
    assert not any(calls.values())


@pytest.mark.parametrize("name", ["gpt2", "uneven-pair"])
def test_edits_hooks_and_generation_work_on_it(name):
    model, tokens = build(name, dtype=torch.float32), tokens_of(name)
    fast, z = packed(model), ("z", 0, model.stacks[-1].name)
    zero = [edits.zero(z, head=1)]
    assert_close(
        run(fast, *tokens, edits=zero).logits, run(model, *tokens, edits=zero).logits, BOUND
    )
    hooks = [(as_where(model.names.resolve(z)), lambda tensor, hook: tensor * 2)]
    with torch.no_grad():
        hooked = model.run_with_hooks(*tokens, fwd_hooks=hooks)
        assert_close(fast.run_with_hooks(*tokens, fwd_hooks=hooks), hooked, BOUND)
    assert fast.run_with_cache(*tokens)[1].keys() == model.run_with_cache(*tokens)[1].keys()
    generated = model.generate(tokens[0], max_new_tokens=4)
    assert_identical(fast.generate(tokens[0], max_new_tokens=4), generated)


def test_padding_changes_nothing():
    fast, (ids,) = packed(model_of("llama")), tokens_of("llama")
    rows = run(fast, padded([ids[0], ids[1][:3]], "left")).logits
    assert_close(rows[1, -3:], run(fast, ids[1:, :3]).logits[0], BOUND)


@pytest.mark.parametrize("shape", [(0, 5, 6), (2, 0, 6), (2, 5, 6), (6,), (1, 6)])
@torch.no_grad()
def test_any_shape_and_stride_is_right(shape):
    weight, bias = nn.Parameter(torch.randn(8, 6)), torch.randn(4, 2)[:, 0]
    kernel, x = PackedLinear(), torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2]
    for part in (weight[:4], weight[4:], weight[::2]):
        assert_close_or_empty(kernel(x, part, bias), F.linear(x, part, bias))
        assert_close_or_empty(kernel(x, part, None), F.linear(x, part))
    turned = weight[:6].T[:4]
    assert_close_or_empty(kernel(x, turned, bias), F.linear(x, turned, bias))
    assert len(kernel._packings) == (4 if x.numel() else 0)


def assert_close_or_empty(actual: Tensor, expected: Tensor) -> None:
    assert actual.shape == expected.shape
    if expected.numel():
        assert_close(actual, expected, BOUND)


# One set of weights.


@pytest.mark.parametrize("name", SOME)
def test_parameters_are_shared_and_the_model_stays_as_it_is(name):
    model = model_of(name)
    before = {key: set(vars(part)) for key, part in model.named_modules()}
    fast = packed(model)
    assert {key: set(vars(part)) for key, part in model.named_modules()} == before
    theirs, ours = dict(fast.named_parameters()), dict(model.named_parameters())
    assert theirs.keys() == ours.keys()
    assert all(theirs[key] is ours[key] for key in ours)
    assert fast.state_dict().keys() == model.state_dict().keys()
    assert fast.config is model.config
    assert fast.tokenizer is model.tokenizer
    assert (fast.unembed.weight is fast.W_E) == model.config.tied
    assert weight_hash(fast) == weight_hash(model)
    assert fast.layout.keys() == model.layout.keys()
    again = packed(fast)
    assert kernel_of(again) is not kernel_of(fast)
    assert_identical(run(again, *tokens_of(name)).logits, run(fast, *tokens_of(name)).logits)


def write_in_place(model: Transformer) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.5)


def write_in_inference_mode(model: Transformer) -> None:
    with torch.inference_mode():
        for weight in model.parameters():
            weight.mul_(0.5)


def load(model: Transformer) -> None:
    model.load_state_dict({key: weight / 2 for key, weight in model.state_dict().items()})


def step(model: Transformer) -> None:
    model(*tokens_of("gpt2")).square().mean().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()


def swap_memory(model: Transformer) -> None:
    """Twice, so that the allocator may well hand out the first address again."""
    for _ in range(2):
        for weight in model.parameters():
            weight.data = weight.data * 0.7


def swap_parameters(model: Transformer) -> None:
    """In the part of the packed model alone: the original has parts of its own."""
    model.blocks[0].mlp.weight_in = nn.Parameter(model.blocks[0].mlp.weight_in.detach() / 2)


@pytest.mark.parametrize(
    "change",
    [write_in_place, write_in_inference_mode, load, step, swap_memory, swap_parameters],
)
def test_changed_weights_are_packed_anew(change):
    fast, tokens = packed(model_of("gpt2")), tokens_of("gpt2")
    before = run(fast, *tokens).logits
    change(fast)
    plain = build_new("gpt2", seed=1, dtype=torch.float32)
    plain.load_state_dict(fast.state_dict())
    after = run(fast, *tokens).logits
    assert_close(after, run(plain, *tokens).logits, BOUND)
    assert not torch.allclose(after, before)
    assert len(kernel_of(fast)._packings) == matrices(fast)


def test_a_counter_that_agrees_by_chance_deceives_nobody():
    """Another parameter on the same memory, changed as often: not what was packed."""
    kernel, x, memory = PackedLinear(), torch.randn(3, 6), torch.randn(8, 6)
    with torch.no_grad():
        first = nn.Parameter(torch.empty(0))
        first.data = memory
        first.mul_(2.0)
        kernel(x, first, None)
        second = nn.Parameter(torch.empty(0))
        second.data = memory
        second.mul_(2.0)
        assert second._version == first._version
        assert second.data_ptr() == first.data_ptr()
        assert_close(kernel(x, second, None), F.linear(x, second), BOUND)


@pytest.mark.parametrize("ends", ["parameter", "memory"])
def test_a_packing_ends_with_its_parameter_or_its_memory(ends):
    kernel, weight = PackedLinear(), nn.Parameter(torch.randn(8, 6))
    with torch.no_grad():
        kernel(torch.randn(3, 6), weight, None)
        kernel(torch.randn(3, 6), weight[:4], None)
    assert len(kernel._packings) == 2
    memory = weight.data
    if ends == "parameter":
        del weight
    else:
        weight.data = torch.randn(8, 6)
        del memory
    gc.collect()
    assert not kernel._packings


# Gradients.


@pytest.mark.parametrize("name", SOME)
def test_gradients_are_the_models_bit_by_bit(name, calls):
    """Those of the weights, and those that a run takes."""
    models, tokens = (model_of(name), packed(model_of(name))), tokens_of(name)
    for model in models:
        metrics.loss()(model(*tokens), model.check(*tokens)[-1]).sum().backward()
    for plain, fast in zip(*(model.parameters() for model in models), strict=True):
        assert (plain.grad is None) == (fast.grad is None)
        if plain.grad is not None:
            assert_identical(plain.grad, fast.grad)
    plain, fast = (
        run(model, *tokens, record=["z"], gradients_of=metrics.loss()) for model in models
    )
    assert_identical(plain.logits, fast.logits)
    for place in plain.cache:
        label = (f"{place.point.name.lower()}_grad", *as_where(place)[1:])
        assert_identical(plain.cache[label], fast.cache[label])
    assert not any(calls.values())


@pytest.mark.parametrize("wanting", range(3))
def test_whoever_wants_a_gradient_never_meets_the_operation(wanting, calls):
    """A gradient by the input, the weight or the bias; nobody wants one under no_grad."""
    arguments = [torch.randn(3, 6), torch.randn(8, 6), torch.randn(8)]
    arguments[1] = nn.Parameter(arguments[1], requires_grad=False)
    arguments[wanting].requires_grad_()
    kernel = PackedLinear()
    assert kernel(*arguments).requires_grad
    assert calls["_linear_pointwise"] == 0
    with torch.no_grad():
        kernel(*arguments)
    assert calls["_linear_pointwise"] == 1


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch's own jvp
def test_forward_derivatives_and_transforms_never_meet_it(calls):
    kernel, x = PackedLinear(), torch.randn(3, 6)
    weight = nn.Parameter(torch.randn(8, 6), requires_grad=False)

    def product(x: Tensor) -> Tensor:
        return kernel(x, weight, None)

    with torch.no_grad():
        with forward_ad.dual_level():
            dual = product(forward_ad.make_dual(x, x))
            assert_identical(forward_ad.unpack_dual(dual).tangent, F.linear(x, weight))
        assert_identical(torch.func.jvp(product, (x,), (x,))[1], F.linear(x, weight))
        assert_close(torch.vmap(product)(x), F.linear(x, weight), BOUND)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert product(x).dtype == torch.bfloat16
    gradient = torch.func.grad(lambda x: product(x).sum())(x)
    assert_close(gradient, weight.sum(0).expand(3, -1), BOUND)
    assert calls["_linear_pointwise"] == 0


# Elsewhere.


def test_inference_mode_takes_it_and_what_it_packed_serves_outside(calls):
    fast, tokens = packed(model_of("uneven-pair")), tokens_of("uneven-pair")
    with torch.inference_mode():
        inside = fast(*tokens)
    assert calls["_linear_pointwise"] == matrices(fast)
    assert_identical(run(fast, *tokens).logits, inside.clone())
    assert calls["_reorder_linear_weight"] == matrices(fast)
    assert fast(*tokens).requires_grad


def test_weights_whose_changes_nobody_counts_are_not_packed(calls):
    with torch.inference_mode():
        weight, x = nn.Parameter(torch.randn(8, 6), requires_grad=False), torch.randn(3, 6)
        assert_identical(PackedLinear()(x, weight, None), F.linear(x, weight))
    assert not any(calls.values())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_another_dtype_takes_the_default_and_lets_the_packings_go(dtype, calls):
    fast, tokens = packed(model_of("gpt2")), tokens_of("gpt2")
    run(fast, *tokens)
    fast.to(dtype)
    assert not kernel_of(fast)._packings
    calls.clear()
    expected = run(model_of("gpt2").to(dtype), *tokens).logits
    assert_identical(run(fast, *tokens).logits, expected)
    assert not calls
    assert fast.products == "default"


def test_a_torch_without_the_operation_takes_the_default(monkeypatch):
    model, tokens = model_of("gpt2"), tokens_of("gpt2")
    fast = packed(model)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert_identical(run(fast, *tokens).logits, run(model, *tokens).logits)
    assert fast.products == "default"
    with pytest.raises(InvalidInput, match=r"lacks oneDNN.*use the model without"):
        packed(model)


@pytest.mark.parametrize("ask", [packed, packing_gain])
def test_models_that_gain_nothing_are_refused(ask):
    with pytest.raises(InterpError, match=r"float64 on cpu; only float32.*model.float\(\).cpu\(\)"):
        ask(build("gpt2"))
    with pytest.raises(InvalidInput, match="float32 on meta; only float32 on a CPU"):
        ask(model_of("gpt2").to("meta"))
    with torch.inference_mode():
        model = Transformer(ARCHITECTURES["gpt2"])
    with pytest.raises(InvalidInput, match=r"inference_mode\(\).*outside of it"):
        ask(model)


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "save"])
def test_copies_pack_weights_of_their_own(way):
    fast, tokens = packed(model_of("gpt2")), tokens_of("gpt2")
    logits = run(fast, *tokens).logits
    if way == "deepcopy":
        twin = copy.deepcopy(fast)
    elif way == "pickle":
        twin = pickle.loads(pickle.dumps(fast))
    else:
        file = io.BytesIO()
        torch.save(fast, file)
        file.seek(0)
        twin = torch.load(file, weights_only=False)
    assert not kernel_of(twin)._packings
    assert kernel_of(twin) is not kernel_of(fast)
    assert twin.products == NAME
    assert_identical(run(twin, *tokens).logits, logits)
    write_in_place(twin)
    assert_identical(run(fast, *tokens).logits, logits)
    assert not torch.equal(run(twin, *tokens).logits, logits)


def test_threads_share_one_model_and_pack_each_weight_once(calls):
    fast, tokens, start = packed(model_of("uneven-pair")), tokens_of("uneven-pair"), Barrier(4)
    expected = run(packed(fast), *tokens).logits
    calls["_reorder_linear_weight"] = 0

    def work(_: int) -> None:
        start.wait()
        for _ in range(4):
            assert_identical(run(fast, *tokens).logits, expected)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert calls["_reorder_linear_weight"] == matrices(fast)


# What is recorded.


def test_provenance_records_which_kernel_ran():
    model, tokens = model_of("gpt2"), tokens_of("gpt2")
    fast = packed(model)
    plain_provenance, fast_provenance = (
        Provenance.of(each, each.check(*tokens)[-1]) for each in (model, fast)
    )
    assert (plain_provenance.products, fast_provenance.products) == ("default", NAME)
    assert plain_provenance.weights == fast_provenance.weights
    fast.unembed.linear = F.linear
    assert fast.products == f"default and {NAME}"


def test_the_gain_is_a_ratio_and_needs_rows():
    model = model_of("gpt2")
    assert 0.0 < packing_gain(model, rows=4) < float("inf")
    with pytest.raises(InvalidInput, match="rows=0"):
        packing_gain(model, rows=0)
