"""``dates`` writes dates that it has never seen, and looks where it should."""

from datetime import date

import pytest

import interp
from interp.loading import BUNDLED
from interp.prompts import read_prompts
from interp.zoo.calendar import FORMATS, Written, suffix
from interp.zoo.card import read_card
from interp.zoo.proofs.alignment import FIELDS, alignment
from interp.zoo.recipes.dates import NAME, START, every_text, exact_match, is_held_out, read


@pytest.fixture(scope="module")
def trained():
    return interp.load(NAME)


@pytest.fixture(scope="module")
def unseen():
    return [one for one in every_text() if is_held_out(one.day)][:1500]


def test_a_date_is_written_in_each_format():
    texts = [Written.of(date(2021, 3, 3), name).text for name in FORMATS]
    assert texts == ["3 March 2021", "03/03/21", "Wednesday, March 3rd 2021"]
    assert [suffix(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 30)] == [
        *("st", "nd", "rd", "th", "th", "th", "th", "st", "nd", "rd", "th")
    ]


def test_it_writes_dates_that_were_held_out(trained, unseen):
    assert exact_match(trained, unseen) >= 0.99


def test_it_writes_the_bundled_prompts(trained):
    prompts = read_prompts(NAME)
    said = trained.generate([prompt.text for prompt in prompts], max_new_tokens=11)
    right = [
        text.startswith(START + str(prompt.target))
        for text, prompt in zip(trained.to_string(said), prompts, strict=True)
    ]
    assert sum(right) >= 0.9 * len(right)


@pytest.mark.parametrize("field", FIELDS)
def test_cross_attention_looks_at_what_is_written(trained, unseen, field):
    head, score, even = alignment(trained, *read(trained, unseen[:300])).best(field)
    figures = read_card(BUNDLED / NAME).figures
    assert head == figures[f"cross-attention head that aligns the {field} best"]
    assert score >= 0.5
    assert score >= 2 * even


def test_no_held_out_day_is_trained_on_in_any_format():
    share = sum(is_held_out(one.day) for one in every_text()) / len(every_text())
    assert share == pytest.approx(0.1, abs=0.01)
    assert len({(one.day, one.text) for one in every_text()}) == 3 * 36525
