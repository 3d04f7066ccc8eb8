"""``python -m training``: a model is written, or an error and a checkpoint are named."""

import os
import signal

import pytest
from tables import each
from typer.testing import CliRunner

from apps.failures import terminated
from interp import load
from training.__main__ import app, main

MODEL = "induction-by-hand"


@pytest.fixture(autouse=True)
def _signals():
    """Signals are handled as before afterwards."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)
    terminated.clear()


@pytest.mark.slow
def test_a_model_is_written_that_loads(tmp_path):
    done = CliRunner().invoke(app, [MODEL, "--out", str(tmp_path / "made")])
    assert done.exit_code == 0, done.output
    assert load(tmp_path / "made").config == load(MODEL).config
    assert (tmp_path / "made" / "README.md").exists()


@each(
    ("words", "message"),
    [(["no-such-model"], "no-such-model"), ([MODEL, "--steps", "0"], "at least 1")],
)
def test_a_wrong_argument_is_an_error(words, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as raised:
        main([*words, "--out", str(tmp_path / "made")])
    assert raised.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_an_interruption_names_the_checkpoint_that_it_leaves(tmp_path, monkeypatch, capsys):
    def interrupt(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("apps.terminal._LogProgress.__call__", interrupt)
    words = ["addition-mod-113", "--steps", "3", "--device", "cpu", "--out", str(tmp_path / "a")]
    for _ in range(2):  # the second time it resumes, and is interrupted again
        with pytest.raises(SystemExit) as raised:
            main(words)
        assert raised.value.code == 143
        assert "holds a checkpoint. The same command resumes from it" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [".a.training-addition-mod-113"]
