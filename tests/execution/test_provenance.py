"""What a number depends on is written down with it, the rounding of products included."""

from collections.abc import Iterator

import pytest
import torch
from architectures import build_new

from interp.execution.provenance import Provenance, precision


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    legacy = torch.get_float32_matmul_precision()
    whole, cpu = torch.backends.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision
    yield
    torch.set_float32_matmul_precision(legacy)
    torch.backends.fp32_precision = whole
    torch.backends.mkldnn.matmul.fp32_precision = cpu


def test_rounding_of_products_is_as_set_in_pytorch():
    model = build_new("gpt2", dtype=torch.float32)
    assert precision(model) == "ieee"
    torch.set_float32_matmul_precision("medium")
    assert precision(model) == "bf16"
    assert Provenance.of(model).precision == "bf16"
    torch.set_float32_matmul_precision("highest")
    assert precision(model) == "ieee"


def test_one_devices_products_follow_all_backends_where_nothing_else_is_set():
    model = build_new("gpt2", dtype=torch.float32)
    torch.backends.mkldnn.matmul.fp32_precision = "none"
    torch.backends.fp32_precision = "tf32"
    assert precision(model) == "tf32"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_are_products_of_their_own(dtype: torch.dtype):
    torch.set_float32_matmul_precision("medium")
    assert precision(build_new("gpt2", dtype=dtype)) == str(dtype).removeprefix("torch.")
