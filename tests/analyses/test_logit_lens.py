"""The logit lens: the unembedding of every stream, which ends in the model's own prediction."""

import sys
from dataclasses import replace

import pytest
import torch
from architectures import ARCHITECTURES, assert_close, assert_identical, build, padded, tokens_of

from analyses import logit_lens
from interp import load, run
from interp.errors import InvalidInput
from interp.model.unembedding import Unembedding

PREDICTING = [name for name, config in ARCHITECTURES.items() if config.unembeds]


def given(name):
    tokens = tokens_of(ARCHITECTURES[name])
    return tokens if len(tokens) > 1 else tokens[0]


@pytest.mark.parametrize("name", PREDICTING)
def test_the_last_depth_is_the_output(name):
    """Bit for bit: same kernel, same shapes."""
    model = build(name)
    found = logit_lens(model, given(name), top=3)
    with torch.no_grad():
        log_p = model(*tokens_of(model.config)).log_softmax(-1).topk(3, dim=-1)
    assert_identical(found.probability[-1], log_p.values.exp())
    assert_identical(found.top[-1], log_p.indices)
    assert found.kl[-1].abs().max() == 0
    assert found.kl[0].min() > 0


def test_each_depth_is_the_unembedding_of_its_stream():
    """logits_l = unembed(norm(x_l)), here by the formula of the norm."""
    model, tokens = build("gpt2"), torch.tensor([[1, 2, 3, 4]])
    found = logit_lens(model, tokens, targets=5, top=13)
    done = run(model, tokens, record="all")
    norm = model.stacks[0].final_norm
    assert isinstance(model.unembed, Unembedding)
    for depth, stream in enumerate([("resid_pre", 0), ("resid_post", 0), ("resid_post", 1)]):
        x = done.cache[stream]
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.gain + norm.bias
        p = (x @ model.unembed.W_U).softmax(-1)
        assert_close(found.entropy[depth], -(p * p.log()).sum(-1))
        assert_close(found.target_probability[depth], p[..., 5])
        last = done.logits.softmax(-1)
        assert_close(found.kl[depth], (last * (last / p).log()).sum(-1))
        assert torch.equal(found.rank[depth], (p > p[..., 5:6]).sum(-1))
        assert torch.equal(found.top[depth], p.argsort(dim=-1, descending=True))


def test_few_logits_at_a_time_give_the_same(monkeypatch):
    model, rows = build("llama"), [torch.tensor([1, 2, 3]), torch.tensor([4]), torch.tensor([5, 6])]
    tokens = padded(rows, "left")
    whole = logit_lens(model, tokens, targets=[1, 2, 3])
    monkeypatch.setattr(sys.modules[logit_lens.__module__], "CHUNK", 1)
    chunked = logit_lens(model, tokens, targets=[1, 2, 3])
    assert_close(chunked.kl, whole.kl)
    assert torch.equal(chunked.rank, whole.rank)


def test_a_frame_has_a_row_for_each_depth_and_token_without_padding():
    model = build("gpt2")
    tokens = padded([torch.tensor([1, 2, 3]), torch.tensor([4])], "left")
    frame = logit_lens(model, tokens).to_frame()
    assert frame.groupby("depth").size().tolist() == [4, 4, 4]
    assert frame[frame["depth"] == 0][["prompt", "pos", "token"]].values.tolist() == [
        [0, 0, "1"], [0, 1, "2"], [0, 2, "3"], [1, 0, "4"],
    ]  # fmt: skip


def test_the_figure_and_the_summary_of_a_bundled_model():
    model = load("python-2l")
    result = logit_lens(model, ["def f(self):", "import os"])
    figure = result.figure(prompt=1)
    assert figure.data[0].zmax == 1.0
    assert len(figure.data[0].z) == 3
    assert "after 2 blocks: KL 0.000 nats" in result.summary()


def test_what_has_no_logits_or_no_such_token_is_refused():
    without = build(replace(ARCHITECTURES["gpt2"], unembeds=False, tied=False))
    with pytest.raises(InvalidInput, match="returns its last stream"):
        logit_lens(without, given("gpt2"))
    with pytest.raises(InvalidInput, match=r"top=99 is outside 1\.\.13"):
        logit_lens(build("gpt2"), given("gpt2"), top=99)
    with pytest.raises(InvalidInput, match="Target 13 is outside"):
        logit_lens(build("gpt2"), given("gpt2"), targets=13)
