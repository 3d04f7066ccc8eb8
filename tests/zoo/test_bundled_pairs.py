"""The bundled minimal pairs: two texts with as many tokens and different predictions."""

import pytest
import torch
from architectures import covering

import interp
from analyses.methods.components.minimal_pairs import aligned_prompts
from interp.errors import InvalidInput
from interp.prompts import PROMPT_FOLDER, logit_diff_of_prompts
from training.minimal_pairs import (
    CANDIDATES,
    COUNT,
    MARGIN,
    is_answered,
    pairs_of,
    write_pairs,
)

by_name = pytest.mark.parametrize("name", CANDIDATES)


def bundled(name: str):
    return interp.read_prompts(f"{name}-pairs")


def test_every_model_that_names_pairs_has_them():
    named = {name: interp.card(name).pairs for name in interp.bundled()}
    assert {name: pairs for name, pairs in named.items() if pairs} == {
        name: f"{name}-pairs" for name in CANDIDATES
    }


@pytest.mark.parametrize("name", covering(CANDIDATES, ["rasp-duplicates", "addition-mod-113"]))
def test_a_set_is_what_is_drawn(name):
    fields = ("text", "corrupt", "prefix", "target", "distractor")
    drawn, stored = (
        [[getattr(pair, field) for field in fields] for pair in pairs]
        for pairs in (pairs_of(name), bundled(name))
    )
    assert drawn == stored


def test_sets_are_written_as_they_are_bundled(tmp_path, monkeypatch):
    name = "rasp-histogram"
    monkeypatch.setattr("training.minimal_pairs.CANDIDATES", {name: CANDIDATES[name]})
    write_pairs(tmp_path)
    (written,) = tmp_path.iterdir()
    assert written.read_bytes() == (PROMPT_FOLDER / f"{name}-pairs.jsonl").read_bytes()


@by_name
def test_the_answer_to_each_text_is_its_own(name):
    """Clean, the target is likeliest; corrupted, the distractor is preferred to it."""
    model, pairs = interp.load(name), bundled(name)
    assert len(pairs) == COUNT
    assert all(is_answered(model, pairs))
    metric = logit_diff_of_prompts(model.to_single_token, pairs)
    clean, corrupt = aligned_prompts(model, pairs)  # of equal length, or refused
    differences = [metric(model(*batches).detach(), batches[-1]) for batches in (clean, corrupt)]
    assert differences[0].min() >= MARGIN
    assert differences[1].max() <= -MARGIN


def test_untrained_weights_answer_no_pair():
    assert sum(is_answered(interp.load("python-2l@0"), bundled("python-2l"))) == 0


@by_name
def test_pairs_hold_trained_tokens_alone(name):
    model, trained = interp.load(name), set(interp.card(name).trained_tokens)
    tokens = model.config.tokens
    special = {tokens.bos, tokens.eos, tokens.decoder_start}
    if name == "addition-mod-113":
        special |= {model.to_single_token("=")}
    read = {
        token
        for batches in aligned_prompts(model, bundled(name))
        for batch in batches
        for token in batch.ids[batch.is_real].tolist()
    }
    assert read - special <= trained
    assert not trained & special
    assert max(trained) < model.config.d_vocab


@by_name
def test_a_text_and_its_corrupted_one_differ_in_a_few_tokens(name):
    clean, corrupt = aligned_prompts(interp.load(name), bundled(name))
    differing = sum(
        (clean_batch.tokens != corrupt_batch.tokens).sum(-1)
        for clean_batch, corrupt_batch in zip(clean, corrupt, strict=True)
    )
    assert differing.min() >= 1
    # Another day of the week, and 3rd is not 13th; two words that change places.
    assert differing.max() <= (5 if name == "dates" else 2)


def test_the_kinds_of_change_of_repeated_words_are_all_there():
    model = interp.load("python-2l")
    ((clean,), (corrupt,)) = aligned_prompts(model, bundled("python-2l"))
    differ = clean.ids != corrupt.ids
    query = differ[:, -1]
    before = torch.roll(clean.ids, 1, -1) == clean.ids[:, -1:]
    values = (differ & before).any(-1)
    keys = ~query & ~values
    assert [int(kind.sum()) for kind in (query, keys, values)] == [8, 12, 16]


def test_pairs_of_a_set_without_corrupt_texts_are_refused():
    with pytest.raises(InvalidInput, match=r"letters.jsonl:1: a minimal pair needs a 'corrupt'"):
        aligned_prompts(interp.load("induction-by-hand"), interp.read_prompts("letters"))
