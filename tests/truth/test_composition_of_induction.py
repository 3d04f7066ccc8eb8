"""Induction heads compose by their keys with the previous-token head; other heads do not.

Heads are named by what they attend to (head_roles), composition is of the weights alone.
"""

import pytest
import torch
from torch import Tensor

import interp
from analyses import composition, head_roles

PREVIOUS = {"python-2l": "L0H5", "python-4l": "L2H5"}
"""The previous-token head of each model's card, and the layer where induction heads are."""
LAYER = {"python-2l": "L1", "python-4l": "L3"}


@pytest.fixture(scope="module", params=PREVIOUS)
def k_composition(request) -> tuple[str, Tensor, Tensor]:
    """With the previous-token head: of induction heads, and of the others of their layer."""
    model = interp.load(request.param)
    roles = head_roles(model, rows=8).roles()
    frame = composition(model).to_frame().query("kind == 'K'")
    scores = frame[frame["writer"] == PREVIOUS[request.param]].set_index("reader")["composition"]
    by_induction: dict[bool, list[float]] = {True: [], False: []}
    for head, value in scores.items():
        if head.startswith(LAYER[request.param]):
            by_induction["induction" in roles[head]].append(value)
    return request.param, torch.tensor(by_induction[True]), torch.tensor(by_induction[False])


def test_it_is_that_of_induction_heads_above_the_others(k_composition):
    _, induction, others = k_composition
    assert len(induction) + len(others) == 8
    assert induction.min() > 0.105
    assert induction.max() < 0.2
    assert others.min() > 0.045
    assert others.max() < 0.115


def test_it_ranks_induction_heads_first(k_composition):
    """The share of pairs (induction head, other head) that it orders."""
    name, induction, others = k_composition
    ordered = (induction[:, None] > others).double().mean()
    assert ordered >= {"python-2l": 0.93, "python-4l": 1.0}[name]


def test_it_is_far_from_chance_and_the_others_near(k_composition):
    name, induction, others = k_composition
    frame = composition(interp.load(name)).to_frame()
    assert frame["control"].round(3).unique() == [0.063]
    assert 0.0015 < frame["spread"].median() < 0.0035
    baseline = frame["control"][0]
    assert (induction - baseline).min() > 0.04
    assert (others - baseline).abs().median() < 0.015
