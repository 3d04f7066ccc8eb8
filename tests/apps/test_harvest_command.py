"""``interp harvest``: what it writes and prints, that it is continued, how it fails."""

import json

import pytest
import torch

import interp
from apps.commands.harvest import parse_place

MODEL = "induction-by-hand"
WORDS = ["harvest", "--model", MODEL, "--texts", "letters"]


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_harvest_is_written_continued_and_read(command, tmp_path):
    out = tmp_path / "out"
    words = [*WORDS, "--places", "resid_post.-1", "--places", "z", "--out", out]
    done = command(*words, "--dtype", "float32", "--shard-rows", "20")
    assert done.exit_code == 0, done.output
    read = interp.Harvest(out)
    assert done.stdout.startswith(f"Harvest({read.n_rows} rows of {read.n_texts} texts, float32: ")
    names = [place.name for place in read.places]
    assert names == [*(f"blocks.{n}.attn.hook_z" for n in (0, 1)), "blocks.1.hook_resid_post"]
    run = interp.run(interp.load(MODEL), read.tokens(3)[None], record="resid_post")
    rows = read.rows(read.rows_of_text(3))[names[-1]]
    torch.testing.assert_close(rows, run.cache["resid_post", 1][0].float(), rtol=1e-6, atol=1e-6)

    before = content(out)
    (out / "shard-00001.safetensors").unlink()
    again = command(*words, "--dtype", "float32", "--shard-rows", "20", "--json")
    assert json.loads(again.stdout)["rows"] == read.n_rows
    assert content(out) == before


def test_an_estimate_writes_nothing(command, tmp_path):
    out = tmp_path / "out"
    words = [*WORDS, "--places", "resid_post.1", "--out", out, "--dtype", "float16", "--estimate"]
    done = command(*words)
    assert done.exit_code == 0, done.output
    assert "tokens a second" in done.stdout
    assert json.loads(command(*words, "--json").stdout)["row_bytes"] > 0
    assert not out.exists()


def test_errors_have_the_exit_codes_of_other_commands(command, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty.txt").write_text("\n\n")
    empty = ["harvest", "--model", MODEL, "--texts", tmp_path / "empty.txt", "--places", "z"]
    done = command(*empty, "--out", tmp_path / "out")
    assert (done.exit_code, "holds no text" in done.stderr) == (2, True)
    for places, message in {
        "resid_pots.1": "Nearest",
        "resid_post.1": "which is no part of a harvest",
    }.items():
        done = command(*WORDS, "--places", places, "--out", tmp_path)
        assert done.exit_code == 2
        assert message in done.stderr
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["empty.txt"]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("resid_post.3", ("resid_post", 3)),
        ("scale.-1.ln1", ("scale", -1, "ln1")),
        ("z.0.encoder", ("z", 0, "encoder")),
        ("resid_post", "resid_post"),
        ("blocks.3.hook_resid_post", "blocks.3.hook_resid_post"),
    ],
)
def test_short_names_of_places(name, place):
    assert parse_place(name) == place


def test_heads_are_scanned_on_the_texts_of_a_harvest(command, tmp_path):
    folder = tmp_path / "harvest"
    assert command(*WORDS, "--places", "resid_post.1", "--out", folder).exit_code == 0
    for name, texts in (("of texts", "letters"), ("of harvest", folder)):
        words = ["heads", "--model", MODEL, "--texts", texts, "--sample", 10]
        done = command(*words, "--out", tmp_path / name)
        assert done.exit_code == 0, done.output
    tables = [(tmp_path / name / "heads.csv").read_bytes() for name in ("of texts", "of harvest")]
    assert tables[0] == tables[1]
