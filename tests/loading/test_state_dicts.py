"""A state dict and its configuration give the model again, in memory and from files."""

import pytest
import torch
from architectures import ARCHITECTURES, assert_identical, build, build_new, covering, tokens_of
from safetensors.torch import save_file
from tables import each

import interp
from interp.errors import ModelLoadError


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_a_state_dict_and_its_config_are_the_model(name):
    """Also of shared weights, which a state dict holds under each of their names."""
    model, tokens = build(name), tokens_of(name)
    again = interp.load(model.state_dict(), config=model.config)
    assert again.config == model.config
    assert_identical(again(*tokens), model(*tokens))
    assert [n for n, _ in again.named_parameters()] == [n for n, _ in model.named_parameters()]


def test_a_pickled_state_dict_is_loaded_where_that_is_allowed(tmp_path):
    model, path = build("gpt2"), tmp_path / "model.pt"
    torch.save(model.state_dict(), path)
    again = interp.load(path, config=model.config, allow_pickle=True)
    assert_identical(again(*tokens_of("gpt2")), model(*tokens_of("gpt2")))
    with pytest.raises(ModelLoadError, match="is a pickle"):
        interp.load(path, config=model.config)
    with pytest.raises(ModelLoadError, match=r"state dict needs its configuration: .*config="):
        interp.load(path, allow_pickle=True)


def test_a_safetensors_file_of_one_is_loaded(tmp_path):
    model, path = build("llama"), tmp_path / "model.safetensors"
    save_file({name: w.contiguous() for name, w in model.state_dict().items()}, path)
    again = interp.load(str(path), config=model.config, dtype=torch.float32)
    assert again.dtype == torch.float32
    assert torch.equal(again.W_E, model.W_E.float())


def test_the_weights_are_copies():
    model = build_new("gpt2")
    again = interp.load(model.state_dict(), config=model.config)
    with torch.no_grad():
        again.W_E.zero_()
    assert model.W_E.any()


def changed(name, **weights):
    return build(name).state_dict() | weights


@each(
    ("source", "message"),
    [
        ({}, "no|only 0"),
        ({"decoder.weight_e": 3}, "maps names to tensors.*got 3"),
        ({3: torch.ones(2)}, "maps names to tensors"),
        (5, "maps names to tensors.*got 5"),
        (changed("gpt2", more=torch.ones(2)), "more belongs to no part"),
        (changed("llama"), "is config= that of another model"),
        (changed("gpt2", **{"decoder.weight_e": torch.ones(2, 2)}), "differ in the state dict"),
        (changed("gpt2", **{"decoder.entry.W_pos": torch.ones(2, 2)}), "W_pos"),
        (changed("gpt2", **{"decoder.entry.W_pos": torch.ones(16, 12).to_sparse()}), "sparse"),
        (changed("gpt2", **{"decoder.entry.W_pos": torch.ones(16, 12, device="meta")}), "meta"),
        ("missing.pt", "missing.pt"),
    ],
)
def test_what_is_no_state_dict_of_the_config_is_refused(source, message):
    with pytest.raises(ModelLoadError, match=message):
        interp.load(source, config=build("gpt2").config, allow_pickle=True)


def test_a_state_dict_alone_is_refused():
    with pytest.raises(ModelLoadError, match="needs its configuration"):
        interp.load(build("gpt2").state_dict())
