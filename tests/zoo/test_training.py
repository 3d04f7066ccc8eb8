"""An interrupted training resumes bit-identically; one that diverges is an error."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path

import pytest
import torch
from architectures import covering
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

import interp
from interp.config import AttentionConfig, Config, StackConfig
from interp.errors import InvalidInput, ModelLoadError, OutOfResources
from interp.io.files import write_whole
from interp.zoo.history import History, read_history
from training import python_text
from training.build import build_model, has_checkpoint
from training.checkpoint import FILE, FileCheckpointer, NoCheckpointer
from training.corpus import read_corpus
from training.loop import Schedule, train
from training.python_text import PythonText
from training.recipes import RECIPES, addition_mod_113, dates, python_2l
from training.training_run import TrainingRun

SCHEDULE = Schedule(steps=12, rows=4, width=6, warm_up=3)
CONFIG = Config(
    d_model=8, d_vocab=11, n_ctx=6, decoder=StackConfig(2, AttentionConfig(n_heads=2, d_head=4))
)


class Killed(Exception):
    """What stops a training in these tests."""


def quiet(*_):
    pass


def new_model():
    torch.manual_seed(0)
    return interp.Transformer(CONFIG)


def loss(model, step):
    tokens = torch.randint(11, (4, 6), generator=SCHEDULE.generator(step))
    return cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def killed_after(steps):
    def report(step, *_):
        if step == steps:
            raise Killed

    return report


def weights(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


@pytest.mark.parametrize("every", [1, 5])
def test_an_interrupted_training_resumes_bit_identically(tmp_path, every):
    whole = new_model()
    history = train(whole, loss, SCHEDULE, report=quiet, checkpointer=NoCheckpointer())
    keep = FileCheckpointer(tmp_path / FILE, {"seed": "0"}, every)
    for stop in (7, 9):
        with pytest.raises(Killed):
            train(new_model(), loss, SCHEDULE, report=killed_after(stop), checkpointer=keep)
    torch.manual_seed(99)
    again = interp.Transformer(CONFIG)
    assert train(again, loss, SCHEDULE, report=quiet, checkpointer=keep).losses == history.losses
    assert equal(weights(again), weights(whole))


def test_resuming_without_the_optimizers_state_would_be_noticed(tmp_path, monkeypatch):
    history = train(new_model(), loss, SCHEDULE, report=quiet, checkpointer=NoCheckpointer())
    keep = FileCheckpointer(tmp_path / FILE, {})
    with pytest.raises(Killed):
        train(new_model(), loss, SCHEDULE, report=killed_after(6), checkpointer=keep)
    monkeypatch.setattr("training.checkpoint._optimizer_states", lambda tensors: {})
    assert (
        train(new_model(), loss, SCHEDULE, report=quiet, checkpointer=keep).losses != history.losses
    )


def test_figures_observed_before_an_interruption_are_kept(tmp_path):
    keep = FileCheckpointer(tmp_path / FILE, {})
    seen = []

    def observe(model, step):
        seen.append(step)
        return {"step": float(step)} if step % 4 == 0 else {}

    with pytest.raises(Killed):
        train(
            new_model(), loss, SCHEDULE, report=killed_after(6), checkpointer=keep, observe=observe
        )
    history = train(new_model(), loss, SCHEDULE, report=quiet, checkpointer=keep, observe=observe)
    assert history.curve("step") == ([0, 4, 8, 12], [0.0, 4.0, 8.0, 12.0])
    assert seen == list(range(13))
    assert History.from_json(history.to_json()) == history


def test_another_training_in_the_folder_is_refused(tmp_path):
    keep = FileCheckpointer(tmp_path / FILE, {"data": "a"})
    with pytest.raises(Killed):
        train(new_model(), loss, SCHEDULE, report=killed_after(2), checkpointer=keep)
    other = replace(keep, settings={"data": "b"})
    with pytest.raises(InvalidInput, match=r"checkpoint of a training with another data: a, not b"):
        train(new_model(), loss, SCHEDULE, report=quiet, checkpointer=other)


@pytest.mark.parametrize("header", [None, {"history": "{}"}, {"history": "[]", "what": "{}"}])
def test_a_damaged_checkpoint_is_an_error(tmp_path, header):
    if header is None:
        (tmp_path / FILE).write_bytes(b"{}")
    else:
        save_file({"model.x": torch.ones(1)}, tmp_path / FILE, {"what": "{}", **header})
    with pytest.raises(ModelLoadError, match=rf"The checkpoint .*{FILE} can't be read"):
        train(
            new_model(),
            loss,
            SCHEDULE,
            report=quiet,
            checkpointer=FileCheckpointer(tmp_path / FILE, {}),
        )


@pytest.fixture
def checkpointed(tmp_path):
    """The tensors and the texts of a valid checkpoint."""
    keep = FileCheckpointer(tmp_path / FILE, {"data": "a"})
    with pytest.raises(Killed):
        train(new_model(), loss, SCHEDULE, report=killed_after(2), checkpointer=keep)
    with safe_open(tmp_path / FILE, framework="pt") as file:
        return keep, load_file(keep.path), file.metadata()


TENSORS = {
    "missing": (lambda t: t.pop("model.decoder.weight_e"), "weight_e is missing"),
    "of another shape": (
        lambda t: t.update({"model.decoder.weight_e": torch.ones(2)}),
        "should be",
    ),
    "whole numbers": (
        lambda t: t.update({"model.decoder.weight_e": t["model.decoder.weight_e"].long()}),
        "in floating point",
    ),
    "state of another shape": (
        lambda t: t.update({"optimizer.0.exp_avg": torch.ones(2)}),
        "should",
    ),
    "state of no weight": (lambda t: t.update({"optimizer.99.exp_avg": torch.ones(2)}), "no part"),
    "no state": (lambda t: t.update({"optimizer.x.y": torch.ones(2)}), "no part"),
    "more": (lambda t: t.update({"more": torch.ones(2)}), "no part"),
}


@pytest.mark.parametrize(("change", "message"), TENSORS.values(), ids=TENSORS)
def test_a_checkpoint_of_other_tensors_is_refused_whole(change, message, checkpointed):
    keep, tensors, texts = checkpointed
    del texts["sha256"]
    change(tensors)
    save_file(tensors, keep.path, texts)
    model = new_model()
    before = weights(model)
    with pytest.raises(ModelLoadError, match=message):
        train(model, loss, SCHEDULE, report=quiet, checkpointer=keep)
    assert equal(weights(model), before)


def test_a_checkpoint_that_was_changed_or_is_of_a_newer_version_is_refused(checkpointed):
    keep, tensors, texts = checkpointed
    content = bytearray(keep.path.read_bytes())
    content[-1] ^= 1
    keep.path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=r"SHA-256.*Start from scratch"):
        train(new_model(), loss, SCHEDULE, report=quiet, checkpointer=keep)
    del texts["sha256"]
    save_file(tensors, keep.path, texts | {"version": "2"})
    with pytest.raises(ModelLoadError, match=r"version '2' .*Start from scratch"):
        train(new_model(), loss, SCHEDULE, report=quiet, checkpointer=keep)


def test_a_loss_that_is_not_finite_stops_the_training():
    with pytest.raises(InvalidInput, match="loss of step 3 is nan"):
        train(
            new_model(),
            lambda model, step: loss(model, step) * (float("nan") if step == 2 else 1),
            SCHEDULE,
            report=quiet,
            checkpointer=NoCheckpointer(),
        )


def test_a_batch_depends_on_seed_and_step_alone():
    def drawn(schedule, step):
        return torch.rand(3, generator=schedule.generator(step)).tolist()

    assert drawn(SCHEDULE, 4) == drawn(SCHEDULE, 4)
    other = [drawn(SCHEDULE, 5), drawn(replace(SCHEDULE, seed=1), 4), drawn(SCHEDULE, 4)]
    assert len({tuple(numbers) for numbers in other}) == 3


# Building a model, from the recipe to the folder.


@pytest.fixture
def small_corpus(corpus, monkeypatch):
    held_out = tuple(replace(document, text=document.text[:4000]) for document in corpus.held_out)
    small = replace(corpus, train=corpus.train[:20], held_out=held_out[:2])
    monkeypatch.setattr(python_text, "read_corpus", lambda: small)
    monkeypatch.setattr(PythonText, "repeated_sample", lambda text: torch.arange(1, 43).view(2, 21))
    monkeypatch.setattr(python_2l, "SCHEDULE", Schedule(steps=4, rows=2, width=32))
    monkeypatch.setattr(python_2l, "SAVED_STEPS", (0, 2))
    monkeypatch.setattr(python_2l, "MEASURED_EVERY", 2)


def made(folder: Path):
    return load_file(folder / "model.safetensors")


@pytest.mark.slow
def test_building_twice_and_in_two_parts_gives_the_same(tmp_path, small_corpus):
    for name in ("first", "second"):
        build_model("python-2l", tmp_path / name, report=quiet)
    with pytest.raises(Killed):
        build_model("python-2l", tmp_path / "third", report=killed_after(3))
    assert has_checkpoint("python-2l", tmp_path / "third")
    steps = []
    build_model("python-2l", tmp_path / "third", report=lambda step, *_: steps.append(step))
    assert steps == [4]
    first = made(tmp_path / "first")
    assert equal(first, made(tmp_path / "second"))
    assert equal(first, made(tmp_path / "third"))
    histories = [read_history(tmp_path / name) for name in ("first", "third")]
    assert histories[0].losses == histories[1].losses
    assert histories[0].measured == histories[1].measured
    for step in ("000000", "000002"):
        uninterrupted, resumed = (
            load_file(tmp_path / name / "steps" / f"{step}.safetensors")
            for name in ("first", "third")
        )
        assert equal(uninterrupted, resumed)


@pytest.mark.slow
def test_a_complete_model_leaves_no_checkpoint(tmp_path, small_corpus):
    folder = build_model("python-2l", tmp_path / "model", report=quiet)
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*")) == [
        "README.md",
        "card.json",
        "config.json",
        "history.json",
        "manifest.json",
        "model.safetensors",
        "steps",
        "steps/000000.safetensors",
        "steps/000002.safetensors",
        "tokenizer.json",
    ]
    assert made(folder)["unembed.weight"].dtype == torch.float16
    assert interp.load(f"{folder}@2").dtype == torch.float32


@pytest.mark.slow
def test_beginning_anew_discards_the_checkpoint(tmp_path, small_corpus):
    with pytest.raises(Killed):
        build_model("python-2l", tmp_path, report=killed_after(3))
    steps = []
    build_model("python-2l", tmp_path, report=lambda step, *_: steps.append(step), anew=True)
    assert steps == [1, 2, 3, 4]


@pytest.mark.slow
def test_the_checkpoint_of_one_model_is_not_touched_by_another(tmp_path, small_corpus):
    with pytest.raises(Killed):
        build_model("python-2l", tmp_path, report=killed_after(3))
    build_model("induction-by-hand", tmp_path, report=quiet)
    assert interp.load(tmp_path).config.name == "induction-by-hand"
    with pytest.raises(ModelLoadError):
        interp.history(tmp_path)
    steps = []
    build_model("python-2l", tmp_path, report=lambda step, *_: steps.append(step))
    assert steps == [4]
    assert interp.load(tmp_path).config.name == "python-2l"


@pytest.mark.slow
def test_another_model_in_the_folder_is_replaced_whole(tmp_path, small_corpus):
    build_model("python-2l", tmp_path, report=quiet)
    build_model("induction-by-hand", tmp_path, report=quiet)
    assert not (tmp_path / "steps").exists()
    assert interp.load(tmp_path).config.name == "induction-by-hand"
    with pytest.raises(ModelLoadError, match="history"):
        interp.history(tmp_path)


@pytest.mark.slow
def test_a_users_file_beside_a_model_is_not_removed(tmp_path, small_corpus):
    build_model("python-2l", tmp_path, report=quiet)
    notes = tmp_path / "steps" / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(InvalidInput, match=r"holds steps/notes\.txt, which interp did not write"):
        build_model("induction-by-hand", tmp_path, report=quiet)
    assert notes.read_text() == "mine"
    assert interp.load(tmp_path).config.name == "python-2l"


def test_a_users_own_file_is_not_replaced(tmp_path, small_corpus):
    readme = tmp_path / "README.md"
    readme.write_text("mine")
    with pytest.raises(InvalidInput, match=r"holds README\.md, which interp did not write"):
        build_model("induction-by-hand", tmp_path, report=quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert readme.read_text() == "mine"


@pytest.mark.slow
def test_a_partially_written_file_is_not_installed(tmp_path, small_corpus):
    class Kill(BaseException):
        pass

    def half(path):
        path.write_bytes(b"half")
        os.link(path, path.with_name(f".left{path.name}"))  # as it is if no cleanup can run
        raise Kill

    folder = tmp_path / "model"
    with pytest.raises(Killed):
        build_model("python-2l", folder, report=killed_after(3))
    steps = folder.with_name(".model.training-python-2l") / "steps"
    with pytest.raises(Kill):
        write_whole(steps / "000003.safetensors", half)
    assert any(path.read_bytes() == b"half" for path in steps.iterdir())
    build_model("python-2l", folder, report=quiet)
    assert not list(folder.rglob("*3*"))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.slow
def test_a_training_that_is_cut_short_claims_nothing(tmp_path, small_corpus):
    build_model("python-2l", tmp_path, report=quiet, steps=2)
    assert interp.card(tmp_path).mechanism.startswith("None is claimed: 2 steps were trained, of 4")
    assert interp.card(tmp_path).recipe.startswith("`python -m training python-2l`: 2 steps")


@pytest.mark.slow
def test_a_failure_while_files_are_installed_loses_nothing(tmp_path, small_corpus, monkeypatch):
    whole = build_model("python-2l", tmp_path / "whole", report=quiet)

    def full(*_, **__):
        raise OSError(28, "No space left")

    with monkeypatch.context() as patched:
        patched.setattr("training.build.shutil.copytree", full)
        with pytest.raises(OutOfResources, match="No space left"):
            build_model("python-2l", tmp_path / "again", report=quiet)
    assert not (tmp_path / "again").exists()
    steps = []
    build_model("python-2l", tmp_path / "again", report=lambda step, *_: steps.append(step))
    assert steps == []
    files = [sorted(p.name for p in folder.rglob("*")) for folder in (whole, tmp_path / "again")]
    assert files[0] == files[1]
    assert equal(made(whole), made(tmp_path / "again"))


def test_a_full_disk_is_an_error(tmp_path, small_corpus, monkeypatch):
    def full(*_):
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr("training.checkpoint.save_tensors", full)
    with pytest.raises(OutOfResources, match="can't be written: No space left on device"):
        build_model("python-2l", tmp_path, report=quiet)


@pytest.mark.slow
def test_a_second_training_in_the_folder_is_refused(tmp_path, small_corpus):
    begun = []

    def report(step, *_):
        if step == 2:
            with pytest.raises(OutOfResources, match=f"written by process {os.getpid()}"):
                build_model("python-2l", tmp_path / "a", report=quiet, anew=True)
            begun.append(step)

    build_model("python-2l", tmp_path / "a", report=report)
    assert begun == [2]
    assert len(read_history(tmp_path / "a").losses) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_interruption_names_the_checkpoint(tmp_path, small_corpus):
    def interrupt(step, *_):
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="same command resumes from it"):
        build_model("python-2l", tmp_path, report=interrupt)
    assert has_checkpoint("python-2l", tmp_path)


def test_another_number_of_steps_is_another_training(tmp_path, small_corpus):
    with pytest.raises(Killed):
        build_model("python-2l", tmp_path, report=killed_after(3))
    with pytest.raises(InvalidInput, match="another schedule: 4 steps"):
        build_model("python-2l", tmp_path, report=quiet, steps=9)


def test_a_missing_corpus_is_an_error_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(python_text, "read_corpus", lambda: read_corpus(tmp_path / "none.zip"))
    with pytest.raises(InvalidInput, match="No Python source in"):
        build_model("python-2l", tmp_path / "a" / "b", report=quiet)
    assert not (tmp_path / "a").exists()


def test_an_unknown_recipe_and_no_steps_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="python-2l"):
        build_model("python-9l", tmp_path, steps=None, report=quiet)
    with pytest.raises(InvalidInput, match="at least 1"):
        build_model("python-2l", tmp_path, steps=0, report=quiet)


@pytest.mark.parametrize("name", covering(["python-4l", "python-mlm"], nightly=["python-4l"]))
def test_a_recipe_of_text_runs(tmp_path, small_corpus, name):
    model = RECIPES[name](TrainingRun(quiet, steps=2)).model
    assert model.config.name == name


@pytest.mark.gpu
def test_a_training_on_a_gpu_completes_and_resumes(tmp_path):
    def trained(name, report=quiet):
        build_model(name, tmp_path / name, report=report, steps=6, device="cuda")

    for name in (addition_mod_113.NAME, dates.NAME):
        with pytest.raises(Killed):
            trained(name, killed_after(3))
        trained(name)
        assert len(read_history(tmp_path / name).losses) == 6
        assert "cpu" not in " ".join(read_history(tmp_path / name).hardware).lower()


@pytest.mark.parametrize(
    ("name", "n_steps"),
    [
        pytest.param(addition_mod_113.NAME, 8, marks=pytest.mark.slow),
        pytest.param(python_2l.NAME, 50, marks=[pytest.mark.nightly, pytest.mark.timeout(1200)]),
    ],
)
def test_a_killed_process_resumes(tmp_path, name, n_steps):
    """The whole command, killed in the middle by the signal that can't be caught."""
    command = [sys.executable, "-m", "training", name, "--steps", str(n_steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start(folder):
        return subprocess.Popen(
            [*command, "--device", "cpu", "--out", str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    killed = start(tmp_path / "killed")
    state = tmp_path / f".killed.training-{name}" / FILE
    while not state.exists() and killed.poll() is None:
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert state.exists()
    again, whole = start(tmp_path / "killed"), start(tmp_path / "whole")
    output = again.communicate()[0]
    assert (again.returncode, whole.wait()) == (0, 0), output
    whole.communicate()
    assert "Resuming the unfinished training" in output
    resumed, uninterrupted = (read_history(tmp_path / folder) for folder in ("killed", "whole"))
    assert len(resumed.losses) == n_steps
    assert resumed.losses == uninterrupted.losses
    assert equal(made(tmp_path / "killed"), made(tmp_path / "whole"))
