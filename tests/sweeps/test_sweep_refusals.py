"""What can't be swept is refused before anything is run, with a word on what to do."""

import pytest
import torch
from architectures import ARCHITECTURES, build, build_new, covering, padded, tokens_of
from tables import each

from interp import edits, metrics, run, sweep
from interp.errors import InterpError, InvalidEdit, InvalidInput, InvalidTokens, UnknownPlace
from interp.sweeps.restart_map import RestartMap

MODEL = build("gpt2")
TOKENS = tokens_of("gpt2", batch=3, pos=5)[0]
RAGGED = padded([TOKENS[0], TOKENS[1][:1], TOKENS[2][:3]], "left")
METRIC = metrics.logit(1)
ZERO = edits.zero("z", layer=0)
PAIR, SOURCE_AND_TARGET = build("uneven-pair"), tokens_of("uneven-pair", batch=3)

unchecked = getattr(sweep, "__wrapped__", sweep)
"""As users call it: without the annotations that are checked in tests."""


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any forward fails the test."""
    monkeypatch.setattr(
        "interp.model.stack.Stack.embed", lambda *_, **__: pytest.fail("a forward was run")
    )


def test_a_forward_would_be_noticed(nothing_runs):
    """The converse of every refusal here."""
    with pytest.raises(pytest.fail.Exception):
        sweep(MODEL, TOKENS, ZERO, METRIC)


# Edits.


@each("first", [[], [ZERO]])
@each(
    ("edit", "error", "message"),
    [
        (edits.zero("zz", layer=0), UnknownPlace, "zz.*z"),
        (edits.zero("z", layer=2), UnknownPlace, "z.*2"),
        (edits.zero("z"), UnknownPlace, "z"),
        (edits.zero("z", layer=0, head=3), InvalidEdit, r'\("z", 0\): head 3 is outside 0\.\.2'),
        (edits.zero("z", layer=0, unit=-5), InvalidEdit, r"d_head -5 is outside 0\.\.3"),
        (edits.zero("z", layer=0, head=(1, -2)), InvalidEdit, "same one twice"),
        (edits.zero("post", layer=0, head=0), InvalidEdit, "no 'head' to select"),
        (edits.zero("logits", unit=13), InvalidEdit, r"vocab 13 is outside 0\.\.12"),
        (edits.zero("z", layer=0, batch=3), InvalidEdit, r"batch 3 is outside 0\.\.2"),
        (edits.zero("z", layer=0, pos=5), InvalidEdit, r"position 5|pos 5"),
        (edits.zero("pattern", layer=0, key=7), InvalidEdit, r"key 7|position 7"),
        (edits.apply("z", print, layer=0, head=9), InvalidEdit, "head 9"),
        (edits.add("z", drawn(5), layer=0), InvalidEdit, r"\(5,\).*\(3, 5, 3, 4\)"),
        (edits.replace("z", drawn(3, 4), layer=0, head=0), InvalidEdit, "do not fit"),
        (edits.mean("resid_pre", drawn(4, 12), layer=1), InvalidEdit, r"\(4, 12\)"),
        (edits.resample("mlp_out", drawn(4, 5, 12), layer=1), InvalidEdit, r"\(4, 5, 12\)"),
        (edits.add("resid_pre", drawn(1, 1, 1, 12), layer=0), InvalidEdit, "do not fit"),
        (edits.add("z", drawn(4).float(), layer=0), InvalidEdit, r"float32.*float64"),
        (edits.add("z", drawn(4).to(torch.bfloat16), layer=0), InvalidEdit, r"\.to\(torch"),
    ],
)
def test_an_edit_that_does_not_fit(nothing_runs, first, edit, error, message):
    made = [*first, edit] if first else edit
    with pytest.raises(error, match=message) as caught:
        sweep(MODEL, TOKENS, made, METRIC)
    assert isinstance(caught.value, InterpError)


@each("first", [[], [ZERO]])
@each("thing", [5, "zero", None, lambda z, hook: z])
def test_what_is_no_edit(nothing_runs, first, thing):
    with pytest.raises(InvalidEdit, match="takes a list of edits"):
        unchecked(MODEL, TOKENS, [*first, thing] if first else thing, METRIC)


@each("none", [[], (), iter([])])
def test_no_edits(nothing_runs, none):
    with pytest.raises(InvalidEdit, match="at least one edit"):
        unchecked(MODEL, TOKENS, none, METRIC)


@each(
    ("edit", "message"),
    [
        (edits.zero("z", layer=0, pos=1), "position 1 of row 1.*1 tokens"),
        (edits.zero("z", layer=0, pos=(0, -1)), "twice"),
        (edits.resample("z", layer=0), "one length"),
        (edits.mean("pattern", layer=0), "one length"),
    ],
)
def test_an_edit_that_does_not_fit_prompts_of_many_lengths(nothing_runs, edit, message):
    with pytest.raises(InvalidEdit, match=message):
        sweep(MODEL, RAGGED, [ZERO, edit], METRIC)


def test_resampling_needs_another_prompt(nothing_runs):
    with pytest.raises(InvalidEdit, match="two prompts"):
        sweep(MODEL, TOKENS[:1], [ZERO, edits.resample("z", layer=0)], METRIC)


@each(
    "edit",
    [
        edits.zero("z", layer=0, pos=2, batch=2),
        edits.mean("z", layer=0),
        edits.zero("pattern", layer=0, key=0),
        edits.add("resid_pre", drawn(3, 1, 12), layer=0),
        edits.add("z", 0.5, layer=-1, head=-1),
        edits.replace("z", drawn(5, 4), layer=0, head=0),
    ],
)
def test_what_fits_is_not_refused(edit):
    """The converse: what a whole forward takes, a sweep takes."""
    run(MODEL, RAGGED, edits=[edit])
    assert sweep(MODEL, RAGGED, edit, METRIC).complete


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_the_shape_of_every_tensor_is_known_beforehand(name):
    model, tokens = build(name), tokens_of(name)
    batches, restart_map = model.check(*tokens), RestartMap(model)
    for place, tensor in run(model, *tokens, record="all").cache.items():
        assert restart_map.model.shape_at(batches, place) == tuple(tensor.shape), place


# Metrics.


@each("tokens", [TOKENS, RAGGED])
@each(
    ("metric", "message"),
    [
        (metrics.logit(13), r"Target 13 is outside the vocabulary 0\.\.12"),
        (metrics.logit(-1), "Target -1"),
        (metrics.logit_diff(1, 13), "Target 13"),
        (metrics.logit_diff((1, 2, -3), 0), "Target -3"),
        (metrics.prob(13), "Target 13"),
        (metrics.accuracy((1, 2, 99)), "Target 99"),
        (metrics.logit((1, 2)), "2 targets were given for 3 prompts"),
        (metrics.logit_diff(1, (1, 2, 3, 4)), "4 .*were given for 3 prompts"),
        (metrics.prob((1, 2)), "2 targets"),
        (metrics.logit(1, pos=5), "position 5 in prompt 0, which has 5 tokens"),
        (metrics.logit(1, pos=-6), "position -6 in prompt 0"),
        (metrics.kl(drawn(3, 4, 13)), r"\(3, 4, 13\).*\(3, 5, 13\)"),
        (metrics.kl(drawn(2, 5, 13), pos=0), r"\(2, 5, 13\)"),
    ],
)
def test_a_metric_that_can_not_be_taken(nothing_runs, tokens, metric, message):
    with pytest.raises(InvalidInput, match=message):
        sweep(MODEL, tokens, ZERO, metric)


@each("metric", ["loss", None, 3])
def test_what_is_no_metric(nothing_runs, metric):
    with pytest.raises(InvalidInput, match=rf"\.loss\(\), or a function of .*, not {metric!r}\."):
        unchecked(MODEL, TOKENS, ZERO, metric)


def test_a_metric_that_a_short_prompt_does_not_have(nothing_runs):
    with pytest.raises(InvalidInput, match="position 1 in prompt 1, which has 1 tokens"):
        sweep(MODEL, RAGGED, ZERO, metrics.logit(1, pos=1))
    with pytest.raises(InvalidInput, match="Prompt 1 is a single token"):
        sweep(MODEL, RAGGED, ZERO, metrics.loss())
    with pytest.raises(InvalidInput, match="Prompt 0 is a single token"):
        sweep(MODEL, TOKENS[:, :1], ZERO, metrics.loss())


@each(
    ("metric", "message"),
    [
        (lambda logits: logits.mean(), "one number per prompt.*3 prompts"),
        (lambda logits: logits[:, -1], r"one number per prompt, \[3\].*\(3, 13\)"),
        (lambda logits: 0.5, "float"),
        (lambda logits: logits[:, -1, 0] * torch.nan, "NaN"),
        (lambda logits: logits[:, -1, 0] * 1j, "complex128.*real"),
    ],
)
def test_a_function_that_is_no_metric(metric, message):
    """Known from the clean forward, before any edited one."""
    calls: list[int] = []
    edit = edits.apply("z", lambda z, hook: calls.append(1), layer=0)
    with pytest.raises(InvalidInput, match=message):
        sweep(MODEL, TOKENS, edit, metric)
    assert calls == []


def test_logits_that_are_no_numbers_without_an_edit():
    model = build_new("gpt2")
    with torch.no_grad():
        model.blocks[0].mlp.b_out[0] = torch.nan
    message = (
        r'Without an edit, the metric is NaN for prompt 0: the first .* NaN is \("mlp_out", 0\)'
    )
    with pytest.raises(InvalidInput, match=message):
        sweep(model, TOKENS, ZERO, METRIC)


# Tokens.


@each(
    ("tokens", "message"),
    [
        (torch.zeros(1, 17, dtype=torch.long), "17 tokens.*context of 16"),
        (torch.tensor([[1, 13]]), "Token id 13"),
        (torch.tensor([[]], dtype=torch.long), "empty"),
        (torch.tensor([[1.0]]), "whole numbers"),
        (torch.tensor([[-1, -1]]), "only padding"),
    ],
)
def test_tokens_that_can_not_be_read(nothing_runs, tokens, message):
    with pytest.raises(InvalidTokens, match=message):
        sweep(MODEL, tokens, ZERO, METRIC)


def test_a_mask_of_another_shape(nothing_runs):
    with pytest.raises(InvalidTokens, match="mask"):
        sweep(MODEL, TOKENS, ZERO, METRIC, mask=torch.ones(3, 4))


@each("single", [SOURCE_AND_TARGET[0], SOURCE_AND_TARGET[:1], "text"])
def test_a_pair_reads_two_inputs(nothing_runs, single):
    edit = edits.zero(("z", 0, "encoder"))
    with pytest.raises(InvalidInput, match=r"\(source, target\)"):
        sweep(PAIR, single, edit, METRIC)


def test_the_edits_of_a_pair_name_their_stack(nothing_runs):
    with pytest.raises(UnknownPlace):
        sweep(PAIR, SOURCE_AND_TARGET, edits.zero("z", layer=0), METRIC)
    with pytest.raises(InvalidEdit, match="head 9"):
        sweep(PAIR, SOURCE_AND_TARGET, edits.zero(("z", 0, "encoder"), head=9), METRIC)
    too_short = edits.add(("resid_pre", 0, "encoder"), drawn(3, 5, 12))
    with pytest.raises(InvalidEdit, match=r"\(3, 5, 12\).*\(3, 6, 12\)"):
        sweep(PAIR, SOURCE_AND_TARGET, too_short, METRIC)
