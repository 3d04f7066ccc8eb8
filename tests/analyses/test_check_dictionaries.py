"""What dictionaries explain: figures by hand, limits that are known, and what is refused."""

from dataclasses import replace

import pytest
import torch
from declared import Call, Command, Declared, Made, Symmetric, Without, odd, small
from permuted import ENCODERS

import interp
from analyses import check_dictionaries
from interp import edits, run
from interp.dictionaries import Claim, Dictionary, DictionaryTransformer, ReLU
from interp.errors import InvalidInput
from interp.metrics import loss

N_FEATURES = 20
CLAIMS = {
    "l0": Claim(3.0, "on other texts"),
    "fvu": Claim(0.25, "on other texts"),
    "recovered": Claim(0.875, "against zero ablation"),
}


def drawn(model, place: str, layer: int) -> Dictionary:
    """A dictionary with random weights."""
    generator = torch.Generator().manual_seed(layer)
    width = model.d_model
    draw = lambda *shape: torch.randn(shape, generator=generator)  # noqa: E731
    name = f"blocks.{layer}.hook_{place}"
    return Dictionary(
        w_enc=draw(width, N_FEATURES),
        b_enc=draw(N_FEATURES) - 2,
        b_in=torch.zeros(width),
        w_dec=draw(N_FEATURES, width) / 9,
        b_dec=draw(width) / 9,
        activation=ReLU(),
        reads=name,
        writes=name,
    )


def exact(model, layer: int) -> Dictionary:
    """A dictionary that reconstructs everything: x = max(x, 0) − max(−x, 0)."""
    identity = torch.eye(model.d_model)
    return replace(
        drawn(model, "resid_post", layer),
        w_enc=torch.cat([identity, -identity], dim=1),
        b_enc=torch.zeros(2 * model.d_model),
        w_dec=torch.cat([identity, -identity]),
        b_dec=torch.zeros(model.d_model),
    )


def view_of(model) -> DictionaryTransformer:
    layers = len(model.stacks[-1].blocks)
    claimed = replace(drawn(model, "mlp_out", 0), claims=CLAIMS)
    made = [claimed, drawn(model, "resid_post", layers - 1)]
    return interp.with_dictionaries(model, made)


VIEW = view_of(small.MODEL)
TEXTS = ["def f(x):\n    return x + 1", "for i in range(10):\n    print(i)", "import os\nclass A:"]


def test_figures_are_those_of_their_definitions():
    model = interp.load("python-2l")
    dictionary = drawn(model, "attn_out", 1)
    check = check_dictionaries(interp.with_dictionaries(model, dictionary), TEXTS, rows=2)
    tokens = model.to_tokens(TEXTS)
    real = tokens != interp.PAD
    y = run(model, tokens, record=[("attn_out", 1)]).cache["attn_out", 1]
    features = dictionary.encode(y)
    mean = y[real].mean(0)
    residual = (y - dictionary.decode(features))[real].square().sum()
    (row,) = check.to_frame().to_dict("records")
    assert row["place"] == '("attn_out", 1)'
    assert row["fvu"] == pytest.approx(float(residual / (y - mean)[real].square().sum()), rel=1e-4)
    active = (features > 0)[real]
    assert row["l0"] == pytest.approx(
        sum(float((features > 0)[n][real[n]].sum(-1).double().mean()) for n in range(3)) / 3
    )
    assert row["dead"] == pytest.approx(1 - float(active.any(0).double().mean()))
    changed = (dictionary.decode(features), mean)
    made = [[], *([edits.replace("attn_out", values, layer=1)] for values in changed)]
    plain, spliced, ablated = (
        float(loss()(run(model, tokens, edits=edit).logits, model.batch(tokens)).mean())
        for edit in made
    )
    assert row["effect"] == pytest.approx(spliced - plain, abs=1e-5)
    assert row["ablated"] == pytest.approx(ablated, abs=1e-5)
    assert row["recovered"] == pytest.approx((ablated - spliced) / (ablated - plain), abs=1e-3)


def test_a_dictionary_that_reconstructs_everything_costs_nothing():
    """And its converse: one that writes the mean, whatever it reads, recovers nothing."""
    model = interp.load("python-2l")
    whole = exact(model, 1)
    tokens = model.to_tokens(TEXTS)
    y = run(model, tokens, record=[("resid_post", 1)]).cache["resid_post", 1]
    mean = y[tokens != interp.PAD].mean(0)
    nothing = replace(whole, w_dec=torch.zeros_like(whole.w_dec), b_dec=mean)
    for dictionary, fvu, recovered in ((whole, 0.0, 1.0), (nothing, 1.0, 0.0)):
        view = interp.with_dictionaries(model, dictionary)
        (row,) = check_dictionaries(view, TEXTS).to_frame().to_dict("records")
        assert row["fvu"] == pytest.approx(fvu, abs=1e-5)
        assert row["recovered"] == pytest.approx(recovered, abs=1e-4)


def test_rows_at_a_time_and_padding_do_not_matter():
    ragged = torch.cat([small.CLEAN, torch.full((3, 2), interp.PAD)], dim=1)
    whole = check_dictionaries(VIEW, small.CLEAN)
    for other in (check_dictionaries(VIEW, small.CLEAN, rows=1), check_dictionaries(VIEW, ragged)):
        torch.testing.assert_close(other.unexplained, whole.unexplained)
        torch.testing.assert_close(other.variance, whole.variance)
        torch.testing.assert_close(other.spliced, whole.spliced)
        assert other.n_active.tolist() == whole.n_active.tolist()


def test_claims_stand_beside_what_is_measured_and_change_nothing():
    """Only of the dictionary that has them; without any there is no such column, table or line."""
    check = check_dictionaries(VIEW, small.CLEAN)
    first, second = check.to_frame().to_dict("records")
    for figure, claim in CLAIMS.items():
        assert first[f"claimed_{figure}"] == claim.value
        assert second[f"claimed_{figure}"] != second[f"claimed_{figure}"]
    assert "claimed_dead" not in first
    claims = check.more_frames()["claims"]
    assert claims["figure"].tolist() == [*CLAIMS]
    measured = [first[figure] for figure in CLAIMS]
    assert claims["measured"].tolist() == pytest.approx(measured, nan_ok=True)
    text = check.summary()
    assert f"claimed L0 3.0, measured L0 {first['l0']:.1f}; claimed as on other texts" in text
    assert "claimed 87.5% recovered, measured" in text
    assert "claimed as against zero ablation" in text
    bare = [replace(each, claims={}) for each in VIEW.dictionaries().values()]
    plain = check_dictionaries(interp.with_dictionaries(small.MODEL, bare), small.CLEAN)
    assert plain.more_frames() == {}
    assert "claimed" not in plain.summary()
    shared = [name for name in check.to_frame() if not name.startswith("claimed_")]
    assert plain.to_frame().equals(check.to_frame()[shared])


def test_a_model_without_dictionaries_is_refused():
    with pytest.raises(
        InvalidInput, match=r"interp\.with_dictionaries makes it.*--dictionary.*got 'Transformer'"
    ):
        check_dictionaries(small.MODEL, small.CLEAN)


# ---- declared for the tests of all analyses -----------------------------------------------------


def of_case(case):
    """A dictionary of the stream, which heads, neurons and tokens leave as it is."""
    view = interp.with_dictionaries(case.model, drawn(case.model, "resid_post", 0))
    return check_dictionaries(view, case.clean)


DECLARED = Declared(
    analysis=check_dictionaries,
    made=Made(
        lambda: check_dictionaries(VIEW, small.CLEAN[[0, 1, 2, 0, 1]]), means=("effect", "effect")
    ),
    call=Call(
        (VIEW, small.CLEAN),
        {},
        {"rows": odd.COUNT, "memory": odd.MEMORY, "transcoder": (odd.TEXT, odd.LISTED)},
    ),
    command=Command(
        "check-dictionaries",
        ("--model", "python-4l", "--dictionary", "python-4l/mlp-0"),
        "check-dictionaries",
        "recovered",
        "dictionary=None",
    ),
    of_each_prompt=Without("its dictionaries are of one model, and its means are over all prompts"),
    of_each_pair=Without("its dictionaries are of one model"),
    symmetric=Symmetric({"": of_case}, refused=ENCODERS),
)
