"""Checking tokens waits for the device once: on a GPU, each number read is a wait."""

import pytest
import torch
from architectures import D_VOCAB, build, tokens_of
from tables import each
from torch.utils._python_dispatch import TorchDispatchMode

from interp import PAD, AttentionConfig, Config, EmbeddingConfig, StackConfig, Transformer
from interp.config import PatchConfig
from interp.errors import InvalidTokens

TYPED = build("bert-types")
IDS = tokens_of("bert-types")[0]
PATCHES = EmbeddingConfig(patches=PatchConfig(4, 4, 2))
IMAGES = Transformer(
    Config(8, 3, 5, encoder=StackConfig(1, AttentionConfig(2, 4), embedding=PATCHES))
)
READS = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal")


class CountedReads(TorchDispatchMode):
    """Counts what makes the host wait for the device; ``tolist`` is counted by its caller."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(name in str(func) for name in READS):
            self.reads.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def reads(monkeypatch):
    """All reads within ``with reads:``."""
    counted = CountedReads()
    tolist = torch.Tensor.tolist

    def counting(tensor):
        counted.reads.append("tolist")
        with torch.utils._python_dispatch._disable_current_modes():
            return tolist(tensor)

    monkeypatch.setattr(torch.Tensor, "tolist", counting)
    return counted


def padded():
    ids = IDS.clone()
    ids[0, -1] = PAD
    return ids


@each(
    ("model", "tokens", "options"),
    [
        (build("gpt2"), IDS, {}),
        (build("gpt2"), padded(), {}),
        (build("gpt2"), IDS, {"mask": IDS >= 0}),
        (TYPED, IDS, {"types": torch.zeros_like(IDS)}),
        (TYPED, padded(), {"mask": IDS >= 0, "types": torch.ones_like(IDS)}),
    ],
)
def test_valid_tokens_are_checked_by_one_read(model, tokens, options, reads):
    reads.reads.clear()
    with reads:
        model.batch(tokens, **options)
    assert reads.reads == ["tolist"]


def test_a_forward_of_a_checked_batch_reads_nothing(reads):
    batches = TYPED.check(IDS)
    reads.reads.clear()
    with reads:
        TYPED.stream(batches)
    assert reads.reads == []


def test_the_reads_of_a_refusal_are_counted(reads):
    """The converse: what is read for a message is seen."""
    with reads, pytest.raises(InvalidTokens, match=f"id {D_VOCAB} at row 0, position 0"):
        build("gpt2").batch(torch.full((1, 2), D_VOCAB))
    assert len(reads.reads) > 1


@each(
    ("types", "message"),
    [
        (torch.full((2, 5), -1), "numbered from 0; one is -1"),
        (torch.zeros(2, 4).long(), r"\(2, 4\)"),
        (torch.zeros(2, 5), "float32"),
        ([[0] * 5, [0] * 4], "whole numbers"),
    ],
)
def test_types_that_are_none_are_refused(types, message):
    with pytest.raises(InvalidTokens, match=message):
        TYPED.batch(IDS, types=types)


def test_a_batch_of_the_other_kind_is_refused():
    with pytest.raises(InvalidTokens, match="batch of images"):
        build("gpt2").batch(IMAGES.batch(torch.zeros(1, 3, 4, 4)))
    with pytest.raises(InvalidTokens, match="batch of tokens"):
        IMAGES.batch(build("gpt2").batch(IDS))
