"""The figures that the folder of a dictionary claims; what can't be read of it is left out."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from interp import dictionaries
from interp.io import read_json

REFERENCES = Path(__file__).with_name("references")
EVALUATION = {
    "l0": 3.5,
    "frac_alive": 0.75,
    "frac_variance_explained": 0.875,
    "frac_recovered": 0.9375,
    "loss_zero": 11.2,
    "hyperparameters": {"n_inputs": 200},
}


def copied(name: str, folder: Path) -> Path:
    """A copy of a reference."""
    return Path(shutil.copytree(REFERENCES / name, folder))


@pytest.fixture
def evaluated(tmp_path: Path) -> Path:
    """A folder of dictionary_learning with an evaluation."""
    folder = copied("dictionary_learning-AutoEncoderTopK", tmp_path / "trainer_0")
    (folder / "eval_results.json").write_text(json.dumps(EVALUATION))
    return folder


def values(folder: Path) -> dict[str, float]:
    """The claims of a folder, without their definitions."""
    return {figure: claim.value for figure, claim in dictionaries.load(folder).claims.items()}


def test_an_evaluation_of_dictionary_learning_is_against_zero_ablation(evaluated):
    expected = {"fvu": 0.125, "l0": 3.5, "dead": 0.25, "recovered": 0.9375}
    assert values(evaluated) == expected
    claims = dictionaries.load(evaluated).claims
    assert "zero ablation" in claims["recovered"].definition
    assert "mean ablation" in claims["recovered"].definition
    assert all("its own texts" in claim.definition for claim in claims.values())
    (evaluated / "eval_results.json").unlink()
    assert values(evaluated) == {}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"l0": "many"}, r"eval_results\.json: l0 is 'many'; a number from 0 to 16"),
        ({"l0": True}, "l0 is True; a number"),
        ({"l0": 17}, "l0 is 17; a number from 0 to 16"),
        ({"l0": -1}, "l0 is -1; a number"),
        ({"frac_alive": [1.0]}, r"frac_alive is \[1.0\]; a number from 0 to 1"),
        ({"frac_alive": 1.5}, "frac_alive is 1.5; a number from 0 to 1"),
        ({"frac_variance_explained": 10**400}, "frac_variance_explained is 1000"),
        ({"frac_recovered": 1e12}, "frac_recovered is 1000000000000.0; a number from -1e"),
    ],
    ids=str,
)
def test_a_claim_that_is_no_such_number_is_left_out_by_name(evaluated, changed, message):
    (evaluated / "eval_results.json").write_text(json.dumps(EVALUATION | changed))
    with pytest.warns(UserWarning, match=message):
        read = values(evaluated)
    assert len(read) == 3
    (evaluated / "eval_results.json").write_text(json.dumps(EVALUATION))
    assert {**values(evaluated), **read} == values(evaluated)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"l0": NaN}', "NaN"),
        ('{"l0": Infinity}', "Infinity"),
        ('{"l0": 1, "l0": 2}', "'l0' occurs twice"),
        ("[1]", r"an object was expected; got \[1\]"),
        ("{", "can't be read"),
        ("[" * 50_000, "nested deeper"),
        (json.dumps({"l0": 1, "more": "x" * 2**20}), "can't be read: it is larger"),
    ],
    ids=lambda text: text[:12],
)
def test_an_evaluation_that_can_not_be_read_stops_nothing(evaluated, text, message):
    plain = dictionaries.load(evaluated)
    (evaluated / "eval_results.json").write_text(text)
    with pytest.warns(UserWarning, match=rf"eval_results\.json.*{message}.*without the claims"):
        read = dictionaries.load(evaluated)
    assert read.claims == {}
    assert read.w_enc.equal(plain.w_enc)


def test_a_folder_of_gemma_scope_is_named_after_its_l0(tmp_path):
    draw = np.random.default_rng(0).random
    arrays = {"W_enc": draw((6, 90)), "W_dec": draw((90, 6)), "b_enc": draw(90)}
    arrays |= {"b_dec": draw(6), "threshold": draw(90)}
    for name, expected in {"average_l0_82": {"l0": 82.0}, "width_16k": {}}.items():
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "params.npz", **arrays)
        assert values(tmp_path / name) == expected
    (tmp_path / "average_l0_82").rename(tmp_path / "average_l0_91")
    with pytest.warns(UserWarning, match="l0 is 91; a number from 0 to 90"):
        assert values(tmp_path / "average_l0_91") == {}


@pytest.mark.parametrize(
    ("name", "file", "stated", "expected"),
    [
        ("gemma_scope_2-transcoder", "config.json", {"l0": 7}, {"l0": 7.0}),
        (
            "saelens-jumprelu",
            "cfg.json",
            {"expected_l0": 7.5, "expected_var_explained": 0.75},
            {"l0": 7.5, "fvu": 0.25},
        ),
        ("saelens-jumprelu", "cfg.json", {"l0_coefficient": 5}, {}),
    ],
)
def test_settings_that_state_figures_are_claims(tmp_path, name, file, stated, expected):
    folder = copied(name, tmp_path / "read")
    settings = read_json(folder / file, 2**20)
    inside = settings.get("metadata", settings)
    inside |= stated
    (folder / file).write_text(json.dumps(settings))
    assert values(folder) == expected
