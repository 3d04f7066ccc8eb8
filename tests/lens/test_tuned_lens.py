"""Translators of the stream: what they compute, and their file."""

import re
from dataclasses import replace

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    HEADLESS,
    assert_close,
    assert_identical,
    build,
    build_new,
    covering,
    tokens_of,
)

from analyses import TunedLens, logit_lens
from analyses.methods.lens import tuned_lens
from analyses.methods.lens.decode import decode
from interp import run
from interp.errors import InvalidInput, OutOfResources
from interp.io.tensor_file import save_tensors

PREDICTING = [name for name, config in ARCHITECTURES.items() if config.unembeds]


def given(name):
    tokens = tokens_of(name)
    return tokens if len(tokens) > 1 else tokens[0]


def drawn(model, seed=0):
    """A lens of the model, with translators drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    empty = TunedLens.untrained(model)
    A, b = (torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in (empty.A, empty.b))
    return replace(empty, A=A, b=b)


@pytest.mark.parametrize("name", covering(PREDICTING))
def test_an_untrained_lens_is_the_logit_lens(name):
    """Bit for bit; one that translates is another lens, but at the end."""
    model = build(name)
    plain = logit_lens(model, given(name))
    same = logit_lens(model, given(name), lens=TunedLens.untrained(model))
    other = logit_lens(model, given(name), lens=drawn(model))
    for field in ("top", "probability", "entropy", "kl"):
        assert_identical(getattr(same, field), getattr(plain, field))
    assert ((other.entropy - plain.entropy)[:-1] != 0).any()
    assert_identical(other.entropy[-1], plain.entropy[-1])


def test_in_half_precision_too():
    model = build("gpt2", dtype=torch.bfloat16)
    lens = TunedLens.untrained(model)
    assert lens.A.dtype == torch.float32
    plain, same = (logit_lens(model, given("gpt2"), lens=lens) for lens in (None, lens))
    assert_identical(same.kl, plain.kl)


def test_a_lens_reads_the_translated_stream():
    """logits_l = unembed(norm(x + x·A_l + b_l))."""
    model, tokens = build("llama"), tokens_of("llama")
    lens, cache = drawn(model), run(model, *tokens, record="resid_pre").cache
    predictions = logit_lens(model, *tokens, lens=lens)
    for layer in range(2):
        x = cache["resid_pre", layer]
        p = decode(model, x + x @ lens.A[layer] + lens.b[layer]).detach().softmax(-1)
        assert_close(predictions.entropy[layer], -(p * p.log()).sum(-1))


def test_a_lens_translates_no_other_place():
    model = build("gpt2")
    with pytest.raises(InvalidInput, match="a tuned lens translates resid_pre alone"):
        logit_lens(model, given("gpt2"), at="resid_mid", lens=TunedLens.untrained(model))


def test_a_model_without_logits_has_no_lens():
    with pytest.raises(InvalidInput, match="returns its last stream"):
        TunedLens.untrained(build(HEADLESS))


# ---- its file --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_saved_lens_is_the_same(tmp_path, dtype):
    """Bit for bit, with its provenance; saving it again gives the same bytes."""
    model = build("t5", dtype=dtype)
    lens = drawn(model)
    lens.save(tmp_path / "lens")
    read = TunedLens.load(tmp_path / "lens", model)
    assert_identical(read.A, lens.A)
    assert_identical(read.b, lens.b)
    assert read.provenance == lens.provenance
    read.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "lens").read_bytes()


def test_another_model_is_refused_by_name(tmp_path):
    """Another seed, another dtype, and the same model with one weight changed."""
    config = replace(ARCHITECTURES["gpt2"], name="one")
    model = build_new(config)
    lens = drawn(model)
    lens.save(tmp_path / "lens")
    other = build_new(replace(config, name="two"), seed=1)
    for wrong, name in ((other, "two"), (build_new(config, dtype=torch.float32), "one")):
        message = f"This lens is of the model 'one' .* not of '{name}'"
        with pytest.raises(InvalidInput, match=message):
            TunedLens.load(tmp_path / "lens", wrong)
        with pytest.raises(InvalidInput, match=message):
            logit_lens(wrong, given("gpt2"), lens=lens)
    with torch.no_grad():
        model.W_E[0, 0] += 1
    with pytest.raises(InvalidInput, match="This lens is of the model 'one'"):
        TunedLens.load(tmp_path / "lens", model)


def test_what_is_no_file_of_a_lens_is_refused(tmp_path):
    model, path = build("gpt2"), tmp_path / "lens"
    lens = drawn(model)
    with pytest.raises(InvalidInput, match="is not a file"):
        TunedLens.load(path, model)
    save_tensors({"A": lens.A}, path, {})
    with pytest.raises(InvalidInput, match="its metadata is not that of a tuned lens"):
        TunedLens.load(path, model)
    lens.save(path)
    content = path.read_bytes()
    for damaged in (content[:-1], content[:-1] + b"?", b"", content[:100]):
        path.write_bytes(damaged)
        with pytest.raises(InvalidInput, match=f"{re.escape(str(path))} is not what"):
            TunedLens.load(path, model)


def test_translators_of_another_shape_or_not_finite_are_refused(tmp_path):
    model, path = build("gpt2"), tmp_path / "lens"
    lens = drawn(model)
    for wrong, message in (
        (replace(lens, A=lens.A[:1], b=lens.b[:1]), "it holds .* expected"),
        (replace(lens, A=lens.A.float()), "it holds .* expected"),
        (replace(lens, b=lens.b / 0), "numbers that are not finite"),
    ):
        wrong.save(path)
        with pytest.raises(InvalidInput, match=message):
            TunedLens.load(path, model)


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    model, path = build("gpt2"), tmp_path / "lens"
    later = replace(tuned_lens.FILE, version=2)
    monkeypatch.setattr(tuned_lens, "FILE", later)
    drawn(model).save(path)
    monkeypatch.undo()
    with pytest.raises(InvalidInput, match="version 2 of its format"):
        TunedLens.load(path, model)


def test_a_place_where_no_file_can_be_is_refused(tmp_path):
    lens = drawn(build("gpt2"))
    for wrong in (tmp_path, tmp_path / "missing" / "lens"):
        with pytest.raises(InvalidInput, match="should be a file in an existing folder"):
            lens.save(wrong)
    with pytest.raises(OutOfResources, match="can't be written"):
        lens.save(tmp_path / ("n" * 300))
