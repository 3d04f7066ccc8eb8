"""Training of cross-layer transcoders: what is minimized, files, and resuming bit-identically."""

from dataclasses import replace

import pytest
import torch
from architectures import assert_close, assert_identical, build

import interp
from interp import dictionaries
from interp.dictionaries import DictionarySettings, JumpReLU
from interp.dictionaries.cross_layer_training import LayersInTraining
from interp.dictionaries.training_steps import update
from interp.errors import InvalidInput, ModelLoadError, NotRecorded

SMALL = DictionarySettings(n_features=24, k=3, steps=6, batch=16)
READS = [("normalized", layer, "ln2") for layer in range(2)]
WRITES = [("mlp_out", layer) for layer in range(2)]
IN_FLOAT32 = 1e-5


@pytest.fixture(scope="module")
def harvest(tmp_path_factory):
    """100 rows of a small random model of two layers."""
    ids = torch.randint(13, (20, 5), generator=torch.Generator().manual_seed(0))
    folder = tmp_path_factory.mktemp("harvest")
    return interp.harvest(build("gpt2"), ids, [*READS, *WRITES, ("post", 1)], folder)


def trained(harvest, reads=READS, writes=WRITES, **settings):
    return dictionaries.train_cross_layer(
        harvest, reads=reads, writes=writes, settings=replace(SMALL, **settings)
    )


def tensors_of(transcoder) -> list[torch.Tensor]:
    thresholds = [each.threshold for each in transcoder.activation]
    return [transcoder.w_enc, transcoder.b_enc, transcoder.b_dec, *transcoder.w_dec, *thresholds]


@pytest.mark.parametrize("kind", ["batchtopk", "jumprelu"])
def test_a_stopped_training_resumes_bit_identically(kind, harvest, tmp_path):
    settings = replace(SMALL, kind=kind, steps=9)
    places = {"reads": READS, "writes": WRITES}
    whole = dictionaries.train_cross_layer(harvest, **places, settings=settings)
    calls = iter([False, False, False, True])
    part = dictionaries.train_cross_layer(
        harvest, **places, settings=settings, cancelled=lambda: next(calls)
    )
    assert part.fvu.shape == (4, 2)
    part.save(tmp_path / "part")
    read = dictionaries.load_cross_layer_training(tmp_path / "part")
    done = dictionaries.train_cross_layer(harvest, **places, settings=settings, resume=read)
    for now, then in (
        (done.transcoder, whole.transcoder),
        (read.transcoder, part.transcoder),
    ):
        for tensor, other in zip(tensors_of(now), tensors_of(then), strict=True):
            assert_identical(tensor, other)
    assert_identical(done.fvu, whole.fvu)
    done.save(tmp_path / "done")
    whole.save(tmp_path / "whole")
    assert (tmp_path / "done").read_bytes() == (tmp_path / "whole").read_bytes()
    assert read.transcoder.reads == whole.transcoder.reads
    with pytest.raises(InvalidInput, match="other steps, data"):
        dictionaries.train_cross_layer(
            harvest,
            reads=WRITES,
            writes=READS,
            settings=replace(settings, steps=8),
            resume=part,
        )


def test_a_training_is_described_by_its_last_step_without_tensors(harvest):
    """The representation is one short line, with the means over layers at the last step."""
    training = trained(harvest)
    text = repr(training)
    assert "tensor" not in text
    assert len(text.splitlines()) == 1
    assert f"FVU {training.fvu[-1].mean():.3f}, L0 {training.l0[-1].mean():.1f}, " in text
    assert text.endswith(f": {training.transcoder})")


def test_of_one_layer_it_is_the_training_of_a_transcoder(harvest):
    """The same steps; of two layers, those of the first differ, as its features write both."""
    alone = dictionaries.train(harvest, reads=READS[1], writes=WRITES[1], settings=SMALL)
    training = trained(harvest, READS[1:], WRITES[1:])
    for name in ("fvu", "l0", "n_dead"):
        assert_identical(getattr(training, name)[:, 0], getattr(alone, name))
    transcoder, dictionary = training.transcoder, alone.dictionary
    x = torch.randn(7, len(dictionary.w_enc), generator=torch.Generator().manual_seed(1))
    assert_close(transcoder.reconstruct(x[None])[0], dictionary.reconstruct(x), IN_FLOAT32)
    first = dictionaries.train(harvest, reads=READS[0], writes=WRITES[0], settings=SMALL)
    both = trained(harvest)
    assert (both.fvu[:, 0] - first.fvu).abs().max() > 1e-3


def test_what_is_measured_is_what_the_transcoder_leaves_out(harvest):
    """At the next step, with all rows as one batch, by the definition of ŷ and of the variance."""
    settings = replace(SMALL, kind="jumprelu", batch=harvest.n_rows, steps=8, lr=1e-4)
    calls = iter([False] * 5 + [True, False])
    options = {"reads": READS, "writes": WRITES, "settings": settings}
    part = dictionaries.train_cross_layer(harvest, **options, cancelled=lambda: next(calls))
    more = dictionaries.train_cross_layer(harvest, **options, resume=part, cancelled=lambda: True)
    rows = harvest.rows(slice(None))
    transcoder = part.transcoder
    x, y = (
        torch.stack([rows[name].float() for name in names])
        for names in (transcoder.reads, transcoder.writes)
    )
    error = y - transcoder.reconstruct(x)
    fvu = error.square().sum((1, 2)) / (y - y.mean(1, keepdim=True)).square().sum((1, 2))
    assert_close(fvu, more.fvu[-1].float(), IN_FLOAT32)
    l0 = (transcoder.encode(x) > 0).float().sum((1, 2)) / len(x[0])
    assert_close(l0, more.l0[-1].float(), IN_FLOAT32)


def test_a_trained_transcoder_is_saved_as_circuit_tracer_does(harvest, tmp_path):
    """It computes the same when it is read, and all that a feature writes has norm 1."""
    made = trained(harvest).transcoder
    dictionaries.save_cross_layer(made, tmp_path / "saved")
    read = dictionaries.load_cross_layer(tmp_path / "saved")
    assert all(isinstance(each, JumpReLU) for each in read.activation)
    x = torch.randn(2, 7, made.w_enc.shape[1], generator=torch.Generator().manual_seed(1))
    assert_identical(read.encode(x), made.encode(x))
    assert_identical(read.reconstruct(x), made.reconstruct(x))
    model = build("gpt2")
    assert read.places(model) == made.places(model)
    for w_dec in made.w_dec:
        torch.testing.assert_close(w_dec.flatten(1).norm(dim=1), torch.ones(SMALL.n_features))
    names = {path.name for path in (tmp_path / "saved").iterdir()}
    files = {f"W_{part}_{layer}.safetensors" for part in ("enc", "dec") for layer in range(2)}
    assert names == {"config.yaml", "manifest.json", *files}
    view = interp.with_dictionaries(model, read)
    ids = torch.randint(13, (2, 5), generator=torch.Generator().manual_seed(2))
    assert_identical(interp.run(view, ids).logits, interp.run(model, ids).logits)
    mixed = replace(made, writes=("blocks.0.hook_mlp_out", "blocks.1.hook_resid_post"))
    for wrong in (mixed, replace(made, activation=(dictionaries.TopK(3),) * 2)):
        with pytest.raises(InvalidInput, match="can't be written"):
            dictionaries.save_cross_layer(wrong, tmp_path / "wrong")


def test_an_output_that_an_earlier_layer_determines_is_explained_by_its_features():
    """x_1 is noise and y_1 a sum of directions that x_0 has: only features across layers fit it."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(shape, generator=generator)  # noqa: E731
    directions = torch.linalg.qr(draw(16, 16))[0]
    active = torch.rand(2000, 16, generator=generator) < 2 / 16
    strength = active * (1 + torch.rand(2000, 16, generator=generator))
    x, y = [strength @ directions, draw(2000, 16)], [strength @ draw(16, 16) for _ in range(2)]
    settings = DictionarySettings(n_features=32, k=4, steps=300, batch=128, lr=1e-2)

    def unexplained(across: bool) -> float:
        rows = [*x, *y] if across else [x[1], y[1]]
        weights = LayersInTraining(len(rows) // 2, (16, 16), settings)
        optimizer = torch.optim.Adam(weights.parameters(), lr=settings.lr)
        weights.begin(*rows)
        for step in range(settings.steps):
            chosen = torch.randint(2000, (settings.batch,), generator=generator)
            fvu, *_ = update(weights, optimizer, [each[chosen] for each in rows], step)
        return float(fvu[-1])

    assert unexplained(across=True) < 0.2
    assert unexplained(across=False) > 0.7


def test_settings_that_can_not_be_used_are_refused(harvest, tmp_path):
    for settings, message in (
        ({"kind": "topk"}, "no cross-layer transcoders of this kind"),
        ({"skip": True}, "skip=True: files have no"),
        ({"batch": 101}, "at most the 100 rows"),
        ({"lr": 1e30}, "not finite; try a lower lr"),
    ):
        with pytest.raises(InvalidInput, match=message):
            trained(harvest, **settings)
    for reads, writes in (
        ([], []),
        (READS, WRITES[:1]),
        (READS, READS),
        ([READS[0], ("post", 1)], WRITES),
    ):
        with pytest.raises(InvalidInput, match="should have a place of each layer"):
            trained(harvest, reads, writes)
    with pytest.raises(NotRecorded):
        trained(harvest, [("mlp_in", 0), ("mlp_in", 1)])
    alone = dictionaries.train(harvest, reads=READS[0], writes=WRITES[0], settings=SMALL)
    alone.save(tmp_path / "other")
    with pytest.raises(ModelLoadError, match="not the training of a cross-layer transcoder"):
        dictionaries.load_cross_layer_training(tmp_path / "other")
