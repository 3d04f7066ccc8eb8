"""Models with parts that this Transformer does not have are refused by what they have."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import interp
from interp.errors import ModelLoadError
from interp.loading.assemble import assemble
from interp.loading.refused_models import REASONS, REFUSED
from interp.loading.registry import families, family_of
from interp.loading.source import StateDictSource

EVIDENCE = {
    "mamba": "MambaMixer|ssm_state",
    "mamba2": "ssm_state",
    "falcon_mamba": "ssm_state",
    "bamba": "ssm_state",
    "falcon_h1": "ssm_state",
    "granitemoehybrid": "ssm_state",
    "jamba": "ssm_state",
    "nemotron_h": "ssm_state",
    "zamba": "ssm_state",
    "zamba2": "ssm_state",
    "rwkv": "rwkv_linear_attention",
    "xlstm": "mLSTM",
    "recurrent_gemma": "Rglru",
    "minimax": "LightningAttention",
    "olmo_hybrid": "GatedDeltaNet",
    "qwen3_5": "GatedDeltaNet",
    "qwen3_5_moe": "GatedDeltaNet",
    "qwen3_next": "GatedDeltaNet",
    "lfm2": "ShortConv",
    "lfm2_moe": "ShortConv",
    "deepseek_v2": "kv_a_proj_with_mqa",
    "deepseek_v3": "kv_a_proj_with_mqa",
    "glm4_moe_lite": "kv_a_proj_with_mqa",
    "longcat_flash": "kv_a_proj_with_mqa",
    "minicpm3": "kv_a_proj_with_mqa",
    "deepseek_v4": "HyperConnection",
    "gemma3n": "AltUp",
    "gemma4": "per_layer_input",
    "llama4": "attn_temperature_tuning",
    "deberta": "disentangled",
    "deberta_v2": "disentangled",
    "whisper": "Conv1d",
    "longformer": "query_global",
    "big_bird": "rand_attn",
    "reformer": "LSHSelfAttention",
    "xlnet": "two_stream|output_g",
}
"""A pattern in the source of ``transformers`` of each model, which names the part."""


def source_of(model_type: str) -> tuple[str, str]:
    """The folder of a model in ``transformers``, and its source."""
    name = model_type.replace("-", "_").removesuffix("_text")
    spec = find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "models" / name
    return name, (folder / f"modeling_{name}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("model_type", sorted(REFUSED))
def test_a_model_is_refused_by_what_it_has(model_type, folder):
    folder.set_fields(model_type=model_type)
    with pytest.raises(ModelLoadError) as error:
        interp.load(folder.path)
    assert f"model_type={model_type!r}, which is not supported: the model has" in str(error.value)
    assert REFUSED[model_type] in str(error.value)


@pytest.mark.agreement
@pytest.mark.parametrize("model_type", sorted(REFUSED))
def test_it_has_that_part(model_type):
    name, source = source_of(model_type)
    assert re.search(EVIDENCE[name], source), name


def test_no_refused_model_is_supported():
    """A family that is added is taken from the list."""
    assert not set(REFUSED) & set(families())
    assert len(REFUSED) == sum(map(len, REASONS.values()))


@pytest.mark.parametrize("method", ["mxfp4", "gptq"])
def test_quantised_weights_are_refused_with_what_to_do(method, folder):
    folder.set_fields(quantization_config={"quant_method": method})
    with pytest.raises(
        ModelLoadError, match=rf"{method}.*quantised.*dequantize=True.*interp\.load"
    ):
        interp.load(folder.path)


def test_blocks_of_a_quantised_matrix_are_refused_without_that_field():
    """As in a folder whose field was removed."""
    weights = {
        "model.layers.0.mlp.experts.gate_up_proj_blocks": torch.zeros(2, 4, dtype=torch.uint8)
    }
    config = {"model_type": "gpt_oss", "num_hidden_layers": 1, "num_local_experts": 2}
    with pytest.raises(ModelLoadError, match=r"GPT-OSS: .*MXFP4.*dequantize=True"):
        assemble(family_of(config), config, StateDictSource(weights))
