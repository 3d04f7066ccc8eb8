"""A model that was saved is loaded as the same model, bit by bit; nothing else is replaced."""

import json
from copy import deepcopy

import pytest
import torch
from architectures import ARCHITECTURES, assert_identical, build, build_new, covering, tokens_of

import interp
from interp.errors import InvalidInput

GPT2 = build("gpt2")


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_a_saved_model_is_loaded_with_the_same_bits(name, tmp_path):
    model, tokens = build(name), tokens_of(name)
    model.save(tmp_path / "model")
    again = interp.load(tmp_path / "model")
    assert again.config == model.config
    pairs = zip(model.named_parameters(), again.named_parameters(), strict=True)
    for (key, weight), (again_key, again_weight) in pairs:
        assert again_key == key
        assert_identical(again_weight, weight)
    # A copy: mapped weights lie at other addresses, for which kernels round in another order.
    assert_identical(deepcopy(again)(*tokens), model(*tokens))


@pytest.mark.parametrize("name", ["python-2l", "dates", "induction-by-hand"])
def test_its_tokenizer_and_special_tokens_are_saved_too(name, tmp_path):
    model = interp.load(name)
    model.save(str(tmp_path / "model"))
    again = interp.load(str(tmp_path / "model"))
    assert again.tokenizer.backend.to_str() == model.tokenizer.backend.to_str()
    assert (again.tokenizer.bos, again.tokenizer.eos) == (model.tokenizer.bos, model.tokenizer.eos)
    assert again.config == model.config
    for id_ in range(model.tokenizer.vocab_size):
        assert again.label(id_) == model.label(id_)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_model_keeps_its_dtype(dtype, tmp_path):
    model = build("llama", dtype=dtype)
    model.save(tmp_path / "model")
    again = interp.load(tmp_path / "model")
    assert again.dtype == dtype
    assert_identical(again.W_E, model.W_E)


def test_a_model_saved_in_half_precision_is_loaded_in_its_own(tmp_path):
    model = build("gpt2", dtype=torch.float32)
    model.save(tmp_path / "model", torch.bfloat16)
    again = interp.load(tmp_path / "model")
    assert again.dtype == torch.float32
    assert_identical(again.W_E, model.W_E.bfloat16().float())


def test_a_model_without_a_tokenizer_leaves_none_behind(tmp_path):
    interp.load("python-2l").save(tmp_path / "model")
    GPT2.save(tmp_path / "model")
    again = interp.load(tmp_path / "model")
    assert again.tokenizer is None
    assert_identical(again.W_E, GPT2.W_E)


def test_a_trained_model_replaces_the_one_that_it_was_loaded_from(tmp_path):
    """Its weights are mapped from the very file that is replaced."""
    build_new("gpt2").save(tmp_path / "model")
    model = interp.load(tmp_path / "model")
    with torch.no_grad():
        model.W_E.mul_(2)
    model.save(tmp_path / "model")
    assert_identical(interp.load(tmp_path / "model").W_E, 2 * GPT2.W_E)
    assert_identical(model.W_E, 2 * GPT2.W_E)


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mine": True}))
    with pytest.raises(InvalidInput, match=r"config\.json, which interp did not write"):
        GPT2.save(tmp_path)
    assert json.loads(config.read_text()) == {"mine": True}
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_what_can_not_be_saved_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="meta device"):
        interp.Transformer(GPT2.config).to("meta").save(tmp_path / "model")
    with pytest.raises(InvalidInput, match=r"dtype=torch\.int8"):
        GPT2.save(tmp_path / "model", torch.int8)
    assert list(tmp_path.iterdir()) == []
