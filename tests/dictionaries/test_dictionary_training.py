"""Training: what is learned is known, stopped training resumes bit-identically, files are read."""

from dataclasses import replace

import pytest
import torch
from architectures import assert_identical, build

import interp
from interp import dictionaries
from interp.dictionaries import DictionarySettings, JumpReLU, SkipDictionary, TopK, train_rows
from interp.errors import InvalidInput, ModelLoadError

SMALL = DictionarySettings(n_features=24, k=3, steps=6, batch=16)
STREAM, READS, WRITES = ("resid_post", 0), ("normalized", 1, "ln2"), ("mlp_out", 1)


@pytest.fixture(scope="module")
def harvest(tmp_path_factory):
    """100 rows of a small random model."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(13, (20, 5), generator=generator)
    folder = tmp_path_factory.mktemp("harvest")
    return interp.harvest(build("gpt2"), ids, [STREAM, READS, WRITES, ("z", 1)], folder)


def trained(harvest, reads=STREAM, writes=None, **settings):
    return dictionaries.train(
        harvest, reads=reads, writes=writes, settings=replace(SMALL, **settings)
    )


@pytest.mark.parametrize("kind", ["topk", "batchtopk", "jumprelu"])
def test_a_stopped_training_resumes_bit_identically(kind, harvest, tmp_path):
    settings = replace(SMALL, kind=kind, steps=9)
    whole = dictionaries.train(harvest, reads=STREAM, settings=settings)
    calls = iter([False, False, False, True])
    part = dictionaries.train(
        harvest, reads=STREAM, settings=settings, cancelled=lambda: next(calls)
    )
    assert len(part.fvu) == 4
    part.save(tmp_path / "part")
    read = dictionaries.load_training(tmp_path / "part")
    done = dictionaries.train(harvest, reads=STREAM, settings=settings, resume=read)
    for name, tensor in whole.dictionary.tensors().items():
        assert_identical(done.dictionary.tensors()[name], tensor)
        assert_identical(read.dictionary.tensors()[name], part.dictionary.tensors()[name])
    assert_identical(done.fvu, whole.fvu)
    with pytest.raises(InvalidInput, match="other steps, data"):
        dictionaries.train(harvest, reads=WRITES, settings=replace(settings, steps=8), resume=part)


@pytest.mark.parametrize(
    "case",
    [
        ("topk", STREAM, None, False, TopK),
        ("batchtopk", ("z", 1), None, False, JumpReLU),
        ("batchtopk", READS, WRITES, False, JumpReLU),
        ("jumprelu", READS, WRITES, True, JumpReLU),
    ],
    ids=str,
)
def test_a_trained_dictionary_is_saved_as_saelens_does(case, harvest, tmp_path):
    """It computes the same when it is read, and its places are those it was trained on."""
    kind, reads, writes, skip, activation = case
    made = trained(harvest, reads, writes, kind=kind, skip=skip).dictionary
    dictionaries.save(made, tmp_path / "saved")
    read = dictionaries.load(tmp_path / "saved")
    assert isinstance(read.activation, activation)
    assert isinstance(read, SkipDictionary) == skip
    x = torch.randn(7, len(made.w_enc), generator=torch.Generator().manual_seed(1))
    assert_identical(read.encode(x), made.encode(x))
    assert_identical(read.reconstruct(x), made.reconstruct(x))
    model = build("gpt2")
    assert read.places(model) == made.places(model)
    dictionaries.save(read, tmp_path / "again")
    texts = [(tmp_path / name / "cfg.json").read_text() for name in ("saved", "again")]
    assert texts[0] == texts[1]
    assert texts[0].count("d_sae") == texts[0].count('"metadata"') == 1
    torch.testing.assert_close(made.w_dec.norm(dim=1), torch.ones(SMALL.n_features))


def test_a_training_is_described_by_its_last_step_without_tensors(harvest):
    """The representation is one short line, with the curves at the last step."""
    training = trained(harvest)
    text = repr(training)
    assert "tensor" not in text
    assert len(text.splitlines()) == 1
    assert text.startswith(f"DictionaryTraining({SMALL.steps} of {SMALL.steps} steps, FVU ")
    assert f"FVU {training.fvu[-1]:.3f}, L0 {training.l0[-1]:.1f}, " in text
    assert text.endswith(f": {training.dictionary})")


def test_sparse_directions_are_found():
    """Of data that are sums of a few of 16 directions, most directions are features afterwards."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.linalg.qr(torch.randn(16, 16, generator=generator))[0]
    active = torch.rand(4000, 16, generator=generator) < 2 / 16
    x = (active * (1 + torch.rand(4000, 16, generator=generator))) @ directions
    settings = DictionarySettings(n_features=32, k=2, steps=400, batch=256, lr=1e-2)
    for kind in ("topk", "batchtopk"):
        learned = train_rows(x, x, replace(settings, kind=kind))
        cosines = (learned.w_dec @ directions.mT).max(0).values
        assert int((cosines > 0.95).sum()) >= 12
        error = (learned.reconstruct(x) - x).square().sum() / (x - x.mean(0)).square().sum()
        assert float(error) < 0.2
    untrained = train_rows(x, x, replace(settings, steps=1))
    assert int(((untrained.w_dec @ directions.mT).max(0).values > 0.95).sum()) < 4


def test_settings_that_can_not_be_used_are_refused(harvest, tmp_path):
    wrong = [
        ({"kind": "relu"}, "should be one of"),
        ({"k": 25}, "at most n_features=24"),
        ({"steps": 0}, "steps"),
        ({"lr": float("nan")}, "positive number"),
        ({"batch": 101}, "at most the 100 rows"),
        ({"skip": True}, "only a transcoder"),
        ({"lr": 1e30}, "not finite; try a lower lr"),
    ]
    for settings, message in wrong:
        with pytest.raises(InvalidInput, match=message):
            trained(harvest, **settings)
    with pytest.raises(InvalidInput, match="no transcoders of this kind"):
        trained(harvest, READS, WRITES, kind="topk")
    (tmp_path / "other").write_bytes(b"no")
    with pytest.raises(ModelLoadError, match="can't be read"):
        dictionaries.load_training(tmp_path / "other")
