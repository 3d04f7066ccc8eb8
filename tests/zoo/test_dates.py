"""``dates`` writes dates that it has never seen, and looks where it should."""

from datetime import date

import pytest

import interp
from interp.loading import MODEL_FOLDER
from interp.prompts.prompts import read_prompts
from interp.zoo.card import read_card
from training import training_run
from training.calendar import FORMATS, WrittenDate, suffix
from training.evaluations.alignment import FIELDS, alignment
from training.recipes import dates
from training.recipes.dates import NAME, START, encode, every_text, exact_match, split


@pytest.fixture(scope="module")
def trained():
    return interp.load(NAME)


@pytest.fixture(scope="module")
def both():
    """All texts: for training, and held out."""
    return split()


@pytest.fixture(scope="module")
def unseen(both):
    return both[1][:1500]


def test_a_date_is_written_in_each_format():
    texts = [WrittenDate.of(date(2021, 3, 3), name).text for name in FORMATS]
    assert texts == ["3 March 2021", "03/03/21", "Wednesday, March 3rd 2021"]
    assert [suffix(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 30)] == [
        *("st", "nd", "rd", "th", "th", "th", "th", "st", "nd", "rd", "th")
    ]


@pytest.mark.slow
def test_it_writes_dates_that_were_held_out(trained, unseen):
    assert exact_match(trained, unseen) >= 0.99


def test_it_writes_the_bundled_prompts(trained):
    prompts = read_prompts(NAME)
    generated = trained.generate([prompt.text for prompt in prompts], max_new_tokens=11)
    right = [
        text.startswith(START + str(prompt.target))
        for text, prompt in zip(trained.to_string(generated), prompts, strict=True)
    ]
    assert sum(right) >= 0.9 * len(right)


@pytest.mark.parametrize("field", FIELDS)
def test_cross_attention_looks_at_what_is_written(trained, unseen, field):
    head, score, even = alignment(trained, *encode(trained, unseen[:300])).best(field)
    figures = read_card(MODEL_FOLDER / NAME).figures
    assert head == figures[f"cross-attention head that aligns the {field} best"]
    assert score >= 0.5
    assert score >= 2 * even


@pytest.mark.slow
def test_no_held_out_day_is_trained_on_in_any_format(both):
    train, held_out = both
    assert len(train) + len(held_out) == len(every_text()) == 3 * 36525
    assert len(held_out) / len(every_text()) == pytest.approx(0.1, abs=0.01)
    for key in ("day", "iso", "text"):
        assert not {getattr(example, key) for example in train} & {
            getattr(example, key) for example in held_out
        }


@pytest.mark.slow
def test_training_reads_nothing_that_is_held_out(both, monkeypatch):
    """All that the recipe makes into tokens before it trains."""
    read_first, to_tokens = set(), interp.Transformer.to_tokens

    class Stopped(Exception):
        pass

    def watched(model, texts, **options):
        read_first.update(texts)
        return to_tokens(model, texts, **options)

    def stop(*_, **__):
        raise Stopped

    monkeypatch.setattr(interp.Transformer, "to_tokens", watched)
    monkeypatch.setattr(training_run, "train", stop)
    with pytest.raises(Stopped):
        dates.build(training_run.TrainingRun(stop))
    train, held_out = both
    assert read_first == {text for example in train for text in (example.text, example.iso)}
    assert not read_first & {text for example in held_out for text in (example.text, example.iso)}
