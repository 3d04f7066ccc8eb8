"""An analysis of one part of the prompts after another has the numbers of all prompts at once."""

import json
import weakref
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
import torch
from architectures import build
from declared import Call, Declared, Made, Symmetric, Without, odd, small

import interp
from analyses import (
    ablate,
    ablate_heads,
    attention_statistics,
    attribute_edges,
    attribute_nodes,
    direct_logit_attribution,
    logit_lens,
    patch_activations,
    patch_paths,
    probe,
    run_in_parts,
)
from interp.errors import InvalidInput, OutOfResources
from interp.metrics import logit, logit_diff

METRIC = logit_diff(3, 5)
ROWS = [[(7 * k + 3 * i * i + i) % 11 for i in range(3 + k % 4)] for k in range(11)]
PAIRS = [(row, [*row[:1], (row[1] + 1) % 11, *row[2:]]) for row in ROWS]
REFERENCE = torch.tensor([[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]])
SIZE = 4


def padded(rows):
    longest = max(map(len, rows))
    return torch.tensor([row + [interp.PAD] * (longest - len(row)) for row in rows])


def sides(pairs):
    return [padded([pair[side] for pair in pairs]) for side in (0, 1)]


def zeroed(model, rows):
    return ablate_heads(model, padded(rows), metric=METRIC, method="zero")


OF_ROWS = {
    "ablate_heads": zeroed,
    "ablate kl": lambda model, rows: ablate(
        model, padded(rows), method="mean", reference=REFERENCE, metric="kl"
    ),
    "ablate per position": lambda model, rows: ablate(
        model, padded(rows), reference=REFERENCE, per_position=True, metric=METRIC, units="layers"
    ),
    "direct_logit_attribution": lambda model, rows: direct_logit_attribution(
        model, padded(rows), target=3, distractor=5
    ),
    "patch_paths": lambda model, rows: patch_paths(
        model, padded(rows), into="logits", method="zero", metric=METRIC
    ),
}
OF_PAIRS = {
    "attribute_edges": lambda model, pairs: attribute_edges(model, *sides(pairs), metric=METRIC),
    "attribute_nodes": lambda model, pairs: attribute_nodes(model, *sides(pairs), metric=METRIC),
    "patch_activations": lambda model, pairs: patch_activations(
        model, *sides(pairs), metric=METRIC, over=("layer", "pos")
    ),
    "patch_paths of pairs": lambda model, pairs: patch_paths(
        model, *sides(pairs), into="logits", metric=METRIC
    ),
}
EVERY = {
    **{name: (analysis, ROWS) for name, analysis in OF_ROWS.items()},
    **{name: (analysis, PAIRS) for name, analysis in OF_PAIRS.items()},
}


COLUMNS = ("effect", "low", "high", "size", "share", "n", "p", "q")


def by_label(frame, labels):
    return frame.set_index(frame[labels].map(str).agg(" ".join, axis=1)).sort_index()


def assert_same_tables(actual, expected):
    """The numbers of both, by the labels of their rows."""
    labels = [
        name
        for name in expected
        if name in actual and name not in COLUMNS and expected[name].dtype.kind not in "fb"
    ]
    same = [name for name in COLUMNS if name in expected and name in actual]
    assert {*COLUMNS} - {*same} <= {"share"}
    pd.testing.assert_frame_equal(
        by_label(actual, labels)[same],
        by_label(expected, labels)[same],
        check_dtype=False,
        rtol=1e-9,
        atol=1e-11,
    )


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *((name, SIZE) for name in EVERY),
        *((name, size) for name in ("ablate_heads", "patch_activations") for size in (1, 100)),
    ],
)
def test_means_and_intervals_are_those_of_all_prompts(tmp_path, name, size):
    """In parts of any size; the numbers of each prompt are in the files."""
    analysis, items = EVERY[name]
    model = build("gpt2")
    expected = analysis(model, items)
    parts = run_in_parts(model, iter(items), analysis, tmp_path / "numbers", size=size)
    assert (parts.n_prompts, parts.analysis) == (len(items), type(expected).__name__)
    assert_same_tables(parts.to_frame(), expected.to_frame())
    written = pd.read_parquet(tmp_path / "numbers")
    assert written["prompt"].nunique() == len(items)
    assert len([*(tmp_path / "numbers").glob("*.parquet")]) == -(-len(items) // size)
    whole = expected.to_prompt_frame()
    tokens = {"token", "name"} if "token" in whole else set()  # those that all prompts have
    keys = [name for name in whole if whole[name].dtype.kind != "f" and name not in tokens]
    numbers = [name for name in whole if name not in {*keys, *tokens, "control"}]
    pd.testing.assert_frame_equal(
        written.sort_values(keys, ignore_index=True)[[*keys, *numbers]],
        whole.sort_values(keys, ignore_index=True)[[*keys, *numbers]],
        check_dtype=False,
        rtol=1e-9,
        atol=1e-11,
    )


def test_statistics_of_attention_are_those_of_all_prompts(tmp_path):
    """Of which a prompt may have no value."""
    model = build("gpt2")

    def statistics(model, rows):
        return attention_statistics(model, padded(rows), offsets=4)

    expected = statistics(model, ROWS).to_frame().set_index(["name", "statistic", "weighting"])
    parts = run_in_parts(model, ROWS, statistics, tmp_path / "numbers", size=SIZE)
    actual = parts.to_frame().set_index(["name", "statistic", "weighting"])
    assert expected["n"].nunique() > 1
    for ours, theirs in {"value": "mean", "low": "low", "high": "high", "n": "n"}.items():
        pd.testing.assert_series_equal(
            actual[ours].sort_index(),
            expected[theirs].sort_index(),
            check_names=False,
            rtol=1e-9,
            atol=1e-11,
        )


def test_other_columns_can_be_averaged(tmp_path):
    parts = run_in_parts(
        build("gpt2"), ROWS, zeroed, tmp_path / "numbers", column="ablated", size=SIZE
    )
    expected = zeroed(build("gpt2"), ROWS)
    by_name = parts.to_frame().set_index("name")["ablated"]
    for name, mean in zip(
        expected.cells["name"], expected.ablated.flatten(0, 1).mean(-1), strict=True
    ):
        assert by_name[name] == pytest.approx(float(mean), abs=1e-12)


def test_a_cell_without_a_number_on_some_prompt_has_no_mean(tmp_path):
    """As in one call; the others keep theirs."""

    def broken(model, rows):
        result = zeroed(model, rows)
        ablated = result.ablated.clone()
        if rows[0] == ROWS[0]:
            ablated[0, 1, 0] = torch.nan
        return replace(result, ablated=ablated)

    parts = run_in_parts(build("gpt2"), ROWS, broken, tmp_path / "numbers", size=SIZE)
    assert_same_tables(parts.to_frame(), broken(build("gpt2"), ROWS).to_frame())
    effects = parts.to_frame().set_index("name")["effect"]
    assert [name for name in effects.index if effects.isna()[name]] == ["L0H1"]


def test_no_more_prompts_are_in_memory_than_those_of_a_part(tmp_path):
    alive, most = weakref.WeakSet(), []

    class Row(list):
        __hash__ = object.__hash__

    def rows():
        for row in ROWS:
            item = Row(row)
            alive.add(item)
            yield item

    def counting(model, part):
        most.append(len(alive))
        return zeroed(model, part)

    run_in_parts(build("gpt2"), rows(), counting, tmp_path / "numbers", size=2)
    assert most[0] == 2
    assert max(most) <= 4


# ---- stopped calls ------------------------------------------------------------------------------


def stopped(rows, after):
    yield from rows[:after]
    raise KeyboardInterrupt


@pytest.fixture
def half(tmp_path):
    """A folder with the first two parts of four rows each."""
    folder = tmp_path / "numbers"
    with pytest.raises(KeyboardInterrupt):
        run_in_parts(build("gpt2"), stopped(ROWS, 9), zeroed, folder, size=SIZE)
    assert len([*folder.glob("*.parquet")]) == 2
    return folder


def files_of(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_resumed_call_has_the_bytes_of_one_that_was_not_stopped(tmp_path, half):
    """And computes only the first part again."""
    seen = []

    def counting(model, rows):
        seen.append(rows[0])
        return zeroed(model, rows)

    resumed = run_in_parts(build("gpt2"), ROWS, counting, half, size=SIZE, resume=True)
    whole = run_in_parts(build("gpt2"), ROWS, zeroed, tmp_path / "whole", size=SIZE)
    assert seen == [ROWS[0], ROWS[8]]
    assert files_of(half) == files_of(tmp_path / "whole")
    pd.testing.assert_frame_equal(resumed.to_frame(), whole.to_frame(), check_exact=True)
    again = run_in_parts(build("gpt2"), ROWS, zeroed, half, size=SIZE, resume=True)
    pd.testing.assert_frame_equal(again.to_frame(), whole.to_frame(), check_exact=True)


def of_another_metric(model, rows):
    return ablate_heads(model, padded(rows), metric=logit(3), method="zero")


def of_attention(model, rows):
    return attention_statistics(model, padded(rows))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"analysis": of_another_metric}, "numbers of another call"),
        ({"analysis": of_attention}, r"another call \(analysis, seed differ"),
        ({"model": build("llama")}, r"another call \(config, weights differ"),
        ({"prompts": ROWS[1:]}, "numbers of other prompts"),
        ({"prompts": [*ROWS[:4], *ROWS[5:]]}, "numbers of other prompts"),
        ({"prompts": ROWS[:4]}, "numbers of more prompts than were given"),
        ({"size": 3}, "4 prompts each, not 3"),
        ({"resume": False}, "has files already"),
    ],
)
def test_what_is_not_the_same_call_is_refused(half, changed, message):
    before = files_of(half)
    call = {"model": build("gpt2"), "prompts": ROWS, "analysis": zeroed, "folder": half}
    with pytest.raises(InvalidInput, match=message):
        run_in_parts(**{**call, "size": SIZE, "resume": True, **changed})
    assert files_of(half) == before


def test_damaged_files_are_refused(half):
    call = (build("gpt2"), ROWS, zeroed, half)
    first = min(half.glob("*.parquet"))
    content = first.read_bytes()
    first.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InvalidInput, match="is damaged"):
        run_in_parts(*call, size=SIZE, resume=True)
    first.unlink()
    with pytest.raises(InvalidInput, match="can't be read"):
        run_in_parts(*call, size=SIZE, resume=True)
    first.write_bytes(content)
    index = half / "_parts.json"
    for text in ("{}", "[", json.dumps({"size": "4", "depends": {}, "parts": []})):
        index.write_text(text, encoding="utf-8")
        with pytest.raises(InvalidInput, match="so nothing can be resumed"):
            run_in_parts(*call, size=SIZE, resume=True)


# ---- what can't be run in parts -----------------------------------------------------------------


def fitted(model, rows):
    return probe(model, padded(rows), ["a", "b"] * (len(rows) // 2), folds=2)


@pytest.mark.parametrize(
    ("analysis", "message"),
    [
        (lambda model, rows: ablate(model, padded(rows), metric=METRIC), "give reference="),
        (
            lambda model, rows: ablate(model, padded(rows), metric=METRIC, method="resample"),
            "depend on the other prompts",
        ),
        (
            lambda model, rows: patch_paths(
                model, padded(rows), into="logits", metric=METRIC, method="mean"
            ),
            "depend on the other prompts",
        ),
        (fitted, "Probe depend on the other prompts"),
        (
            lambda model, rows: logit_lens(model, padded(rows)),
            r"\(to_prompt_frame\); got LogitLens",
        ),
        (lambda *_: 3, "got int"),
    ],
)
def test_numbers_that_depend_on_other_prompts_are_refused(tmp_path, analysis, message):
    with pytest.raises(InvalidInput, match=message):
        run_in_parts(build("gpt2"), ROWS, analysis, tmp_path / "numbers", size=SIZE)
    assert [*(tmp_path / "numbers").iterdir()] == []


def test_numbers_of_each_prompt_need_not_be_written(tmp_path):
    parts = run_in_parts(build("gpt2"), ROWS, zeroed, size=SIZE)
    written = run_in_parts(build("gpt2"), ROWS, zeroed, tmp_path / "numbers", size=SIZE)
    pd.testing.assert_frame_equal(parts.to_frame(), written.to_frame(), check_exact=True)
    assert (parts.folder, written.folder) == (None, str(tmp_path / "numbers"))
    with pytest.raises(InvalidInput, match="resume=True continues with the parts in a folder="):
        run_in_parts(build("gpt2"), ROWS, zeroed, size=SIZE, resume=True)


def test_what_can_not_be_read_or_written_is_refused(tmp_path):
    model, refused = build("gpt2"), iter(ROWS)
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    for folder in (file, tmp_path / "a" / "b"):
        with pytest.raises(InvalidInput, match="can't be used"):
            run_in_parts(model, refused, zeroed, folder)
    assert next(refused) == ROWS[0]
    with pytest.raises(InvalidInput, match="There are no prompts"):
        run_in_parts(model, [], zeroed, tmp_path / "none")
    with pytest.raises(InvalidInput, match="an iterable of prompts"):
        run_in_parts(model, "a text", zeroed, tmp_path / "text")


def test_a_full_disk_is_an_error(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(import_module("analyses.run_in_parts.written_parts"), "write_whole", full)
    with pytest.raises(OutOfResources, match="No space left"):
        run_in_parts(build("gpt2"), ROWS, zeroed, tmp_path / "numbers")


# ---- files --------------------------------------------------------------------------------------


def test_the_texts_of_a_file_are_passed_on(tmp_path):
    """With progress, whose total is the number of prompts."""
    model, seen, progress = interp.load("induction-by-hand"), [], []
    file = tmp_path / "texts.txt"
    file.write_text("abcabc\nxyzxyz\nabab\n", encoding="utf-8")

    def listed(model, texts):
        seen.append(texts)
        return ablate_heads(model, texts, method="zero")

    parts = run_in_parts(
        model,
        Path(file),
        listed,
        tmp_path / "numbers",
        size=2,
        progress=lambda *done: progress.append(done),
    )
    assert seen == [["abcabc", "xyzxyz"], ["abab"]]
    assert progress == [(2, 3), (3, 3)]
    assert parts.summary().splitlines()[0].startswith("Ablation of 3 prompts; largest effect of 8")
    assert str(tmp_path / "numbers") in parts.summary()


def of_tensors(model, rows):
    return ablate_heads(model, torch.stack(rows), metric="kl", method="zero")


DECLARED = Declared(
    analysis=run_in_parts,
    made=Made(lambda: run_in_parts(build("gpt2"), ROWS, zeroed, size=SIZE)),
    call=Call(
        (small.MODEL, small.CLEAN),
        {"analysis": of_tensors},
        {
            "analysis": (*odd.SOMETHING, odd.NOTHING, lambda *_: 3),
            "column": (odd.BELOW, odd.BROKEN, odd.LISTED, {}),
            "folder": (odd.BELOW, odd.LISTED),
            "size": odd.COUNT,
            "resume": odd.SWITCH,
        },
    ),
    command=Without("commands have it as --per-prompt"),
    of_each_prompt=Without("its numbers are those of the analysis that it is given"),
    of_each_pair=Without("its numbers are those of the analysis that it is given"),
    symmetric=Symmetric(
        {"": lambda case: run_in_parts(case.model, case.clean, of_tensors, size=2)}
    ),
)
