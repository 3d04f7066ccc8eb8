"""``interp doctor`` on machines of all kinds: what is found, what is to be done, how it exits."""

import json
import os
import warnings
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from tables import each

from apps import doctor
from apps.doctor import compute, places, software
from apps.doctor.compute import Gpu
from apps.doctor.finding import SYMBOLS, Finding, Mark, as_expected, failure, warning
from apps.doctor.software import Needed
from interp.loading import MODEL_FOLDER, bundled
from interp.loading.checksums import SUMS, damaged

GIB = 2**30
H100 = Gpu("NVIDIA H100", 70 * GIB, 80 * GIB)


def test_this_machine_is_usable(command):
    """The tests run here; every check was made and none raised."""
    done = command("doctor", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["usable"]
    names = [check["check"] for check in report["checks"]]
    assert len(set(names)) == len(names)
    for name in (
        "Python",
        "interp",
        "torch",
        "threads",
        "attention",
        "products",
        "GPU",
        "Chromium",
    ):
        assert name in names
    assert not [
        check for check in report["checks"] if check["found"].startswith("the check failed")
    ]
    assert all(bool(check["advice"]) == (check["mark"] != "ok") for check in report["checks"])


@each(
    ("findings", "code"),
    [
        ([as_expected("a", "fine")], 0),
        ([as_expected("a", "fine"), warning("b", "slow", "wait")], 0),
        ([warning("b", "slow", "wait"), failure("c", "gone", "install it")], 1),
    ],
)
def test_only_what_makes_it_unusable_changes_the_exit_code(command, monkeypatch, findings, code):
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    for words in ((), ("--json",)):
        done = command("doctor", *words)
        assert done.exit_code == code
        for finding in findings:
            assert finding.found in done.stdout
            assert finding.advice in done.stdout
    assert json.loads(done.stdout)["usable"] == (code == 0)
    lines = command("doctor").stdout.splitlines()
    assert [line[0] for line in lines if line[0] in SYMBOLS.values()] == [
        SYMBOLS[finding.mark] for finding in findings
    ]


def test_a_check_that_raises_is_reported_and_the_others_are_made():
    def broken():
        yield as_expected("first", "fine")
        raise KeyError("no such thing")

    findings = list(doctor.run_checks({"a": broken, "b": lambda: [as_expected("last", "fine")]}))
    assert [finding.check for finding in findings] == ["first", "a", "last"]
    assert findings[1].mark is Mark.WARNING
    assert "KeyError: 'no such thing'" in findings[1].found


def test_without_torch_the_rest_is_checked(monkeypatch):
    monkeypatch.setattr(
        compute, "import_failure", lambda: failure("torch", "not there", "install it")
    )
    marks = {finding.check: finding.mark for finding in doctor.examine()}
    assert "Chromium" in marks
    assert "threads" not in marks
    assert Mark.FAILURE in marks.values()


def test_torch_that_can_not_be_imported_is_a_failure(monkeypatch):
    assert compute.import_failure() is None
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    finding = compute.import_failure()
    assert finding is not None
    assert finding.mark is Mark.FAILURE
    assert "pip install" in finding.advice


@each(
    ("installed", "mark"),
    [("2.9", Mark.OK), ("2.10.1+cpu", Mark.OK), ("2.8.1", Mark.WARNING), ("3.0", Mark.WARNING)],
)
def test_a_version_outside_the_declared_range_is_named(installed, mark):
    (finding,) = software.packages([Needed(Requirement("torch>=2.9,<3"), installed)])
    assert finding.mark is mark
    assert installed in finding.found
    if mark is Mark.WARNING:
        assert finding.advice in ('pip install "torch<3,>=2.9"', 'pip install "torch>=2.9,<3"')


def test_a_missing_package_is_a_failure_and_the_others_share_a_line():
    needed = [
        Needed(Requirement("einops>=0.8"), "0.8.1"),
        Needed(Requirement("rich>=13"), None),
        Needed(Requirement("jinja2>=3"), "3.1"),
    ]
    missing, others = software.packages(needed)
    assert (missing.check, missing.mark) == ("rich", Mark.FAILURE)
    assert others.found == "einops 0.8.1, jinja2 3.1"


def test_requirements_of_extras_are_not_needed():
    names = {requirement.name for requirement in software.needed()}
    assert {"torch", "streamlit"} <= names
    assert not {"pytest", "transformer-lens"} & names


@pytest.mark.parametrize(
    ("files", "hiding"),
    [
        ([], []),
        (["apps/__init__.py"], ["apps"]),
        (["analyses.py", "apps/__init__.py"], ["apps", "analyses.py"]),
        (["apps/other.py", "analyses/notes.txt"], []),  # without __init__.py, Python looks further
    ],
)
def test_packages_that_hide_ours_in_a_folder_are_named(tmp_path, files, hiding):
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    finding = software.hidden_packages(tmp_path)
    assert (finding.mark is Mark.WARNING) == bool(hiding)
    assert software.hiding_in(tmp_path, software.PACKAGES) == [tmp_path / name for name in hiding]
    for name in hiding:
        assert str(tmp_path / name) in finding.found


def test_our_own_folder_hides_nothing():
    assert software.hidden_packages(software.HERE).mark is Mark.OK


def test_a_package_before_ours_on_the_path_is_a_failure(tmp_path, monkeypatch):
    def hidden():
        raise ImportError("apps of another project comes first")

    monkeypatch.setattr(software, "check_packages", hidden)
    assert software.hidden_packages(tmp_path).mark is Mark.FAILURE


@each(
    ("used", "cores", "setting", "advice"),
    [
        (8, 8, None, ""),
        (4, 8, None, ""),  # one of the two hardware threads of each core
        (1, 1, "1", ""),
        (8, 2, None, "set OMP_NUM_THREADS=2"),
        (1, 8, "1", "Unset OMP_NUM_THREADS"),
        (1, 8, None, "Set OMP_NUM_THREADS=8"),
    ],
)
def test_threads_and_cores(used, cores, setting, advice):
    finding = compute.threads(used, cores, setting)
    assert (finding.mark is Mark.OK) == (not advice)
    assert advice in finding.advice
    assert str(used) in finding.found
    assert str(cores) in finding.found


@pytest.mark.parametrize(
    ("content", "cores"),
    [("max 100000\n", None), ("150000 100000\n", 1.5), ("", None), ("what\n", None), (None, None)],
)
def test_the_quota_of_a_container(tmp_path, content, cores):
    file = tmp_path / "cpu.max"
    if content is not None:
        file.write_text(content)
    assert compute.quota(file) == cores


@each(("quota", "cores"), [(None, 4), (1.5, 2), (0.2, 1), (64.0, 4)])
def test_usable_cores_are_those_of_the_quota_if_fewer(monkeypatch, quota, cores):
    monkeypatch.setattr(compute, "quota", lambda _: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    assert compute.usable_cores() == cores


@each(
    ("capability", "machine", "mark"),
    [
        ("AVX512", "x86_64", Mark.OK),
        ("DEFAULT", "x86_64", Mark.WARNING),
        ("DEFAULT", "arm64", Mark.OK),  # NEON, which every such processor has
    ],
)
def test_vector_instructions(capability, machine, mark):
    finding = compute.instructions(capability, machine)
    assert finding.mark is mark
    assert machine in finding.found


def test_kernels():
    assert compute.attention(["flash"]).mark is Mark.OK
    assert compute.attention([]).mark is Mark.WARNING
    with_all = compute.products(has_onednn=True, has_packed=True)
    without_operation = compute.products(has_onednn=True, has_packed=False)
    without_onednn = compute.products(has_onednn=False, has_packed=False)
    assert with_all.mark is Mark.OK
    assert "lacks the operation" in without_operation.found
    assert "lacks oneDNN" in without_onednn.found
    assert without_onednn.mark is without_operation.mark is Mark.WARNING


@each(
    ("setting", "variable", "advice"),
    [
        ("none", None, ""),
        ("ieee", None, ""),
        ("tf32", None, "set_float32_matmul_precision"),
        ("tf32", "1", "Unset TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
    ],
)
def test_rounded_products_are_named(setting, variable, advice):
    finding = compute.precision(setting, variable)
    assert (finding.mark is Mark.OK) == (not advice)
    assert advice in finding.advice


@each(
    ("gpus", "build", "driver", "mark", "words"),
    [
        ([], None, None, Mark.OK, "none found"),
        ([], "12.8", None, Mark.OK, "none found"),
        ([], None, "550.54", Mark.WARNING, "built for CPUs only"),
        ([], "12.8", "470.1", Mark.WARNING, "driver too old"),
        (
            [H100],
            "12.8",
            "550.54",
            Mark.OK,
            "NVIDIA H100 (70 of 80 GiB free), torch built for 12.8",
        ),
        ([H100, H100], "6.4", None, Mark.OK, "NVIDIA H100 (70 of 80 GiB free), NVIDIA H100"),
    ],
)
def test_gpus(gpus, build, driver, mark, words):
    finding = compute.gpu(gpus, build, driver, "driver too old")
    assert finding.mark is mark
    assert words in finding.found
    if driver is not None:
        assert driver in finding.found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n", "550.54.15"),
        ("NVRM version: something else\n", "unknown"),
        (None, None),
    ],
)
def test_the_version_of_the_driver(tmp_path, text, expected):
    file = tmp_path / "version"
    if text is not None:
        file.write_text(text)
    assert compute.driver(file) == expected


def test_little_memory_and_disk():
    assert places.memory(64 * GIB).mark is Mark.OK
    assert places.memory(GIB).mark is Mark.WARNING


def test_the_budget_of_the_explorer_is_a_quarter_of_the_free_memory_or_what_is_set():
    assert places.explorer(8 * GIB, None).found.startswith("keeps up to 2.0 GiB, a quarter")
    limited = places.explorer(8 * GIB, "3GB")
    assert (limited.mark, limited.found[:19]) == (Mark.OK, "keeps up to 2.8 GiB")
    assert "more than is free" in places.explorer(2 * GIB, "3GB").advice
    assert "'much' is not a number of bytes" in places.explorer(8 * GIB, "much").found
    assert places.disk(Path("reports"), 64 * GIB).mark is Mark.OK
    assert places.disk(Path("reports"), GIB // 2).mark is Mark.WARNING


def test_the_space_of_a_folder_that_is_not_there_is_that_of_the_one_above(tmp_path):
    assert places.existing(tmp_path / "a" / "b") == tmp_path
    assert places.existing(tmp_path) == tmp_path


def test_a_folder_that_can_not_be_written(tmp_path):
    assert places.writable("working folder", tmp_path, "move").mark is Mark.OK
    assert not list(tmp_path.iterdir())
    file = tmp_path / "file"
    file.touch()
    finding = places.writable("working folder", file / "below", "give another folder with --out")
    assert finding.mark is Mark.WARNING
    assert "can't be written" in finding.found
    assert "--out" in finding.advice


def test_the_cache_of_the_hub(tmp_path, monkeypatch):
    from huggingface_hub import constants  # noqa: PLC0415

    (tmp_path / "hub" / "models--org--name").mkdir(parents=True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for offline in (True, False):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        finding = places.hub_cache()
        assert finding.found.startswith(f"1 models in {tmp_path / 'hub'}")
        assert ("nothing is downloaded" in finding.found) == offline
    (tmp_path / "file").touch()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file"))
    assert places.hub_cache().mark is Mark.WARNING


def test_the_browser(monkeypatch, tmp_path):
    assert places.browser("/usr/bin/chromium").mark is Mark.OK
    assert "install" in places.browser(None).advice
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("BROWSER_PATH", raising=False)
    assert places.find_browser() is None
    chrome = tmp_path / "google-chrome"
    chrome.touch(mode=0o755)
    assert places.find_browser() == str(chrome)
    browser = tmp_path / "own"
    browser.touch(mode=0o755)
    monkeypatch.setenv("BROWSER_PATH", str(browser))
    assert places.find_browser() == str(browser)


def test_damaged_and_missing_weights_are_named(tmp_path):
    assert damaged(MODEL_FOLDER) == []
    assert software.models(len(bundled()), []).mark is Mark.OK
    first, second = (MODEL_FOLDER / SUMS).read_text().splitlines()[:2]
    names = [line.split("  ")[1] for line in (first, second)]
    (tmp_path / names[0]).parent.mkdir(parents=True)
    (tmp_path / names[0]).write_bytes(b"another")
    (tmp_path / SUMS).write_text(f"{first}\n{second}\n")
    assert damaged(tmp_path) == names
    finding = software.models(1, names)
    assert finding.mark is Mark.WARNING
    assert all(name in finding.found for name in names)


def test_text_of_foreign_origin_is_printed_literally(command, monkeypatch):
    """A folder's name may hold markup or escape codes."""
    odd = Finding("disk", Mark.OK, "/tmp/[bold]\x1b[31m")
    monkeypatch.setattr(doctor, "examine", lambda: [odd])
    assert "/tmp/[bold]\\x1b[31m" in command("doctor").stdout


@pytest.fixture
def cuda(monkeypatch):
    """PyTorch as it is on a machine with a GPU."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"GPU {number}")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (GIB, (number + 1) * GIB))
    return monkeypatch


def test_gpus_are_those_that_pytorch_reports(cuda):
    assert compute.gpus() == [Gpu("GPU 0", GIB, GIB), Gpu("GPU 1", GIB, 2 * GIB)]
    assert compute.fused_kernels() == ["flash", "memory-efficient", "cuDNN"]
    assert compute.reason_for_none() is None
    findings = {finding.check: finding for finding in compute.compute()}
    assert findings["GPU"].found.startswith("GPU 0 (1 of 1 GiB free), GPU 1 (1 of 2 GiB free)")


def test_pytorch_gives_the_reason_why_it_can_use_no_gpu(cuda):
    def refuse():
        raise RuntimeError("The NVIDIA driver on your system is too old\nsee elsewhere")

    def unavailable():
        warnings.warn("CUDA initialization: the driver is too old", stacklevel=1)
        return False

    cuda.setattr(torch.cuda, "is_available", unavailable)
    cuda.setattr(torch.cuda, "init", refuse)
    assert compute.gpus() == []
    assert compute.reason_for_none() == "The NVIDIA driver on your system is too old"


def test_a_build_for_cpus_is_not_asked_why_it_has_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    assert compute.reason_for_none() is None
