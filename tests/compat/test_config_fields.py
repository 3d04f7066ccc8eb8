"""Every field of a configuration is read, refused, or known to have no effect."""

from dataclasses import fields as fields_of

import pytest
import torch

from interp import InterpError
from interp.compat import HookedTransformer, HookedTransformerConfig
from interp.compat.core_config import UNSUPPORTED, WITHOUT_EFFECT
from tests.compat.shapes import SHAPES, fields, tokens

OTHER = {"n_devices": 2, "rotary_base_local": 5.0, "clip_qkv": 2.0, "quantization_method": "nf4"}
EXPERTS = {"num_experts": 2, "experts_per_token": 1}


class Recording(HookedTransformerConfig):
    """Keeps the names of the fields that are read."""

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        super().__getattribute__("__dict__").setdefault("read", set()).add(name)
        return value


def fields_read(**values):
    cfg = Recording(**values)
    vars(cfg)["read"] = set()
    model = HookedTransformer(cfg)
    model.set_use_attn_result(True)
    model.run_with_cache(tokens())
    return vars(cfg)["read"]


def test_fields_are_read_refused_or_without_effect():
    read = set.union(*(fields_read(**fields(name)) for name in SHAPES))
    read |= fields_read(**fields("llama"), **EXPERTS)
    read |= fields_read(**fields("llama"), use_NTK_by_parts_rope=True, rotary_scaling_factor=1.0)
    all_fields = {field.name for field in fields_of(HookedTransformerConfig)}
    in_other_calls = {
        "default_prepend_bos",
        "tokenizer_prepends_bos",
        "device",
        "initializer_range",
    }
    assert all_fields - read - set(UNSUPPORTED) - set(WITHOUT_EFFECT) <= in_other_calls
    assert not read & set(WITHOUT_EFFECT) - {"model_name"}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_refused_is_named(name):
    with pytest.raises(InterpError, match=name):
        HookedTransformer(
            HookedTransformerConfig(**fields("llama"), **{name: OTHER.get(name, True)})
        )


@pytest.mark.parametrize("name", [n for n in WITHOUT_EFFECT if n not in ("model_name", "n_params")])
def test_what_has_no_effect_changes_no_logits(name):
    plain, other = (HookedTransformerConfig(**fields("pythia")) for _ in range(2))
    setattr(other, name, 1)
    logits, expected = (HookedTransformer(cfg)(tokens()) for cfg in (other, plain))
    assert torch.equal(logits, expected)


def test_a_tokenizer_by_name_that_is_nowhere_is_refused(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(InterpError, match="tokenizer="):
        HookedTransformer(
            HookedTransformerConfig(**fields("gpt2"), tokenizer_name=str(tmp_path / "none"))
        )


def test_a_tokenizer_by_name_is_loaded(tmp_path):
    from tests.compat.words import word_tokenizer  # noqa: PLC0415

    word_tokenizer().save_pretrained(tmp_path)
    model = HookedTransformer(
        HookedTransformerConfig(**fields("gpt2"), tokenizer_name=str(tmp_path))
    )
    assert model.to_tokens("w3 w4")[0, -2:].tolist() == [3, 4]
    assert model("w3").shape[0] == 1
