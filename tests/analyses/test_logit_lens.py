"""The logit lens: the unembedding of every stream, which ends in the model's own prediction."""

import sys
from dataclasses import replace

import pytest
import torch
from architectures import ARCHITECTURES, assert_close, assert_identical, build, padded, tokens_of
from declared import Call, Command, Declared, EachPrompt, Made, Symmetric, example, odd, small

from analyses import TunedLens, logit_lens
from analyses.logit_lens import NORMS
from analyses.methods.lens.decode import decode
from analyses.results import percent
from interp import load, run
from interp.errors import InvalidInput
from interp.model.unembedding import Unembedding

STREAMS = [("resid_pre", 0), ("resid_pre", 1), ("resid_post", 1)]
PREDICTING = [name for name, config in ARCHITECTURES.items() if config.unembeds]


def prompts_of(name):
    tokens = tokens_of(ARCHITECTURES[name])
    return tokens if len(tokens) > 1 else tokens[0]


@pytest.mark.parametrize("norm", ["recomputed", "final"])
@pytest.mark.parametrize("name", PREDICTING)
def test_the_last_place_is_the_output(name, norm):
    """Bit for bit: same kernel, same shapes."""
    model = build(name)
    decoded = logit_lens(model, prompts_of(name), norm=norm, top=3)
    with torch.no_grad():
        log_p = model(*tokens_of(model.config)).log_softmax(-1).topk(3, dim=-1)
    assert_identical(decoded.probability[-1], log_p.values.exp())
    assert_identical(decoded.top[-1], log_p.indices)
    assert decoded.kl[-1].abs().max() == 0
    assert decoded.kl[0].min() > 0


def test_each_place_is_the_unembedding_of_its_stream():
    """logits_l = unembed(norm(x_l)), here by the formula of the norm."""
    model, tokens = build("gpt2"), torch.tensor([[1, 2, 3, 4]])
    decoded = logit_lens(model, tokens, targets=5, top=13)
    done = run(model, tokens, record="all")
    norm = model.stacks[0].final_norm
    assert isinstance(model.unembed, Unembedding)
    assert list(zip(decoded.points, decoded.layers, strict=True)) == STREAMS
    for place, stream in enumerate(STREAMS):
        x = done.cache[stream]
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.gain + norm.bias
        p = (x @ model.unembed.W_U).softmax(-1)
        assert_close(decoded.entropy[place], -(p * p.log()).sum(-1))
        assert_close(decoded.target_probability[place], p[..., 5])
        last = done.logits.softmax(-1)
        assert_close(decoded.kl[place], (last * (last / p).log()).sum(-1))
        assert torch.equal(decoded.rank[place], (p > p[..., 5:6]).sum(-1) + 1)
        assert torch.equal(decoded.top[place], p.argsort(dim=-1, descending=True))


def test_few_logits_at_a_time_give_the_same(monkeypatch):
    model, rows = build("llama"), [torch.tensor([1, 2, 3]), torch.tensor([4]), torch.tensor([5, 6])]
    tokens = padded(rows, "left")
    whole = logit_lens(model, tokens, targets=[1, 2, 3])
    monkeypatch.setattr("interp.metrics.metric.AT_A_TIME", 1)
    rows_run: list[int] = []
    monkeypatch.setattr(
        sys.modules[logit_lens.__module__],
        "run",
        lambda model, batch, **settings: (
            rows_run.append(len(batch.ids)) or run(model, batch, **settings)
        ),
    )
    chunked = logit_lens(model, tokens, targets=[1, 2, 3])
    assert rows_run == [1, 1, 1]
    assert_close(chunked.kl, whole.kl)
    assert torch.equal(chunked.rank, whole.rank)


def test_the_final_divisor_is_that_of_the_last_stream():
    """norm="final": centred(x_l) / scale(x_L) · gain + bias; the same for what a part writes."""
    model, tokens = build("gpt2"), torch.tensor([[1, 2, 3, 4]])
    decoded = logit_lens(model, tokens, at=["resid_mid", "attn_out"], norm="final")
    done, norm = run(model, tokens, record="all"), model.stacks[0].final_norm
    assert list(zip(decoded.points, decoded.layers, strict=True)) == [
        ("attn_out", 0), ("resid_mid", 0), ("attn_out", 1), ("resid_mid", 1), ("resid_post", 1),
    ]  # fmt: skip
    for row, place in enumerate(zip(decoded.points, decoded.layers, strict=True)):
        x = done.cache[place]
        x = (x - x.mean(-1, keepdim=True)) / done.cache["final_scale"] * norm.gain + norm.bias
        p = (x @ model.W_U).softmax(-1)
        assert_close(decoded.entropy[row], -(p * p.log()).sum(-1))


def test_the_divisors_differ_but_at_the_end():
    entropy = [logit_lens(build("llama"), prompts_of("llama"), norm=norm).entropy for norm in NORMS]
    assert ((entropy[0] - entropy[1])[:-1].abs() > 1e-3).all()


def test_a_model_without_a_final_norm_has_no_divisor():
    recomputed, final = (logit_lens(build("seed"), prompts_of("seed"), norm=norm) for norm in NORMS)
    assert_identical(recomputed.entropy, final.entropy)


def test_behind_each_sublayer_the_stream_that_goes_on_is_read():
    """With post-norm that is the norm of the sum; a paired decoder has two such places a block."""
    model = build("bert")
    decoded = logit_lens(model, prompts_of("bert"), at="resid_mid")
    cache = run(model, prompts_of("bert"), record="all").cache
    p = decode(model, cache["normalized", 0, "ln1"]).softmax(-1)
    assert_close(decoded.probability[0, ..., 0], p.max(-1).values)
    assert decoded.points == ("resid_mid", "resid_mid", "resid_post")
    pair = logit_lens(build("t5"), prompts_of("t5"), at=("resid_mid", "cross_attn_out"))
    each = ("resid_mid", "cross_attn_out", "cross_resid_mid")
    assert pair.points == (*each, *each, "resid_post")


def test_a_frame_has_a_row_for_each_place_and_token_without_padding():
    model = build("gpt2")
    tokens = padded([torch.tensor([1, 2, 3]), torch.tensor([4])], "left")
    frame = logit_lens(model, tokens).to_frame()
    places = frame.groupby(["layer", "point"]).size()
    assert places.to_dict() == {(0, "resid_pre"): 4, (1, "resid_pre"): 4, (1, "resid_post"): 4}
    assert frame[frame["layer"] == 0][["prompt", "pos", "token"]].values.tolist() == [
        [0, 0, "1"], [0, 1, "2"], [0, 2, "3"], [1, 0, "4"],
    ]  # fmt: skip


def test_the_figure_and_the_summary_of_a_bundled_model():
    model = load("python-2l")
    result = logit_lens(model, ["def f(self):", "import os"])
    figure = result.figure(prompt=1)
    assert figure.data[0].zmax == 1.0
    assert len(figure.data[0].z) == 3
    assert list(figure.layout.yaxis.ticktext) == ["resid_pre 0", "resid_pre 1", "resid_post 1"]
    first, *lines = result.summary().splitlines()
    assert "nowhere before the output is the likeliest token the final one" in first
    assert lines[-1].startswith("resid_post 1 the output, entropy ")


def test_the_summary_has_the_probability_of_the_targets_after_each_prompt():
    """At the last token of each prompt, also where a shorter one is padded."""
    model, texts = load("python-2l"), ["def f(self):", "import os, sys"]
    targets = [model.to_single_token(text) for text in ("\n", " as")]
    after = [
        model(model.to_tokens(text))[0, -1].softmax(-1)[target].item()
        for text, target in zip(texts, targets, strict=True)
    ]
    *_, last = logit_lens(model, texts, targets=targets).summary().splitlines()
    assert last.endswith(f"; target after the last token {percent(sum(after) / 2)}")
    assert "target" not in logit_lens(model, texts).summary()


def test_the_provenance_has_the_lens():
    """Two lenses differ in it, and each from none; equal numbers are the same lens."""
    model, lens = build("gpt2"), TunedLens.untrained(build("gpt2"))
    same, other = (replace(lens, A=lens.A + more) for more in (0.0, 1e-3))
    logit, first, again, second = (
        logit_lens(model, prompts_of("gpt2"), lens=tuned).provenance
        for tuned in (None, lens, same, other)
    )
    assert logit.lens is None
    assert first == again == replace(logit, lens=lens.digest)
    assert first.lens not in (None, second.lens)


def test_what_has_no_logits_or_no_such_token_is_refused():
    without = build(replace(ARCHITECTURES["gpt2"], unembeds=False, tied=False))
    with pytest.raises(InvalidInput, match="returns its last stream"):
        logit_lens(without, prompts_of("gpt2"))
    with pytest.raises(InvalidInput, match="top=99 must be an integer from 1 to 13"):
        logit_lens(build("gpt2"), prompts_of("gpt2"), top=99)
    with pytest.raises(InvalidInput, match="Target 13 is outside"):
        logit_lens(build("gpt2"), prompts_of("gpt2"), targets=13)


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("gpt2", {"at": "attn"}, "at='attn' should be one or several of resid_pre, resid_mid"),
        ("gpt2", {"at": []}, "should be one or several of"),
        ("gpt2", {"at": ("resid_pre", "q")}, "should be one or several of"),
        ("gpt2", {"norm": "frozen"}, "norm='frozen' should be one of recomputed, final"),
        ("neox", {"at": ["resid_pre", "resid_mid"]}, "this model has no resid_mid"),
        ("gpt2", {"at": "cross_attn_out"}, "this model has no cross_attn_out"),
        ("rotary-only", {"at": "mlp_out"}, "this model has no mlp_out"),
        ("bert", {"at": "attn_out"}, "this model normalizes the whole stream"),
        ("bloom-stream", {"at": "mlp_out"}, "this model normalizes the whole stream"),
    ],
)
def test_a_place_without_a_prediction_is_refused_by_name(name, asked, message):
    with pytest.raises(InvalidInput, match=message):
        logit_lens(build(name), prompts_of(name), **asked)


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, prompts, n):
    result = logit_lens(model, prompts)
    numbers = {name: getattr(result, name) for name in ("entropy", "kl", "probability")}
    return [{name: x[:, i, result.real[i]] for name, x in numbers.items()} for i in range(n)]


DECLARED = Declared(
    analysis=logit_lens,
    made=Made(lambda: logit_lens(example.model(), ["abcab", "xy"], targets=3)),
    call=Call(
        (small.MODEL, small.CLEAN),
        {},
        {
            "at": odd.CHOICE,
            "norm": odd.CHOICE,
            "lens": odd.SOMETHING,
            "targets": odd.TOKEN,
            "top": (*odd.COUNT, 99),
        },
    ),
    command=Command(
        "lens",
        ("--at", "resid_pre", "--at", "attn_out"),
        "lens",
        "Logit lens on 24 prompts",
        "at=None norm=recomputed lens=None",
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair={"": numbers_of_prompts},
    symmetric=Symmetric(
        {"": lambda case: logit_lens(case.model, case.clean, targets=case.target)},
        of_experts=("",),
    ),
)
