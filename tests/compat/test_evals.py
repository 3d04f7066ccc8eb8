"""Evaluations give what TransformerLens's give of the same model."""

from copy import copy
from types import SimpleNamespace

import pytest
import torch

from interp.compat import HookedTransformer, evals
from interp.compat.utils import lm_cross_entropy_loss
from interp.errors import InvalidInput


class Letters:
    """Characters as ids, a space with the letter behind it."""

    bos_token_id = 0

    def encode(self, text, return_tensors=None, add_special_tokens=True):
        ids = [ord(letter) for letter in text.replace(" ", "")]
        return ids if return_tensors is None else torch.tensor([ids])


class Model:
    """Logits of 130 tokens, which depend on the token alone."""

    cfg = SimpleNamespace(default_prepend_bos=True, d_vocab=20000, device="cpu")
    tokenizer = Letters()

    def __call__(self, tokens, return_type):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(20000, generator=generator)[
            (7 * tokens[..., None] + torch.arange(130)) % 19999
        ]
        return logits if return_type == "logits" else lm_cross_entropy_loss(logits, tokens)


class Repeats(Model):
    """Predicts what came so many tokens before."""

    def __init__(self, period):
        self.period = period

    def __call__(self, tokens, return_type):
        expected = tokens.roll(self.period - 1, dims=1)
        return 100.0 * torch.nn.functional.one_hot(expected, 20000).float()


def test_ioi_is_that_of_transformer_lens():
    theirs = pytest.importorskip("transformer_lens.evals")
    ours = evals.IOIDataset(Letters(), num_samples=20, symmetric=True, seed=3)
    other = theirs.IOIDataset(Letters(), num_samples=20, symmetric=True, seed=3)
    assert ours.samples == other.samples
    assert all(ours[at]["prompt"].equal(other[at]["prompt"]) for at in range(20))
    assert evals.ioi_eval(Model(), ours) == pytest.approx(theirs.ioi_eval(Model(), other))


def test_names_are_exchanged_and_differ():
    data = evals.IOIDataset(Letters(), num_samples=10, symmetric=True, prepend_bos=False, seed=0)
    assert len(data) == 10
    for first, second in zip(data.samples[::2], data.samples[1::2], strict=True):
        assert (first["IO"], first["S"]) == (second["S"], second["IO"])
        assert first["text"].endswith(first["IO"])
    same = evals.IOIDataset(Letters(), names=["A", "AB"], num_samples=2, seed=0)
    with pytest.raises(InvalidInput, match="other names"):
        evals.ioi_eval(Model(), same)


def test_repeated_tokens_are_predicted_by_induction_alone():
    options = {"subseq_len": 8, "batch_size": 2, "device": "cpu"}
    assert evals.induction_loss(Repeats(8), **options) < 1e-3
    assert evals.induction_loss(Repeats(7), **options) > 10


def test_the_loss_of_data_is_the_mean_over_batches():
    batches = [{"tokens": torch.full((2, 5), at)} for at in range(4)]
    each = [Model()(batch["tokens"], "loss").item() for batch in batches]
    found = evals.evaluate_on_dataset(Model(), batches, device="cpu")
    assert found == pytest.approx(sum(each) / 4)
    some = evals.evaluate_on_dataset(Model(), batches, truncate=1, device="cpu")
    assert some == pytest.approx(sum(each[:2]) / 2)
    with pytest.raises(InvalidInput, match="no batch"):
        evals.evaluate_on_dataset(Model(), [], device="cpu")


NAMES = ["name", "value", "data", "result", "path", "node"]
REPEATED = "[B] [THING] [A] and [B] [THING] [A]"
SWAPPED = "[A] [THING] [B] and [B] [THING] [A]"


@pytest.fixture(scope="module")
def bundled():
    return HookedTransformer.from_pretrained("python-2l")


def prompts(model, template):
    nouns = {"THING": ["items", "index"]}
    return evals.IOIDataset(
        model.tokenizer, [template], NAMES, nouns, num_samples=20, symmetric=True, seed=0
    )


def test_a_model_with_induction_heads_predicts_the_name_that_followed_before(bundled):
    repeated, swapped = (
        evals.ioi_eval(bundled, prompts(bundled, one)) for one in (REPEATED, SWAPPED)
    )
    assert repeated["Accuracy"] > 0.9
    assert repeated["Logit Difference"] > 1
    assert swapped["Accuracy"] < 0.1


def test_induction_lowers_the_loss_of_repeated_tokens(bundled):
    torch.manual_seed(0)
    options = {"subseq_len": 60, "batch_size": 4, "device": "cpu"}
    loss = evals.induction_loss(bundled, **options)
    unrepeated = bundled(torch.randint(100, 512, (4, 120)), return_type="loss")
    assert loss < unrepeated - 3
    small = SimpleNamespace(cfg=SimpleNamespace(default_prepend_bos=False, d_vocab=100))
    with pytest.raises(InvalidInput, match="d_vocab=100"):
        evals.induction_loss(small, **options)


@pytest.mark.filterwarnings("ignore")
def test_measures_of_a_bundled_model_are_those_of_transformer_lens(bundled):
    library = pytest.importorskip("transformer_lens")
    theirs = pytest.importorskip("transformer_lens.evals")
    options = {**bundled.cfg.to_dict(), "tokenizer_name": None, "init_weights": False}
    model = library.HookedTransformer(library.HookedTransformerConfig.from_dict(options))
    model.load_state_dict(bundled.state_dict(), strict=False)
    data = prompts(bundled, REPEATED)
    own = evals.ioi_eval(bundled, data)
    expected = theirs.ioi_eval(model, data, tokenizer=bundled.tokenizer)
    assert own == pytest.approx(expected, abs=1e-4)


QUESTIONS = {
    subject: [
        {"question": f"{subject} {n}?", "choices": list("wxyz")[: 4 - n % 2], "answer": n % 3}
        for n in range(12)
    ]
    for subject in ("astronomy", "virology")
}


@pytest.mark.filterwarnings("ignore")
def test_mmlu_is_that_of_transformer_lens(monkeypatch):
    theirs = pytest.importorskip("transformer_lens.evals")
    found = evals.mmlu_eval(Model(), data=QUESTIONS, num_samples=9)
    loaded = evals.make_mmlu_data_loader(data=QUESTIONS, num_samples=9)
    monkeypatch.setattr(theirs, "make_mmlu_data_loader", lambda **_: loaded)
    assert found == theirs.mmlu_eval(Model(), num_samples=9)
    assert found["num_total"] == 18
    assert 0 < found["accuracy"] < 1
    assert evals.MMLU_SUBJECTS == theirs.MMLU_SUBJECTS
    one = evals.mmlu_eval(Model(), subjects="virology", data=QUESTIONS)
    assert set(one["subject_scores"]) == {"virology"}
    with pytest.raises(InvalidInput, match="alchemy"):
        evals.make_mmlu_data_loader("alchemy")
    with pytest.raises(InvalidInput, match="no questions"):
        evals.mmlu_eval(Model(), data=QUESTIONS, num_samples=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_data_sets_of_ones_own(bundled, datasets):
    texts = datasets.Dataset.from_dict({"text": ["def f(x):\n    return x\n" * 40] * 20})
    tokenizer = copy(bundled.tokenizer)
    tokenizer.eos_token_id = tokenizer.bos_token_id
    own = {"tokenizer": tokenizer}
    losses = evals.evaluate(bundled, batch_size=2, data={"python": texts, "code": texts}, **own)
    assert set(losses) == {"python_loss", "code_loss"}
    assert losses["python_loss"] == pytest.approx(losses["code_loss"], rel=0.1)
    assert losses["python_loss"] < 3
    rows = next(iter(evals.make_wiki_data_loader(tokenizer, data=texts, max_length=32)))
    assert rows["tokens"].shape == (8, 32)
    with pytest.raises(InvalidInput, match="no batch"):
        evals.evaluate(bundled, data={"python": texts.select([0])}, **own)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_without_a_network_data_sets_say_what_to_do(bundled, monkeypatch):
    datasets = pytest.importorskip("datasets")

    def offline(*arguments, **options):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    for load in (lambda: evals.evaluate(bundled), lambda: evals.make_mmlu_data_loader("virology")):
        with pytest.raises(InvalidInput, match="load_from_disk"):
            load()
