"""Damaged files of every kind are read or refused, within bounds; and what is not is counted."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import interp
from tools.fuzz import worker
from tools.fuzz.__main__ import DOCUMENT, MARKERS
from tools.fuzz.campaign import ALLOWED, Tally, campaign, to_markdown
from tools.fuzz.kinds import KINDS
from tools.fuzz.mutations import damaged_bytes, damaged_json
from tools.fuzz.worker import Outcome, Reader

SHORT = 6
"""Damages of each kind; `make fuzz` reads 5 000 in all."""


@pytest.mark.timeout(400)
@pytest.mark.slow
def test_damaged_files_are_read_or_refused():
    tallies = campaign(SHORT * len(KINDS), first=5000)
    wrong = [outcome for tally in tallies for outcome in (*tally.failed, *tally.too_large)]
    assert wrong == []
    assert sum(len(tally.outcomes) for tally in tallies) == SHORT * len(KINDS)
    assert all(tally.count("refused") for tally in tallies if tally.kind != UNREAD)


UNREAD = "generation_config.json"
"""Nothing in it is needed to read a model."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_valid_file_is_read(kind, tmp_path):
    outcome = Reader(tmp_path)(kind, -1)
    assert (outcome.end, outcome.what) == ("read", "")


def test_the_same_seed_gives_the_same_damage():
    content = json.dumps({"a": [1, 2.5, "x", None, {"b": True}]}).encode()
    for mutate in (damaged_bytes, damaged_json):
        first, second = ([mutate(Random(seed), content) for seed in range(50)] for _ in range(2))
        assert first == second
        assert len(set(first)) > 25


def _exhausts(folder: Path) -> object:
    return bytearray(200 * 2**20)


def _raises(folder: Path) -> object:
    raise KeyError("foreign")


def _refuses(folder: Path) -> object:
    raise interp.InterpError("refused")


@pytest.mark.parametrize(
    ("read", "end"), [(_raises, "foreign"), (_refuses, "refused"), (_exhausts, "read")]
)
def test_what_a_reader_does_is_noticed(read, end, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "KINDS", {"edit": replace(KINDS["edit"], read=lambda _: None)})
    reader = Reader(tmp_path)
    reader("edit", -1)
    monkeypatch.setattr(worker, "KINDS", {"edit": replace(KINDS["edit"], read=read)})
    outcome = reader("edit", 3)
    tally = Tally("edit", [outcome])
    assert outcome.end == end
    assert (len(tally.failed), len(tally.too_large)) == (end == "foreign", read is _exhausts)


def test_a_worker_that_does_not_answer_is_killed_and_replaced():
    """No answer comes within no time at all."""
    (tally,) = campaign(2, kinds=["edit"], timeout=0.0)
    assert [outcome.end for outcome in tally.outcomes] == ["hang", "hang"]


def test_the_table_counts_each_kind_and_all():
    outcomes = [Outcome("edit", 0, "read"), Outcome("edit", 1, "crash", peak=ALLOWED + 1)]
    table = to_markdown([Tally("edit", outcomes), Tally("cache", [Outcome("cache", 0, "refused")])])
    assert "| edit | 2 | 1 | 0 | 0 | 1 | 1 | 67 MB |" in table
    assert "| all | 3 | 1 | 1 | 0 | 1 | 1 | 67 MB |" in table


def test_the_document_has_a_place_for_the_figures():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.index(MARKERS[0]) < text.index(MARKERS[1])
