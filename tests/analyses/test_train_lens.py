"""A tuned lens is measured on prompts that it was not trained on, beside the logit lens."""

from importlib import import_module

import pytest
import torch
from architectures import assert_close, assert_identical, build, tokens_of
from declared import Call, Command, Declared, EachPrompt, Made, Symmetric, example, odd, small

import analyses
import interp
from analyses import logit_lens, train_lens
from analyses.train_lens import Training
from interp.errors import InvalidInput
from interp.model import ImageInput
from training.bpe import encode_corpus
from training.corpus import read_corpus

TRAINING = import_module("analyses.train_lens.training")
WINDOW = 128


def prompts(batch, seed=0):
    return tokens_of("gpt2", batch=batch, seed=seed)[0]


def test_the_control_is_the_logit_lens_on_the_held_out_prompts():
    model, held_out = build("gpt2"), prompts(3, seed=1)
    training = train_lens(model, prompts(6), held_out=held_out, steps=3)
    plain, tuned = (logit_lens(model, held_out, lens=lens) for lens in (None, training.lens))
    assert_close(training.logit_lens, plain.kl[:-1].mean(-1))
    assert_close(training.tuned_lens, tuned.kl[:-1].mean(-1))
    frame = training.to_frame()
    assert frame["layer"].tolist() == [0, 1]
    assert_close(
        torch.tensor(frame["effect"].to_numpy()),
        (training.tuned_lens - training.logit_lens).mean(-1),
    )


def test_every_fifth_prompt_is_held_out():
    """What is held out is not trained on."""
    model, tokens = build("gpt2"), prompts(11)
    training = train_lens(model, tokens, steps=2, seed=3)
    assert training.logit_lens.shape == (2, 2)
    all_kl = logit_lens(model, tokens).kl[:-1].mean(-1)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(3))
    used, held_out = order[:9].sort().values, order[9:].sort().values
    assert_close(training.logit_lens, all_kl[:, held_out])
    same = train_lens(model, tokens[used], held_out=tokens[held_out], steps=2, seed=3)
    assert_identical(training.lens.A, same.lens.A)


def test_at_most_32_prompts_are_held_out():
    training = train_lens(build("gpt2"), prompts(200), steps=1, rows=1)
    assert training.logit_lens.shape == (2, 32)


def test_a_step_takes_as_many_tokens_as_have_logits_of_limited_size(monkeypatch):
    """Drawn by the seed; the KL of a held-out prompt is the mean over as many of its tokens."""
    model, tokens, held_out = build("gpt2"), prompts(6), prompts(3, seed=1)
    real = torch.tensor([[True, True, False], [True, True, True]])
    drawn = [TRAINING.Settings(9, 2, 0.1, seed).tokens_of_step(4, real, 3) for seed in (0, 0, 1, 2)]
    assert all(int(mask.sum()) == 3 and bool(real[mask].all()) for mask in drawn)
    assert torch.equal(drawn[0], drawn[1])
    assert not all(torch.equal(drawn[0], mask) for mask in drawn)
    assert TRAINING.Settings(9, 2, 0.1, 0).tokens_of_step(4, real, 5) is real

    def trained(n=None):
        return train_lens(model, tokens, held_out=held_out, steps=2, tokens=n)

    whole, two = trained(), trained(2)
    limit = 2 * model.config.n_logits * torch.float32.itemsize
    monkeypatch.setattr(TRAINING, "LOGITS_BYTES", limit)
    some = trained()
    assert_identical(some.lens.A, two.lens.A)
    every = logit_lens(model, held_out)
    assert_close(whole.logit_lens, every.kl[:-1].mean(-1))
    settings = some.training.settings
    for row, real in enumerate(every.real):
        kept = settings.tokens_of_step(row, real[None], 2)[0]
        assert int(kept.sum()) == 2
        assert_close(some.logit_lens[:, row], every.kl[:-1, row, kept].mean(-1))
    assert not torch.allclose(some.training_kl, whole.training_kl)


def test_a_step_reads_one_prompt_if_it_has_more_tokens_than_are_used():
    """A forward over four prompts would cost more than the step."""
    model, tokens = build("gpt2"), prompts(6)
    length = tokens.shape[1]
    by_tokens = {n: train_lens(model, tokens, steps=1, tokens=n) for n in (length, length - 1)}
    assert [training.training.settings.rows for training in by_tokens.values()] == [4, 1]
    asked = train_lens(model, tokens, steps=1, tokens=length - 1, rows=3)
    assert asked.training.settings.rows == 3


def test_a_cancelled_call_has_a_result_that_can_be_resumed():
    model, tokens = build("gpt2"), prompts(8)
    whole, calls = train_lens(model, tokens, steps=4), []
    part = train_lens(
        model,
        tokens,
        steps=4,
        progress=lambda done, total: calls.append((done, total)),
        cancelled=lambda: len(calls) == 2,
    )
    assert calls == [(1, 4), (2, 4)]
    assert "2 of 4 steps" in part.summary()
    resumed = train_lens(model, tokens, steps=4, resume=part)
    assert_identical(resumed.tuned_lens, whole.tuned_lens)
    assert_identical(resumed.training_kl, whole.training_kl)
    assert resumed.summary() == whole.summary()


def test_a_training_that_was_saved_is_resumed_bit_for_bit(tmp_path):
    """From any of its checkpoints; not with another setting, nor from a file that was changed."""
    model, tokens = build("gpt2"), prompts(8)
    files = []

    def save(training):
        files.append(tmp_path / str(len(training.kl)))
        training.save(files[-1])

    whole = train_lens(model, tokens, steps=4, checkpoint=save)
    assert [file.name for file in files] == ["1", "2", "3", "4"]
    for file in files:
        saved = Training.load(file)
        assert len(saved.kl) == int(file.name)
        resumed = train_lens(model, tokens, steps=4, resume=saved)
        assert resumed.lens.digest == whole.lens.digest
        assert_identical(resumed.tuned_lens, whole.tuned_lens)
        assert_identical(resumed.training_kl, whole.training_kl)
    assert saved.lens.digest != Training.load(files[0]).lens.digest
    for other in ({"steps": 5}, {"steps": 4, "lr": 0.1}, {"steps": 4, "seed": 1}):
        with pytest.raises(InvalidInput, match="from a call with other"):
            train_lens(model, tokens, **other, resume=saved)
    damaged = bytearray(files[0].read_bytes())
    damaged[-1] ^= 1
    files[0].write_bytes(damaged)
    (tmp_path / "lens").write_bytes(b"")
    whole.lens.save(tmp_path / "lens")
    for path in (files[0], tmp_path / "lens", tmp_path / "none"):
        with pytest.raises(InvalidInput, match=r"Training\.save"):
            Training.load(path)


def test_the_lens_of_a_result_can_be_saved(tmp_path):
    model = build("gpt2")
    training = train_lens(model, prompts(5), steps=2)
    training.lens.save(tmp_path / "lens")
    read = analyses.TunedLens.load(tmp_path / "lens", model)
    before, after = (logit_lens(model, prompts(2), lens=lens).kl for lens in (training.lens, read))
    assert_identical(before, after)


def test_a_single_prompt_cannot_be_held_out():
    with pytest.raises(InvalidInput, match=r"got 1 prompt and no held_out="):
        train_lens(build("gpt2"), prompts(1))


@pytest.mark.nightly
def test_on_text_the_divergence_falls_by_a_fifth_at_every_layer():
    """python-4l, 32 768 tokens of its training text; measured on files that are held out."""
    model, corpus = interp.load("python-4l"), read_corpus()

    def windows(documents, n, seed):
        sources = [document.text for document in documents if document.name.endswith(".py")]
        ids = encode_corpus(model.tokenizer.backend, sources).long()
        generator = torch.Generator().manual_seed(seed)
        starts = torch.randint(len(ids) - WINDOW + 1, (n, 1), generator=generator)
        bos = torch.full((n, 1), model.config.tokens.bos)
        return torch.cat([bos, ids[starts + torch.arange(WINDOW - 1)]], dim=1)

    training = train_lens(
        model,
        windows(corpus.train, 256, seed=0),
        held_out=windows(corpus.held_out, 64, seed=1),
    )
    frame = training.to_frame()
    assert (frame["tuned_lens"] <= 0.8 * frame["logit_lens"]).all()
    assert frame["significant"].all()


# ---- declared for the tests of all analyses -------------------------------------------------


def training_prompts(model):
    read_by = model.stacks[0].input
    if isinstance(read_by, ImageInput):
        shape = (read_by.patches.channels, read_by.patches.height, read_by.patches.width)
        return torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    tokens = tokens_of(model.config)
    return tokens if len(tokens) > 1 else tokens[0]


def numbers_of_prompts(model, held_out, n):
    """Held out, each prompt is measured by the same lens."""
    result = train_lens(model, training_prompts(model), held_out=held_out, steps=1)
    kl = {"logit lens": result.logit_lens, "tuned lens": result.tuned_lens}
    return [{name: values[:, i] for name, values in kl.items()} for i in range(n)]


DECLARED = Declared(
    analysis=train_lens,
    made=Made(
        lambda: train_lens(example.model(), ["abcab", "xy"], steps=2), ("tuned_lens", "tuned_lens")
    ),
    call=Call(
        (small.MODEL, small.CLEAN),
        {"steps": 8},
        {
            "steps": odd.COUNT,
            "lr": (odd.TEXT, odd.BELOW, 0, odd.LISTED, odd.NOTHING, True),
            "tokens": (odd.TEXT, odd.BELOW, 0, odd.BROKEN, odd.LISTED, True),
            "resume": odd.SOMETHING,
            "seed": odd.SEED,
            "rows": (odd.TEXT, odd.BELOW, 0, odd.BROKEN, odd.LISTED, True),
        },
    ),
    command=Command(
        "train-lens",
        ("--steps", "3"),
        "train-lens",
        "Tuned lens, 3 steps: closer",
        "steps=250 batch=None tokens=None lr=0.003 held_out=None",
        more=("lens.safetensors",),
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair={"": numbers_of_prompts},
    symmetric=Symmetric(
        {
            "": lambda case: train_lens(
                case.model, case.clean, held_out=case.corrupt, steps=3, rows=len(case.clean)
            )
        }
    ),
)
