"""Each bundled model holds what its card claims, measured on the shipped weights."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

import interp
from analyses import ablate_heads
from interp.errors import InvalidInput, ModelLoadError
from interp.factored import Factored
from interp.loading import BUNDLED, save_folder
from interp.model.attention import Attention
from interp.zoo import induction_by_hand, python_2l
from interp.zoo.bpe import encode_corpus
from interp.zoo.card import read_card
from interp.zoo.corpus import read_corpus
from interp.zoo.proof import (
    bigram_loss,
    held_out_loss,
    induction_scores,
    previous_token_scores,
    repeated_losses,
    repeated_tokens,
)
from interp.zoo.recipes import RECIPES, train
from interp.zoo.training import Schedule


@pytest.fixture(scope="module")
def by_hand():
    return interp.load("induction-by-hand")


@pytest.fixture(scope="module")
def trained():
    return interp.load("python-2l")


def test_every_bundled_model_has_a_recipe_a_card_and_weights():
    assert interp.bundled() == sorted(RECIPES)
    for name in interp.bundled():
        assert read_card(BUNDLED / name).name == name
        assert (BUNDLED / name / "README.md").read_text().startswith(f"# {name}")


def test_induction_by_hand_completes_random_sequences(by_hand):
    assert induction_by_hand.accuracy(by_hand) >= 0.99
    assert induction_by_hand.accuracy_latest(by_hand) >= 0.99


def test_induction_by_hand_is_what_its_recipe_builds(by_hand):
    built = dict(induction_by_hand.build().named_parameters())
    assert all(torch.equal(weight, built[name]) for name, weight in by_hand.named_parameters())


@pytest.mark.parametrize("head", [(0, 0), (1, 0)])
def test_without_either_head_of_the_circuit_induction_by_hand_knows_nothing(by_hand, head):
    tokens = repeated_tokens(range(1, 63), rows=64, half=20, seed=3, bos=0)
    without = interp.edits.zero("z", layer=head[0], head=head[1])
    said = interp.run(by_hand, tokens, edits=[without]).logits.argmax(-1)
    assert (said[:, 21:-1] == tokens[:, 22:]).double().mean() < 0.2


@pytest.mark.parametrize("method", ["zero", "mean", "resample"])
def test_ablation_names_the_two_heads_of_the_circuit_and_no_other(by_hand, method):
    tokens = repeated_tokens(range(1, 63), rows=16, half=12, seed=5, bos=0)
    frame = ablate_heads(by_hand, tokens, method=method).to_frame()
    assert set(frame.loc[frame["matters"], "name"]) == {"L0H0", "L1H0"}
    assert frame.loc[~frame["matters"], "effect"].abs().max() < 1e-6


def test_python_2l_beats_a_bigram_table_on_files_it_has_not_seen(trained):
    corpus = read_corpus()
    backend = trained.tokenizer._backend
    train_tokens = encode_corpus(backend, [d.text for d in corpus.train])
    held_out = encode_corpus(backend, [d.text for d in corpus.held_out])[:20_000]
    assert held_out_loss(trained, held_out) < bigram_loss(train_tokens, held_out, 512) - 0.5


def test_python_2l_holds_an_induction_circuit(trained):
    allowed = read_card(BUNDLED / "python-2l").figures
    corpus = read_corpus()
    tokens = encode_corpus(trained.tokenizer._backend, [d.text for d in corpus.train[:200]])
    frequent = python_2l.frequent_tokens(tokens, least=100)
    repeated = repeated_tokens(frequent, rows=32, half=60, seed=9, bos=0)
    first, second = repeated_losses(trained, repeated)
    assert first - second >= 3
    assert previous_token_scores(trained, repeated)[0].max() >= 0.5
    assert induction_scores(trained, repeated)[1].max() >= 0.5
    assert allowed["its induction score"] >= 0.5


def test_shuffling_the_second_copy_takes_the_gain_away(trained):
    tokens = repeated_tokens(range(1, 256), rows=16, half=60, seed=9, bos=0)
    tokens[:, 61:] = tokens[:, 61:][:, torch.randperm(60)]
    first, second = repeated_losses(trained, tokens)
    assert first - second < 3


@pytest.mark.parametrize("name", ["induction-by-hand", "python-2l"])
def test_identities_hold_on_every_bundled_model(name):
    broken = [identity for identity in interp.verify(interp.load(name)) if not identity.holds]
    assert not broken


def test_a_model_that_misstates_its_circuit_fails_an_identity(by_hand, monkeypatch):
    monkeypatch.setattr(Attention, "S", lambda attn, head: Factored(attn.W_V[0], attn.W_O[head]))
    built = induction_by_hand.build()
    with torch.no_grad():
        built.blocks[0].attn.W_V[1, 0] = 1.0
        built.blocks[0].attn.W_O[1, :, 0] = 1.0
    failed = [identity.name for identity in interp.verify(built) if not identity.holds]
    assert failed == ["H(x) = Σ A·x·S, head by head"]


def test_training_is_the_same_twice_and_the_recipe_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(python_2l, "SCHEDULE", Schedule(steps=2, rows=2, width=32))
    corpus = read_corpus()
    small = replace(corpus, train=corpus.train[:20], held_out=corpus.held_out[:2])
    monkeypatch.setattr(python_2l, "read_corpus", lambda: small)
    seen = []
    for run in ("first", "second"):
        folder = train("python-2l", tmp_path / run, steps=2, report=lambda *r: seen.append(r))
        assert json.loads((folder / "card.json").read_text())["name"] == "python-2l"
    assert [r[:2] for r in seen] == [(1, 2), (2, 2)] * 2
    assert seen[:2] == seen[2:]
    first, second = (load_file(tmp_path / run / "model.safetensors") for run in ("first", "second"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_unknown_recipe_and_no_steps_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="python-2l"):
        train("python-9l", tmp_path, steps=None, report=lambda *_: None)
    with pytest.raises(InvalidInput, match="at least 1"):
        train("python-2l", tmp_path, steps=0, report=lambda *_: None)


class TestFolder:
    """A folder is read whole and checked, or not at all."""

    @pytest.fixture
    def folder(self, tmp_path, by_hand):
        save_folder(by_hand, tmp_path / "model")
        return tmp_path / "model"

    def test_round_trip(self, folder, by_hand):
        again = interp.load(folder)
        tokens = torch.randint(63, (2, 9))
        assert torch.equal(again(tokens), by_hand(tokens))
        assert again.config == by_hand.config
        assert again.to_labels(tokens[0]) == by_hand.to_labels(tokens[0])

    def test_no_temporary_file_is_left(self, folder):
        names = {path.name for path in folder.iterdir()}
        assert names == {"config.json", "model.safetensors", "tokenizer.json"}

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda w: w.pop("unembed.weight"), "unembed.weight is missing"),
            (lambda w: w.update(more=torch.ones(2)), "more belongs to no part"),
            (lambda w: w.update({"unembed.weight": torch.ones(3)}), "config asks for"),
            (lambda w: w["unembed.weight"].fill_(torch.inf), "not finite"),
        ],
    )
    def test_wrong_weights_are_named(self, folder, change, said):
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")
        with pytest.raises(ModelLoadError, match=said):
            interp.load(folder)

    def test_truncated_and_missing_files_are_named(self, folder):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(ModelLoadError, match="sound safetensors"):
            interp.load(folder)
        path.unlink()
        with pytest.raises(ModelLoadError, match="missing"):
            interp.load(folder)

    def test_a_config_that_is_none(self, folder):
        (folder / "config.json").write_text("{}")
        with pytest.raises(ModelLoadError, match="does not describe a model"):
            interp.load(folder)

    def test_a_name_that_is_nothing(self):
        with pytest.raises(ModelLoadError, match="induction-by-hand, python-2l"):
            interp.load("gpt-17")
