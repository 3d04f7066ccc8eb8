"""The tolerance of the check at loading is above rounding errors, far below effects of parts."""

import pytest
import torch
from agreement.exact import randomised
from agreement.test_families import CASES, FIRST
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import interp
from interp.loading.agreement import expected_rounding, tolerance

pytestmark = pytest.mark.agreement

EACH = [pytest.param(*case.values, id=case.id, marks=pytest.mark.nightly) for case in CASES]
ONE_EACH = [pytest.param(*case.values, id=f"{case.id}, one") for case in FIRST]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def share(theirs: torch.nn.Module, dtype: torch.dtype) -> float:
    """The difference measured at loading, as a share of the tolerance."""
    ours = interp.load(theirs.to(dtype))
    assert ours.agreement is not None
    return ours.agreement / tolerance(dtype, expected_rounding(ours))


@DTYPES
@pytest.mark.parametrize(("family", "case"), [*EACH, *ONE_EACH])
def test_rounding_stays_below_a_quarter_of_the_tolerance(family, case, dtype):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = randomised(family.cases[case]())
    assert share(theirs, dtype) < 0.25


@pytest.mark.slow
@DTYPES
@pytest.mark.parametrize("scale", [0.1, 1.0])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_rounding_of_deeper_models_with_large_weights_does_too(kind, scale, dtype):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = deep_gpt2() if kind == "gpt2" else deep_llama()
        with torch.no_grad():
            for weight in theirs.parameters():
                weight.add_(torch.randn(weight.shape) * scale)
    assert share(theirs, dtype) < 0.25


def deep_gpt2():
    sizes = {"n_positions": 32, "n_embd": 256, "n_layer": 12, "n_head": 8}
    return GPT2LMHeadModel(GPT2Config(vocab_size=100, **sizes))


def deep_llama():
    sizes = {"hidden_size": 256, "intermediate_size": 700, "num_hidden_layers": 16}
    return LlamaForCausalLM(LlamaConfig(vocab_size=100, num_attention_heads=8, **sizes))


def test_the_tolerance_grows_with_the_model_and_is_bounded():
    small, large = (tolerance(torch.float32, rounding) for rounding in (10.0, 100.0))
    assert 1e-6 < small < large < 1e-3
    assert tolerance(torch.float32, 1e9) == 1e-2
    assert tolerance(torch.float64, 1e9) == 1e-5
    assert tolerance(torch.bfloat16, 1e9) == tolerance(torch.float16, 1e9) == 0.3


def test_products_in_tf32_are_allowed_their_rounding(monkeypatch):
    exact = tolerance(torch.float32, 10.0)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert tolerance(torch.float32, 10.0) == 1e-2 > exact
