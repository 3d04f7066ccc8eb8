"""The pattern that is shown is the one that the model forms."""

import pytest
import torch

import interp
from analyses import attention_pattern
from interp.errors import InvalidInput, UnknownPlace


@pytest.fixture(scope="module")
def model():
    return interp.load("induction-by-hand")


def test_the_induction_head_looks_at_the_token_after_the_earlier_one(model):
    shown = attention_pattern(model, "QxmQ", layer=1, head=0)
    assert shown.labels == ("<|bos|>", "Q", "x", "m", "Q")
    assert shown.pattern[4].argmax() == 2
    assert shown.pattern[4, 2] > 0.99
    assert torch.allclose(shown.pattern.sum(-1), torch.ones(5))


def test_it_is_the_models_own_pattern(model):
    ids = model.to_tokens("abcab")
    stored = interp.run(model, ids, record="pattern", kernel="explicit").cache["pattern", 0]
    assert torch.allclose(
        attention_pattern(model, "abcab", -2, -4).pattern, stored[0, 0], atol=1e-6
    )


def test_frame_figure_and_summary(model):
    shown = attention_pattern(model, "aba", 0, 0)
    frame = shown.to_frame()
    assert len(frame) == 16
    cell = frame[(frame["query"] == 2) & (frame["key"] == 1)].iloc[0]
    assert (cell["query_token"], cell["key_token"]) == ("b", "a")
    assert cell["attention"] == pytest.approx(1.0)
    figure = shown.figure()
    assert figure.layout.title.text == "Attention of L0H0"
    assert list(figure.layout.xaxis.ticktext) == ["&lt;|bos|&gt;", "a", "b", "a"]
    assert (figure.data[0].zmin, figure.data[0].zmax) == (0.0, 1.0)
    assert "L0H0" in shown.summary()


def test_what_it_refuses(model):
    with pytest.raises(InvalidInput, match=r"heads 0\.\.3"):
        attention_pattern(model, "ab", 0, 4)
    with pytest.raises(UnknownPlace, match="pattern,0"):
        attention_pattern(model, "ab", 7, 0)
    with pytest.raises(InvalidInput, match="one prompt"):
        attention_pattern(model, ["ab", "cd"], 0, 0)
