"""The recipes of the models that train in minutes make models that hold what the cards claim."""

import pytest

import interp
from training.build import build_model

CLAIMS = {
    "python-2l": {"held-out loss (nats per token)": 0.05, "loss on their repetition (nats)": 0.3},
    "dates": {"exact match on held-out dates": 0.01},
    "addition-mod-113": {"accuracy on held-out sums": 0.001},
}


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", CLAIMS)
def test_made_again_it_holds_what_its_card_claims(tmp_path, name):
    """Not to the byte: another processor adds in another order."""
    build_model(name, tmp_path, report=lambda *_: None)
    assert interp.card(tmp_path).data == interp.card(name).data
    again, bundled = interp.card(tmp_path).figures, interp.card(name).figures
    for figure, gap in CLAIMS[name].items():
        assert again[figure] == pytest.approx(bundled[figure], abs=gap), figure
