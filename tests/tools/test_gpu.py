"""The GPU command: it measures every part, accounts for every test, and never passes off a CPU."""

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from benchmarks.precision import PRECISIONS, matmul_precision
from benchmarks.table import Mark, Row
from benchmarks.timing import Absent
from tools.gpu import __main__ as command
from tools.gpu import hypothesis_stand_in, markdown
from tools.gpu.marked_tests import Failure, TestReport, marked_files, run_marked_tests
from tools.gpu.measurement import Measurement, relative_difference
from tools.gpu.report import Report, read_report

PARTS = [name for name in command.NAMES if name not in ("tests", "compiled")]
DRY = ["--device", "cpu", "--quick"]
CUDA = {
    "type": "cuda",
    "name": "Test GPU",
    "memory bytes": 80 * 2**30,
    "compute capability": "9.0",
    "multiprocessors": 132,
    "driver": "580.1",
    "cuda": "13.0",
    "cudnn": 91000,
}


def run(out, *more):
    return command.main([*DRY, "--out", str(out), *more])


@pytest.fixture(scope="module")
def dry_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("gpu")
    before = torch.get_float32_matmul_precision()
    assert run(out, "--only", ",".join(PARTS)) == command.GOOD
    assert torch.get_float32_matmul_precision() == before
    return out


@pytest.fixture
def report(dry_run):
    return read_report(dry_run / "gpu.json")


@pytest.fixture
def on_cuda(report):
    """The same report, as if a GPU had been measured."""
    return replace(report, device=CUDA, quick=False)


# ---- a dry run -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_part_gives_rows_at_its_precisions(report):
    measured = {(m.row.section, m.precision) for m in report.measurements}
    names = {precision.name for precision in PRECISIONS}
    for part in ("agreement", "heads", "forward"):
        assert {precision for section, precision in measured if section == part} == names
    assert {section for section, _ in measured} == set(PARTS)


@pytest.mark.slow
def test_each_row_is_measured_or_has_a_reason(report):
    assert all(m.row.ours is not None or m.row.why for m in report.measurements)
    unmeasured = {m.row.section for m in report.measurements if m.row.why}
    assert unmeasured == {"waits", "profile"}


@pytest.mark.slow
def test_both_libraries_compute_the_same_values(report):
    compared = [m for m in report.measurements if m.difference is not None]
    assert {m.row.section for m in compared} == {"agreement", "heads"}
    assert all(m.agrees for m in compared)


@pytest.mark.slow
def test_a_tiny_model_is_judged_by_no_mark(report):
    marked = [m for m in report.measurements if m.row.mark]
    assert {15.0, 8.0, 3.5, 4.0, 1.0} <= {m.row.mark.bound for m in marked}
    assert all(m.verdict.startswith("not judged") for m in marked)


@pytest.mark.slow
def test_rows_have_the_fields_that_readers_need(dry_run):
    data = json.loads((dry_run / "gpu.json").read_text(encoding="utf-8"))
    fields = {"work", "precision", "ours", "theirs", "ratio", "mark", "holds", "rounds"}
    assert all(fields <= set(row) for row in data["rows"])
    assert data["complete"]
    assert {"torch", "transformers", "commit", "date"} <= set(data["software"])
    assert set(data["kernels"]) == {precision.name for precision in PRECISIONS}


@pytest.mark.slow
def test_the_operations_of_each_work_are_written(dry_run):
    assert len(list(dry_run.glob("profile-*.txt"))) == 3


@pytest.mark.slow
def test_a_dry_run_is_marked_in_the_first_line(dry_run, report):
    assert "not a measurement of a GPU" in report.to_dict()["kind"]
    first = (dry_run / "gpu.md").read_text(encoding="utf-8").splitlines()[0]
    assert "not a measurement of a GPU" in first


# ---- what goes wrong -----------------------------------------------------------------------------


def test_without_cuda_nothing_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main(["--out", str(tmp_path / "out")]) == command.NO_CUDA
    assert "no CUDA device" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "--out a --from b",
        "--out a --device cpu",
        "--out a --device cpu --quick --docs",
        "--out a --device cpu --quick --only nothing",
        "--from /does/not/exist.json",
        "--from pyproject.toml",
    ],
)
def test_wrong_input_is_refused(wrong, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(wrong.split())
    assert stopped.value.code == 2
    assert "error:" in capsys.readouterr().err


def with_parts(monkeypatch, **parts):
    """The command with these parts alone, at one precision."""
    steps = [command.Step(name, part, PRECISIONS[0]) for name, part in parts.items()]
    monkeypatch.setattr(command, "steps", lambda folder: steps)
    monkeypatch.setattr(command, "NAMES", tuple(parts))


def measured(bench, precision):
    yield Measurement(precision=precision.name, row=Row(section="s", work="w", kernel="k", ours=1))


def raising(error):
    def part(bench, precision):
        yield from measured(bench, precision)
        raise error

    return part


def test_a_part_that_raises_is_a_row_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    with_parts(monkeypatch, broken=raising(RuntimeError("CUDA error: misaligned")), sound=measured)
    assert run(tmp_path) == command.NOT_GOOD
    report = read_report(tmp_path / "gpu.json")
    assert [m.verdict for m in report.measurements] == [
        "",
        "not measured: RuntimeError: CUDA error: misaligned",
        "",
    ]
    assert "misaligned" in report.errors[0]
    assert "CUDA error: misaligned" in capsys.readouterr().out


def test_a_run_that_is_killed_leaves_what_it_measured(tmp_path, monkeypatch):
    with_parts(monkeypatch, sound=measured, killed=raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    report = read_report(tmp_path / "gpu.json")
    assert len(report.measurements) == 2
    assert not report.is_complete
    assert "stopped before its end" in (tmp_path / "gpu.md").read_text(encoding="utf-8")


def test_parts_beyond_the_time_are_named(tmp_path, monkeypatch):
    with_parts(monkeypatch, one=measured, two=measured)
    assert run(tmp_path, "--seconds", "0") == command.NOT_GOOD
    report = read_report(tmp_path / "gpu.json")
    verdicts = {m.row.section: m.verdict for m in report.measurements}
    assert verdicts == dict.fromkeys(("one", "two"), "not measured: the time was up")


def test_what_cannot_be_compiled_is_a_row(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", refuse)
    assert run(tmp_path, "--only", "compiled") == command.GOOD
    rows = read_report(tmp_path / "gpu.json").measurements
    assert len(rows) == 2
    assert all("RuntimeError: no compiler" in m.verdict for m in rows)


def test_values_that_differ_miss_whatever_the_ratio():
    row = Row(section="s", work="w", kernel="k", ratio=0.01, mark=Mark(15, times_less=True))
    same = Measurement(precision="float32", row=row, difference=1e-6, tolerance=1e-5)
    assert same.holds
    for difference in (1e-4, float("nan"), float("inf")):
        other = replace(same, difference=difference)
        assert other.holds is False
        assert "differ" in other.verdict
        assert other.to_dict() == Measurement.from_dict(other.to_dict()).to_dict()


def test_a_difference_is_relative_to_the_largest_value():
    assert relative_difference(torch.tensor([1.0, 4.0]), torch.tensor([1.5, 4.0])) == 0.125


@pytest.mark.parametrize("setting", ["high", "highest"])
def test_a_precision_is_restored(setting):
    before = torch.get_float32_matmul_precision()

    def interrupted():
        with matmul_precision(setting):
            assert torch.get_float32_matmul_precision() == setting
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert torch.get_float32_matmul_precision() == before


# ---- the marked tests ----------------------------------------------------------------------------

SOURCE = """
import pytest
from hypothesis import given

pytestmark = pytest.mark.gpu

def test_passes(): pass
def test_fails(): assert 1 + 1 == 3
@pytest.mark.skip(reason="too small")
def test_is_skipped(): pass
@pytest.fixture
def broken(): raise ValueError("no fixture")
def test_has_a_broken_fixture(broken): pass
"""
LEFT_OUT = """
def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if "left_out" not in item.name]
"""


@pytest.fixture(scope="module")
def tests(tmp_path_factory):
    """What became of the marked tests of a small project."""
    root = tmp_path_factory.mktemp("project")
    folder = root / "tests" / "room"
    folder.mkdir(parents=True)
    for name, text in {
        "conftest.py": LEFT_OUT,
        "test_all.py": SOURCE,
        "test_import.py": "import pytest, not_installed\n@pytest.mark.gpu\ndef test_it(): pass",
        "test_named.py": "# mark.gpu is only named here\ndef test_it(): assert False",
        "test_none.py": "import pytest\nunused = pytest.mark.gpu\ndef test_it(): assert False",
        "test_some.py": "import pytest\n@pytest.mark.gpu\ndef test_left_out(): pass",
        "test_unmarked.py": "def test_it(): assert False",
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    return run_marked_tests(root, root / "tests.log", limit=100, why_not_run="there is no device")


def names(failures):
    return sorted(failure.name.removeprefix("tests/room/") for failure in failures)


@pytest.mark.slow
def test_every_marked_test_is_accounted_for(tests):
    assert (tests.collected, tests.passed) == (5, 1)
    assert names(tests.failed) == [
        "test_all.py::test_fails",
        "test_all.py::test_has_a_broken_fixture",
    ]
    assert names(tests.skipped) == ["test_all.py::test_is_skipped"]
    assert tests.not_run == ("tests/room/test_some.py::test_left_out",)
    assert names(tests.not_collected) == ["test_import.py", "test_none.py"]
    assert not tests.all_collected
    assert tests.summary() == (
        "5 GPU-marked tests: 1 passed, 2 failed, 1 skipped, 1 not run (there is no device), "
        "2 files not collected"
    )


@pytest.mark.slow
def test_failures_keep_their_reasons(tests):
    texts = {failure.name.rpartition("/")[2]: failure.text for failure in tests.failed}
    assert "assert (1 + 1) == 3" in texts["test_all.py::test_fails"]
    assert "no fixture" in texts["test_all.py::test_has_a_broken_fixture"]
    (skipped,) = tests.skipped
    assert "too small" in skipped.text
    assert any("not_installed" in failure.text for failure in tests.not_collected)


@pytest.mark.slow
def test_a_failed_test_is_shown(on_cuda, tests):
    page = markdown.to_markdown(replace(on_cuda, tests=tests))
    assert tests.summary() in page
    assert "- failed: `tests/room/test_all.py::test_fails`: assert (1 + 1) == 3" in page
    assert "- not collected: `tests/room/test_import.py`: ModuleNotFoundError" in page
    assert "too small" in page
    assert not replace(on_cuda, tests=tests).is_good


@pytest.mark.slow
def test_a_run_is_good_only_if_all_tests_passed(on_cuda):
    passed = TestReport(collected=3, passed=3)
    for tests, good in (
        (passed, True),
        (replace(passed, passed=2, not_run=("a",)), False),
        (replace(passed, not_collected=(Failure("f", ""),)), False),
        (replace(passed, stopped="stopped after 9 s"), False),
        (TestReport(), False),
    ):
        assert replace(on_cuda, tests=tests).is_good == good


@pytest.mark.parametrize("hangs", [False, True])
def test_tests_that_end_early_are_counted(tmp_path, monkeypatch, hangs):
    """A process that dies, as after a fault of the device, and one that is stopped."""
    (tmp_path / "tests").mkdir()
    text = "import os, pytest\npytestmark = pytest.mark.gpu\ndef test_a(): pass\n"
    text += "def test_b(): os._exit(9)\n"
    (tmp_path / "tests" / "test_fault.py").write_text(text, encoding="utf-8")
    really_run = subprocess.run

    def run_too_long(command, timeout, **settings):
        really_run(command, **settings)
        raise subprocess.TimeoutExpired(command, timeout)

    if hangs:
        monkeypatch.setattr(subprocess, "run", run_too_long)
    tests = run_marked_tests(tmp_path, tmp_path / "tests.log", limit=99, why_not_run="")
    assert (tests.collected, tests.passed) == (2, 1)
    assert tests.not_run == ("tests/test_fault.py::test_b",)
    expected = "stopped after 99 s" if hangs else "pytest ended with code 9; see tests.log"
    assert tests.why_not_run == tests.stopped == expected


def test_the_tests_of_this_project_are_found():
    names = [file.name for file in marked_files(command.ROOT)]
    assert len(names) >= 5
    assert "test_gpu.py" not in names  # it only writes such tests


def test_modules_that_import_hypothesis_can_be_imported_without_it(monkeypatch):
    for name in ("hypothesis", "hypothesis.strategies"):
        monkeypatch.setitem(sys.modules, name, None)
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        assert hypothesis_stand_in.install()
    # Torch looks for it once more, when it compiles: a module without a spec would be an error.
    assert importlib.util.find_spec("hypothesis") is not None
    namespace = {}
    exec(
        "from hypothesis import assume, given, settings, strategies as st\n"
        "settings.register_profile('p', derandomize=True)\n"
        "@st.composite\n"
        "def pairs(draw): return draw(st.integers(0, 3) | st.none())\n"
        "@settings(max_examples=4)\n"
        "@given(st.lists(pairs(), min_size=1).map(sorted))\n"
        "def test_drawn(x): pass\n"
        "def test_plain(): pass\n",
        namespace,
    )
    (mark,) = namespace["test_drawn"].pytestmark
    assert mark.name == "skip"
    assert "hypothesis" in mark.kwargs["reason"]
    assert not hasattr(namespace["test_plain"], "pytestmark")


# ---- docs/reference/gpu.md -----------------------------------------------------------------------


@pytest.fixture
def document(tmp_path, monkeypatch):
    path = tmp_path / "gpu.md"
    begin, end = markdown.MARKERS
    path.write_text(f"before\n{begin}\n{markdown.NOT_RUN}\n{end}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(command, "DOCUMENT", path)
    return path


@pytest.mark.slow
def test_a_run_on_a_cpu_never_writes_the_document(dry_run, report, document, capsys):
    before = document.read_text(encoding="utf-8")
    for mistaken in (report, replace(report, quick=False), replace(report, device=CUDA)):
        with pytest.raises(Absent, match="not a measurement of a GPU"):
            markdown.write_document(mistaken, document)
    with pytest.raises(SystemExit) as stopped:
        command.main(["--from", str(dry_run / "gpu.json"), "--docs"])
    assert stopped.value.code == 2
    assert document.read_text(encoding="utf-8") == before


@pytest.mark.slow
def test_a_run_on_a_gpu_writes_its_table(on_cuda, document, tmp_path):
    on_cuda.save(tmp_path / "gpu.json")
    assert command.main(["--from", str(tmp_path / "gpu.json"), "--docs"]) == command.GOOD
    text = document.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "**Test GPU** (80 GiB, compute capability 9.0), driver 580.1, CUDA 13.0" in text
    assert "| work | precision |" in text
    assert "TF32" in text
    assert markdown.NOT_RUN not in text
    assert command.main(["--from", str(tmp_path / "gpu.json"), "--docs"]) == command.GOOD
    assert document.read_text(encoding="utf-8") == text


@pytest.mark.slow
def test_the_document_names_a_run_that_stopped_early(on_cuda, document):
    markdown.write_document(replace(on_cuda, is_complete=False), document)
    assert "The run stopped before its end" in document.read_text(encoding="utf-8")


@pytest.mark.slow
def test_text_of_an_error_stays_in_its_cell(on_cuda):
    row = Row(section="s", work="w", kernel="k", why="a | b\n<img src=x>")
    broken = Report(CUDA, on_cuda.software, quick=False)
    broken.measurements.append(Measurement(precision="float32", row=row))
    (line,) = [line for line in markdown.to_markdown(broken).splitlines() if "| w |" in line]
    assert line.count("|") == len(markdown.COLUMNS) + 1
    assert "<img" not in line


def test_the_projects_document_is_ready():
    text = markdown.DOCUMENT.read_text(encoding="utf-8")
    begin, end = markdown.MARKERS
    figures = text[text.index(begin) : text.index(end)]
    assert (markdown.NOT_RUN in figures) != ("Measured on one" in figures)


@pytest.mark.slow
def test_it_needs_few_packages():
    """Neither a page nor a plot nor a command line is imported, nor another library of hooks."""
    unwanted = ["plotly", "streamlit", "typer", "rich", "jinja2", "pyarrow", "hypothesis"]
    unwanted += ["beartype", "transformer_lens", "nnsight"]
    code = f"import sys, tools.gpu.__main__; print({set(unwanted)} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
