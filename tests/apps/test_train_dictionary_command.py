"""``interp train-dictionary``: what it writes and prints, that it is continued, how it fails."""

import pytest
from test_harvest_command import WORDS

from apps.commands import train_dictionary as module
from interp import dictionaries

PLACE = "blocks.0.hook_resid_post"
SIZES = ["--features", "16", "--k", "2", "--steps", "5", "--batch", "32"]


@pytest.fixture
def folder(command, tmp_path):
    command(*WORDS, "--places", "resid_post.0", "--out", tmp_path / "harvest")
    return tmp_path / "harvest"


def test_a_dictionary_is_trained_continued_and_read(command, folder, tmp_path, monkeypatch):
    """Stopped at its second checkpoint and continued, it has the bytes of one that was not."""
    monkeypatch.setattr(module, "EVERY", 2)
    words = ["train-dictionary", folder, "--reads", "resid_post.0", *SIZES]
    done = command(*words, "--out", tmp_path / "whole")
    assert done.exit_code == 0, done.output
    assert "16 features" in done.stdout
    assert "in the last 2 steps" in " ".join(done.stdout.split())
    saved = dictionaries.DictionaryTraining.save

    def stops_at_the_end(training, path):
        if len(training.fvu) == 5:
            raise KeyboardInterrupt
        saved(training, path)

    with monkeypatch.context() as patch:
        patch.setattr(dictionaries.DictionaryTraining, "save", stops_at_the_end)
        assert command(*words, "--out", tmp_path / "part").exit_code != 0
    assert not (tmp_path / "part").exists()
    other = command(*words, "--lr", "0.1", "--out", tmp_path / "part")
    assert (other.exit_code, "is of a training with" in other.stderr) == (2, True)
    again = command(*words, "--out", tmp_path / "part")
    assert "Continuing after step 4" in again.stderr
    for name in ("cfg.json", "sae_weights.safetensors"):
        whole, part = ((tmp_path / each / name).read_bytes() for each in ("whole", "part"))
        assert whole == part
    assert dictionaries.load(tmp_path / "part").reads == PLACE
    assert not (tmp_path / "part.training").exists()


def test_a_cross_layer_transcoder_is_trained_continued_and_read(command, tmp_path, monkeypatch):
    """Of the places of all layers that the harvest has; the files are those of circuit-tracer."""
    points = ("normalized.0.ln2", "normalized.1.ln2", "mlp_out.0", "mlp_out.1")
    places = [word for point in points for word in ("--places", point)]
    texts = tmp_path / "texts.txt"
    texts.write_text("def f(x): return x + 1, x - 1\nclass A(B): pass  # of another\n" * 2)
    words = ["harvest", "--model", "python-4l", "--texts", texts]
    made = command(*words, *places, "--out", tmp_path / "harvest")
    assert made.exit_code == 0, made.output
    monkeypatch.setattr(module, "EVERY", 2)
    words = ["train-dictionary", tmp_path / "harvest", "--cross-layer", *SIZES]
    ends = ["--reads", "normalized.0.ln2", "--writes", "mlp_out.0"]
    done = command(*words, *ends, "--out", tmp_path / "whole")
    assert done.exit_code == 0, done.output
    assert "layer 1: " in done.stdout
    transcoder = dictionaries.load_cross_layer(tmp_path / "whole")
    assert (transcoder.n_layers, transcoder.n_features) == (2, 16)
    for wrong in (ends[:2], ["--reads", "normalized.1.ln2", "--writes", "mlp_out.1"]):
        refused = command(*words, *wrong, "--out", tmp_path / "no")
        assert "the places of layer 0" in " ".join(refused.stderr.split())
