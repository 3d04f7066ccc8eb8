"""Models whose layers lie on several devices have the bits of models on one, and mix no devices.

Devices are pretended: tensors on the CPU that refuse to be mixed (``pretended_devices``).
"""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    COVERING,
    GENERATORS,
    as_where,
    assert_identical,
    build,
    covering,
    padded,
    tokens_of,
)
from placements import ENTRY, alternating, on_cpu, spread
from pretended_devices import MixedDevices, pretended_devices
from torch import Tensor

import interp
from interp import Transformer, edits, metrics
from interp.cache import cache as cache_module
from interp.errors import HookFailed, InvalidInput, StaleCache
from interp.placement import boundary, placed, remote

ONE_STACK = [
    name
    for name, config in ARCHITECTURES.items()
    if len(config.stacks) == 1 and build(name).stacks[0].ranges is None
]
SOME = ["gpt2", "gpt-oss", "gemma2"]
OTHERS = [name for name in ONE_STACK if name not in COVERING]
METRIC = metrics.logit_diff(1, 2)


def inputs(name: str) -> Tensor:
    """Two prompts of different lengths."""
    (ids,) = tokens_of(name, batch=2, pos=6)
    return padded([ids[0], ids[1][:-2]], "right")


def edits_of_each_place(model: Transformer) -> list[edits.Edit]:
    return [
        edits.scale(as_where(at), 1.5)
        for at in model.layout
        if at.point.axes[-1] not in ("one", "expert")
    ]


def observed(model: Transformer, name: str) -> dict[str, Tensor]:
    """Numbers of everything that a model is used for."""
    ids = inputs(name)
    numbers: dict[str, Tensor] = {"logits": model(ids).detach()}
    head = edits.zero("z", layer=-1, head=1)
    done = interp.run(model, ids, record="all", edits=[head])
    numbers |= {f"edited {at}": tensor for at, tensor in done.cache.items()}
    plain = interp.run(model, ids, record="all").cache
    numbers |= {f"recorded {at}": tensor for at, tensor in plain.items()}
    numbers |= {"all layers": plain["resid_pre"]}
    other = edits.patch(done.cache, "resid_pre", layer=-1, pos=2)
    numbers["patched"] = interp.run(model, ids, edits=[other]).require_logits()
    start = interp.Start(len(model.blocks) - 1, plain["resid_pre", -1])
    numbers["continued"] = interp.run(model, ids, start=start).require_logits()
    stopped = interp.run(model, ids, stop_at_layer=-1).stream
    assert stopped is not None
    numbers["stopped"] = stopped
    gradients = interp.run(model, ids, record=["resid_pre", "z"], gradients_of=METRIC)
    numbers |= {f"gradient {n}": gradients.cache["z_grad", n] for n in range(model.n_layers)}
    numbers["swept"] = interp.sweep(model, ids, edits_of_each_place(model), metric=METRIC).values
    block = model.blocks[-1]
    numbers |= {"W_O": block.attn.W_O.detach(), "W_Q of all": model.W_Q.detach()}
    numbers["OV"] = (block.attn.W_V[0] @ model.blocks[0].attn.W_O[0]).detach()
    if name in GENERATORS:
        numbers["generated"] = model.generate(tokens_of(name)[0], max_new_tokens=4)
    return numbers


def assert_same(numbers: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert numbers.keys() == expected.keys()
    for key, tensor in expected.items():
        assert_identical(numbers[key], tensor)


@pytest.mark.parametrize("name", covering(ONE_STACK, SOME, nightly=OTHERS))
def test_a_placed_model_has_the_bits_of_a_model_on_one_device(name):
    """Forwards, edits of every place, sweeps, gradients, derived reads, weights and generation."""
    model = build(name)
    with pretended_devices():
        numbers = observed(spread(model), name)
        swept = numbers.pop("swept")
        assert swept.device == torch.device("cpu")
        assert {x.device for x in numbers.values()} == {ENTRY}
    assert_same(numbers | {"swept": swept}, observed(model, name))


@pytest.mark.parametrize("name", covering(ONE_STACK, SOME, nightly=OTHERS))
def test_a_model_that_is_placed_on_the_cpu_has_its_bits(name):
    """Likewise on a device that is not pretended, which all layers share."""
    model = build(name)
    assert_same(observed(on_cpu(model), name), observed(model, name))


# ---- the converse: each transfer is needed ------------------------------------------------------


def edit_by_function(model: Transformer) -> None:
    direction = torch.ones(12, dtype=torch.float64, device=ENTRY)
    change = edits.apply("resid_mid", lambda x, hook: x + direction, layer=1)
    interp.run(model, inputs("gpt2"), edits=[change])


def logits_from_stream(model: Transformer) -> None:
    done = interp.run(model, inputs("gpt2"), record="all")
    _ = sum(done.cache["resid_mid", layer] for layer in range(2))


def product_of_layers(model: Transformer) -> None:
    _ = model.blocks[0].attn.W_O[0] @ model.blocks[1].attn.W_V[0]


def derived(model: Transformer) -> None:
    _ = interp.run(model, inputs("gpt2"), record="result").cache["result", 0]


def forward(model: Transformer) -> None:
    model(inputs("gpt2"))


Without = Callable[[pytest.MonkeyPatch], None]


def unmoved_stream(patch: pytest.MonkeyPatch) -> None:
    def run(block, home, x, context, tap):
        device = remote.device_of(block)
        return block(x, boundary.moved_context(context, device, home.owner_of), tap)

    patch.setattr(placed, "run", run)


def unmoved_context(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(remote, "moved_context", lambda context, device, owner_of: context)


def unmoved_edits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(boundary, "changes", lambda tap, point: False)


def unmoved_reads(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cache_module.Placement, "placed", lambda self, tensor: tensor)


@pytest.mark.parametrize(
    ("without", "use"),
    [
        (unmoved_stream, forward),
        (unmoved_context, forward),
        (unmoved_edits, edit_by_function),
        (unmoved_reads, logits_from_stream),
    ],
)
def test_without_a_transfer_devices_are_mixed(without, use, monkeypatch):
    with pretended_devices():
        model = spread(build("gpt2"))
        use(model)
        without(monkeypatch)
        with pytest.raises((MixedDevices, HookFailed), match=r"cuda:\d and cuda:\d"):
            use(model)


@pytest.mark.parametrize("use", [product_of_layers, derived])
def test_without_moved_weights_devices_are_mixed(use, monkeypatch):
    """Parts that are read as they lie."""
    with pretended_devices():
        model = spread(build("gpt2"))
        use(model)
        monkeypatch.setattr(placed.PlacedStack, "block", placed.PlacedStack.placed_block)
        with pytest.raises(MixedDevices):
            use(model)


# ---- what crosses, and where things lie ---------------------------------------------------------


def test_a_forward_moves_the_stream_once_for_each_boundary():
    """2 · 6 tokens of 12 numbers of 8 bytes; and positions and padding, once for each device."""
    with pretended_devices() as devices:
        model, ids = spread(build("gpt2")), inputs("gpt2").to(ENTRY)
        model(ids)
        stream, positions, padding = 2 * 6 * 12 * 8, 2 * 6 * 8, 2 * 6
        devices.moved.clear()
        model(ids)
        assert devices.moved == {
            ("cuda:0", "cuda:1"): stream + positions + padding,
            ("cuda:1", "cuda:2"): stream,
            ("cuda:0", "cuda:2"): positions + padding,
            ("cuda:2", "cuda:0"): stream,
        }


def test_layers_of_one_device_move_nothing_between_them():
    with pretended_devices() as devices:
        model = placed.place(copy.deepcopy(build("gpt2")), dict.fromkeys(("embed", 0, 1), "cuda:0"))
        ids = inputs("gpt2").to(ENTRY)
        devices.moved.clear()
        model(ids)
        assert not devices.moved


def test_what_is_recorded_lies_where_it_was_computed_until_it_is_read():
    with pretended_devices() as devices:
        model = spread(build("gpt2"))
        cache = interp.run(model, inputs("gpt2"), record=["z", "resid_pre"]).cache
        lying = {place.layer: devices.device_of(cache._stored[place]) for place in cache.stored}
        assert lying == {0: torch.device("cuda:1"), 1: torch.device("cuda:2")}
        assert {cache["z", 0].device, cache["z"].device, cache.to("cuda:2")["z", 0].device} == {
            ENTRY,
            torch.device("cuda:2"),
        }


def test_an_edit_by_a_function_gets_tensors_of_the_entry():
    seen: list[torch.device] = []
    with pretended_devices():
        model = spread(build("gpt2"))
        change = edits.apply("z", lambda x, hook: seen.append(x.device), layer=1)
        interp.run(model, inputs("gpt2"), edits=[change])
    assert seen == [ENTRY]


def test_gradients_reach_the_weights_of_every_device():
    def gradients(model: Transformer) -> dict[str, Tensor | None]:
        logits = interp.run(model, inputs("gpt2"), keep_graph=True).require_logits()
        logits.square().sum().backward()
        return {name: weight.grad for name, weight in model.named_parameters()}

    expected = gradients(copy.deepcopy(build("gpt2")))
    with pretended_devices():
        computed = gradients(spread(build("gpt2")))
    assert list(computed) == list(expected)
    for name, gradient in expected.items():
        assert gradient is not None
        assert_identical(computed[name], gradient)


def test_placement_and_repr_say_where_layers_lie():
    with pretended_devices():
        model = spread(build("gpt2"))
        assert str(model.placement) == (
            "embed and exit on cuda:0, layer 0 on cuda:1, layer 1 on cuda:2"
        )
        assert str(model.placement) in repr(model)
        assert model.devices == tuple(torch.device(f"cuda:{n}") for n in range(3))
        assert (model.device, model.placement.entry) == (ENTRY, ENTRY)
        model.to("cuda:1")
        assert str(model.placement) == "embed and exit on cuda:1, layers 0-1 on cuda:1"
        assert model(inputs("gpt2")).device == torch.device("cuda:1")


def test_a_change_of_a_weight_of_a_layer_is_detected():
    model = on_cpu(build("gpt2"))
    cache = interp.run(model, inputs("gpt2"), record="result").cache
    with torch.no_grad():
        model.get_parameter("decoder.blocks.1.attn.weight_qkv").mul_(2.0)
    with pytest.raises(StaleCache):
        _ = cache["result", 0]


def test_a_placed_model_is_saved_and_pickled(tmp_path):
    """It is saved as any model; pickled, its layers keep their devices."""
    plain = build("gpt2", dtype=torch.float32)
    model = on_cpu(plain)
    model.save(tmp_path / "saved")
    again = pickle.loads(pickle.dumps(model))
    for other in (interp.load(tmp_path / "saved"), again):
        assert_identical(other(inputs("gpt2")), plain(inputs("gpt2")))
    assert type(again) is type(model)
    assert_identical(again.blocks[0].attn.W_Q, plain.blocks[0].attn.W_Q)


def test_views_without_mask_lie_where_the_model_does():
    with pretended_devices():
        view = spread(build("gpt2")).without(mask=True)
        logits = view(inputs("gpt2"))
        assert view.devices == tuple(torch.device(f"cuda:{n}") for n in range(3))
    assert_identical(logits, build("gpt2").without(mask=True)(inputs("gpt2")))


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda model: model.processed(), "processed: the layers of this model lie on 3 devices"),
        (copy.deepcopy, "A copy of a model with device_map= is not made"),
        (
            lambda model: interp.with_dictionaries(model, []),
            "with_dictionaries takes no model with device_map=",
        ),
        (
            lambda model: interp.sweep(
                model, inputs("gpt2"), [edits.zero("z", layer=0)], METRIC, executor="processes"
            ),
            "each worker of an executor holds the model on one device",
        ),
        (interp.packed, "only float32 on a CPU can be packed"),
    ],
)
def test_what_needs_the_model_on_one_device_is_refused(use, message):
    with pretended_devices():
        model = spread(build("gpt2"))
        with pytest.raises(InvalidInput, match=message):
            use(model)


def test_alternating_names_every_layer():
    assert alternating(3) == {"embed": "cuda:0", 0: "cuda:1", 1: "cuda:2", 2: "cuda:1"}
