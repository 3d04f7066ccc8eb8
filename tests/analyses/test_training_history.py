"""When did a circuit form? The figure and the table show what the history holds."""

from dataclasses import replace

import pytest
import torch
from declared import Call, Declared, Made, Without, odd

from analyses import compare, head_roles, training_history
from interp import history
from interp.errors import InvalidInput
from interp.zoo.history import History

HISTORY = History(
    losses=[3.0, 2.0, 1.5, 1.0],
    measured={
        0: {"loss (nats)": 4.0, "score": 0.0},
        2: {"loss (nats)": 3.0, "score": 0.1},
        4: {"loss (nats)": 0.5, "score": 0.9},
    },
    checkpoints=[0, 4],
)


def test_the_table_holds_every_number_once():
    frame = training_history("x", HISTORY).to_frame()
    assert list(frame.columns) == ["step", "quantity", "value", "kept"]
    assert len(frame) == 4 + 6
    scores = frame[frame["quantity"] == "score"]
    assert scores["value"].tolist() == [0.0, 0.1, 0.9]
    assert scores["kept"].tolist() == [True, False, True]


def test_a_batch_is_foreseen_by_the_weights_that_have_not_learned_from_it():
    frame = training_history("x", HISTORY).to_frame()
    batch = frame[frame["quantity"] == "loss of the batch (nats)"]
    assert batch["step"].tolist() == [0, 1, 2, 3]
    assert batch["value"].tolist() == HISTORY.losses
    assert batch["kept"].tolist() == [True, False, False, False]


def test_the_figure_has_losses_above_and_scores_below():
    figure = training_history("x", HISTORY).figure()
    assert [trace.name for trace in figure.data] == [
        *("loss of the batch (nats)", "loss (nats)", "score")
    ]
    assert [trace.yaxis for trace in figure.data] == ["y", "y", "y2"]
    assert [len(trace.x) for trace in figure.data] == [4, 3, 3]
    assert figure.layout.yaxis.title.text == "loss (nats)"
    assert {shape.x0 for shape in figure.layout.shapes} == {0, 4}


def test_the_summary_states_when_a_score_was_halfway():
    summary = training_history("x", HISTORY).summary()
    assert "4 steps, last 1 nats" in summary
    assert "score: 0 → 0.9, halfway by step 4" in summary


def test_an_empty_history_is_refused():
    with pytest.raises(InvalidInput, match="history of x is empty"):
        training_history("x", History())


def test_a_history_of_losses_alone_has_one_panel():
    figure = training_history("x", History(losses=[1.0, 0.5])).figure()
    assert len(figure.data) == 1


def roles(model):
    return head_roles(model, rows=5, half=10)


def test_any_analysis_is_asked_of_the_steps_whose_weights_were_kept():
    """Its first and last step are the two sides of their comparison."""
    with_checkpoints = replace(history("python-2l"), checkpoints=[0, 400])
    scored = training_history("python-2l", with_checkpoints, score=roles)
    assert scored.checkpoint_scores.steps == (0, 400, 2500)
    ends = compare("python-2l@0", "python-2l", analysis=roles)
    torch.testing.assert_close(scored.checkpoint_scores.values[:, 0], ends.a[:, 0])
    torch.testing.assert_close(scored.checkpoint_scores.values[:, -1], ends.b[:, 0])
    frame = scored.to_frame()
    scores = frame[frame["quantity"] == "L1H0 induction score"]
    assert scores["step"].tolist() == [0, 400, 2500]
    assert scores["value"].iloc[0] < 0.1
    assert scores["value"].iloc[-1] > 0.5
    assert "L0H5 previous-token, score: " in scored.summary()
    assert scored.figure().layout.yaxis3.title.text == "at checkpoints (score)"
    assert scored.summary().startswith(training_history("python-2l", with_checkpoints).summary())


def test_steps_without_weights_can_not_be_scored():
    with pytest.raises(InvalidInput, match="weights of the steps of x"):
        training_history("x", History(losses=[1.0]), score=roles)


# ---- declared for the tests of all analyses -------------------------------------------------


DECLARED = Declared(
    analysis=training_history,
    made=Made(lambda: training_history("python-2l", history("python-2l"))),
    call=Call(
        ("model", History([2.0, 1.0], {}, [])),
        {},
        {
            "name": (odd.BELOW, odd.LISTED, odd.NOTHING),
            "history": (*odd.SOMETHING, odd.NOTHING, History([], {}, [])),
            "score": (odd.TEXT, odd.BELOW, odd.LISTED, {}),
            "column": (odd.BELOW, odd.BROKEN, odd.LISTED, {}),
        },
        runs=False,
    ),
    command=Without("a model's card and the explorer show it"),
    of_each_prompt=Without("it reads what was saved in training"),
    of_each_pair=Without("it reads what was saved in training"),
    symmetric=Without("it reads what was saved in training"),
)
