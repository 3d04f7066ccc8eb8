"""Which device each layer is loaded to, and what is refused."""

from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest
import torch
from architectures import GRIDS, build, build_new
from pretended_devices import N_GPUS, pretended_devices

import interp
from apps.commands import commands
from apps.commands.analysis_run import Settings, run_analysis
from apps.devices import loading_options
from interp.errors import InvalidInput
from interp.placement import DeviceMap, place
from interp.placement.device_map import shares_of

NAME = "python-2l"
CUDA = [torch.device(f"cuda:{number}") for number in range(N_GPUS)]


def largest(entry: int, layers: list[int], numbers: list[int]) -> int:
    """The largest share of a device."""
    shares = [entry, *[0] * max(numbers)]
    for size, number in zip(layers, numbers, strict=True):
        shares[number] += size
    return max(shares)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("entry", [0, 3, 20])
def test_the_largest_share_is_as_small_as_that_of_any_division(n, entry):
    """Among all divisions into consecutive layers, in the order of the devices."""
    layers = [5, 1, 4, 4, 2, 7, 1]
    numbers = shares_of(entry, layers, n)
    assert numbers == sorted(numbers)
    assert max(numbers) < n
    divisions = [
        [sum(layer >= cut for cut in cuts) for layer in range(len(layers))]
        for most in range(n)
        for cuts in combinations(range(len(layers)), most)
    ]
    assert largest(entry, layers, numbers) == min(largest(entry, layers, d) for d in divisions)


def test_balanced_counts_embedding_and_unembedding():
    """python-2l has 264k numbers in them, and 263k in each layer; on three GPUs each has one."""
    with pretended_devices():
        model = interp.load(NAME, device_map="balanced")
        assert model.placement == DeviceMap(CUDA[0], (CUDA[1], CUDA[2]))


def test_a_list_names_the_devices():
    with pretended_devices():
        model = interp.load(NAME, device_map=["cuda:3", torch.device("cuda:1")])
        assert model.placement == DeviceMap(CUDA[3], (CUDA[3], CUDA[1]))


def test_each_weight_is_read_to_its_own_device():
    """No device ever gets the weights of another, and layers are read as those of one device."""
    with pretended_devices() as devices:
        model = interp.load(NAME, device_map={"embed": "cuda:0", 0: "cuda:1", 1: "cuda:2"})
        (stack,) = model.stacks
        layers = [sum(w.nbytes for w in stack.placed_block(n).parameters()) for n in range(2)]
        entry = sum(w.nbytes for w in model.parameters()) - sum(layers)
        assert devices.moved == {
            ("cpu", "cuda:0"): entry,
            ("cpu", "cuda:1"): layers[0],
            ("cpu", "cuda:2"): layers[1],
        }
        assert {str(w.device) for w in stack.placed_block(1).parameters()} == {"cuda:2"}


def test_every_source_is_read_to_its_devices(tmp_path):
    """A folder, a state dict with its configuration, and another dtype."""
    whole = build("gpt2", dtype=torch.float32)
    whole.save(tmp_path / "model")
    with pretended_devices():
        options = {"device_map": {"embed": "cuda:0", 0: "cuda:1", 1: "cuda:2"}}
        models = [
            interp.load(tmp_path / "model", **options),
            interp.load(whole.state_dict(), config=whole.config, **options),
            interp.load(tmp_path / "model", dtype="bfloat16", **options),
        ]
        assert {m.placement for m in models} == {DeviceMap(CUDA[0], (CUDA[1], CUDA[2]))}
        assert models[-1].W_Q.dtype == torch.bfloat16


@pytest.mark.slow
def test_a_live_model_is_read_to_its_devices():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=12, n_head=3, vocab_size=13, n_positions=16)
    live = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.arange(5)[None]
    model = interp.load(live, device_map=["cpu", "cpu"])
    assert torch.equal(model(ids), interp.load(live)(ids))
    assert model.agreement is not None


def test_a_tied_embedding_is_one_tensor():
    with pretended_devices():
        model = build_new("gpt2")
        assert model.config.tied
        model = place(model, {"embed": "cuda:0", 0: "cuda:1", 1: "cuda:1", "exit": "cuda:0"})
        assert model.unembed.weight is model.W_E
        assert model.W_U.device == CUDA[0]


DEVICES = {"embed": "cuda:0", 0: "cuda:0", 1: "cuda:1"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device_map": DEVICES, "device": "cpu"}, "device='cpu' and device_map="),
        ({"device_map": DEVICES, "kernel": "packed"}, "leave it out with device_map="),
        ({"device_map": DEVICES | {2: "cuda:1"}}, "has the key 2; expected 'embed', 'exit' or a"),
        ({"device_map": DEVICES | {-1: "cuda:1"}}, "has the key -1"),
        ({"device_map": DEVICES | {"head": "cuda:1"}}, "has the key 'head'"),
        ({"device_map": {"embed": "cuda:0", 1: "cuda:0"}}, "leaves out 0. Name a device"),
        ({"device_map": {0: "cuda:0"}}, "leaves out embed, 1"),
        ({"device_map": DEVICES | {1: "cuda:9"}}, "names 'cuda:9': .*invalid device ordinal"),
        ({"device_map": DEVICES | {1: "nowhere"}}, "names 'nowhere': "),
        ({"device_map": DEVICES | {1: None}}, "names None: "),
        ({"device_map": DEVICES | {1: "meta"}}, "names meta, which holds no data"),
        ({"device_map": ["cuda:0", "cuda:9"]}, "names 'cuda:9'"),
        ({"device_map": DEVICES | {"exit": "cuda:1"}}, "'embed' on cuda:0 and 'exit' on cuda:1"),
        ({"device_map": []}, 'expected "balanced", a list of devices, or a'),
        ({"device_map": "auto"}, "device_map='auto': expected \"balanced\""),
        ({"device_map": "cuda:0"}, "device_map='cuda:0': expected"),
    ],
)
def test_a_wrong_device_map_is_refused(options, message):
    with pretended_devices(), pytest.raises(InvalidInput, match=message):
        interp.load(NAME, **options)


def test_balanced_needs_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(InvalidInput, match="PyTorch sees none"):
        interp.load(NAME, device_map="balanced")


def test_a_device_that_this_machine_lacks_is_refused():
    """Without pretended devices."""
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with pytest.raises(InvalidInput, match="device_map= names 'cuda:1'"):
        interp.load(NAME, device_map=["cpu", "cuda:1"])


@pytest.mark.parametrize(
    ("architecture", "message"),
    [("t5", "takes models of one stack"), ("beit", "share learned position biases")],
)
def test_models_whose_layers_share_tensors_are_refused(architecture, message):
    with pytest.raises(InvalidInput, match=message):
        place(of_kind(architecture), ["cpu"])


def of_kind(name: str) -> interp.Transformer:
    """A pair, or a model of images with biases of its scores."""
    return build_new(name) if name == "t5" else build_new(next(iter(GRIDS.values())))


def test_layers_that_share_weights_lie_on_one_device():
    model = build_new("gpt2")
    first, second = (model.stacks[0].block(n).attn for n in range(2))
    second.weight_o = first.weight_o
    with pretended_devices():
        with pytest.raises(InvalidInput, match="are one weight, which both layers share"):
            place(model, DEVICES)
        placed = place(model, {"embed": "cuda:0", 0: "cuda:1", 1: "cuda:1"})
        assert placed.placement.layers == (CUDA[1], CUDA[1])


def test_a_folder_is_refused_before_its_weights_are_read(tmp_path, monkeypatch):
    build_new("t5").save(tmp_path / "pair")
    monkeypatch.setattr("interp.loading.assemble.own_share", None)
    with pytest.raises(InvalidInput, match="takes models of one stack"):
        interp.load(Path(tmp_path / "pair"), device_map=["cpu"])


@pytest.mark.parametrize(
    ("device", "kernel", "options"),
    [
        ("cpu", "auto", {"device": torch.device("cpu"), "kernel": "auto"}),
        ("balanced", "auto", {"device_map": "balanced", "kernel": "default"}),
        ("cuda:0, cuda:2", "default", {"device_map": ["cuda:0", "cuda:2"], "kernel": "default"}),
    ],
)
def test_commands_take_a_device_or_several(device, kernel, options):
    assert loading_options(device, kernel) == options


def test_a_command_runs_a_model_on_several_devices():
    """With the numbers of one device, and a command line that repeats the run."""
    spec = commands()["ablate"]
    parsed = spec.parse([], "test")
    options = {name: parsed[name] for name in spec.parameters}
    single, several = (
        run_analysis(Settings(spec, "induction-by-hand", options=options, device=device))
        for device in ("cpu", "cpu,cpu")
    )
    assert "--device cpu,cpu" in several.settings.shell_command()
    pd.testing.assert_frame_equal(single.result.to_frame(), several.result.to_frame())
