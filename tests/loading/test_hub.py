"""Models of the hub come from its cache; the network is used only for files that it lacks."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
from foreign_folders import CONFIG, WEIGHTS, random_tokens
from huggingface_hub import constants
from safetensors.torch import load_file
from tables import each

import interp
from interp.errors import ModelLoadError
from interp.loading import hub
from interp.loading.weight_files import INDEX

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40
REPO = "org/a-model.v1"

Fill = Callable[..., Path]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, offline."""
    path = tmp_path / "cache"
    path.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(path))
    assert constants.is_offline_mode()
    return path


@pytest.fixture
def fill(cache: Path, saved: dict[str, Path]) -> Fill:
    """Adds a model to the cache, in the layout of ``huggingface_hub``."""

    def put(kind: str = "gpt2", repo: str = REPO, commit: str = COMMIT, ref: str = "main") -> Path:
        store = cache / f"models--{repo.replace('/', '--')}"
        snapshot, blobs = store / "snapshots" / commit, store / "blobs"
        snapshot.mkdir(parents=True)
        blobs.mkdir(exist_ok=True)
        for number, file in enumerate(sorted(saved[kind].iterdir())):
            blob = Path(shutil.copy(file, blobs / f"{commit[:4]}-{number}"))
            (snapshot / file.name).symlink_to(blob)
        pointer = store / "refs" / ref
        pointer.parent.mkdir(parents=True, exist_ok=True)
        pointer.write_text(commit)
        return snapshot

    return put


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """``local_files_only`` of each call of ``snapshot_download``."""
    seen: list[bool] = []
    real = huggingface_hub.snapshot_download

    def noted(*args: object, local_files_only: bool = False, **rest: object) -> str:
        seen.append(local_files_only)
        return real(*args, local_files_only=local_files_only, **rest)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", noted)
    return seen


@pytest.mark.parametrize("revision", ["", "@main", f"@{COMMIT}"])
def test_a_model_in_the_cache_loads_without_the_network(revision, fill, requests, saved):
    fill()
    model = interp.load(f"hub:{REPO}{revision}")
    assert requests == [True]
    assert model.config.name == f"{REPO}@{COMMIT}"
    expected = interp.load(saved["gpt2"])
    assert torch.equal(model(random_tokens()), expected(random_tokens()))


def test_a_revision_is_a_branch_or_a_commit(fill):
    fill("gpt2", commit=COMMIT)
    fill("llama", commit=OTHER, ref="refs/pr/1")
    assert interp.load(f"hub:{REPO}").config.decoder.positions.kind == "learned"
    for revision in (OTHER, "refs/pr/1"):
        model = interp.load(f"hub:{REPO}@{revision}")
        assert model.config.decoder.positions.kind == "rotary"
        assert model.config.name == f"{REPO}@{OTHER}"


def test_a_name_without_an_organisation_is_valid(fill):
    fill(repo="gpt2")
    assert interp.load("hub:gpt2").config.name == f"gpt2@{COMMIT}"


def test_arguments_of_load_apply_to_a_model_of_the_hub(fill):
    fill()
    assert interp.load(f"hub:{REPO}", dtype=torch.float64).dtype == torch.float64


# An incomplete cache.


@pytest.mark.parametrize("name", [REPO, f"{REPO}@{OTHER}", f"{REPO}@other", "org/another", "no"])
def test_a_model_that_is_not_cached_fails_offline(name, fill, requests):
    fill()
    absent = f"hub:{name}" if name != REPO else "hub:org/yet-another"
    with pytest.raises(ModelLoadError, match=r"can't be downloaded: .*HF_HUB_OFFLINE") as error:
        interp.load(absent)
    assert str(error.value).startswith(absent)
    assert "\n" not in str(error.value)
    assert requests == [True, False]


@pytest.mark.parametrize("missing", [CONFIG, WEIGHTS])
def test_a_file_that_the_cache_lacks_is_named(missing, fill, requests):
    (fill() / missing).unlink()
    with pytest.raises(ModelLoadError, match=missing):
        interp.load(f"hub:{REPO}")
    assert requests == [True, False]


def test_a_file_whose_blob_was_deleted_is_an_error(fill):
    (fill() / WEIGHTS).resolve().unlink()
    with pytest.raises(ModelLoadError, match=f"{WEIGHTS} is missing"):
        interp.load(f"hub:{REPO}")


def test_a_shard_that_was_not_downloaded_is_named(fill, requests):
    snapshot = fill()
    weights = (snapshot / WEIGHTS).read_bytes()
    (snapshot / WEIGHTS).unlink()
    where = {"transformer.wte.weight": "model-1.safetensors", "more": "model-2.safetensors"}
    (snapshot / INDEX).write_text(json.dumps({"weight_map": where}))
    (snapshot / "model-1.safetensors").write_bytes(weights)
    with pytest.raises(ModelLoadError, match=r"model-2\.safetensors is missing"):
        interp.load(f"hub:{REPO}")
    assert requests == [True, False]


def test_a_damaged_file_in_the_cache_is_an_error(fill):
    blob = (fill() / WEIGHTS).resolve()
    blob.write_bytes(blob.read_bytes()[:-10])
    with pytest.raises(ModelLoadError, match="is truncated"):
        interp.load(f"hub:{REPO}")


def listed(snapshot: Path, *more: str) -> None:
    """Write the list of a repository's files that ``huggingface_hub`` keeps after a request."""
    entries = {
        name: {"size": 1, "blob_id": "0" * 40}
        for name in (*(path.name for path in snapshot.iterdir()), *more)
    }
    trees = snapshot.parent.parent / "trees"
    trees.mkdir()
    content = {"format_version": 1, "commit_hash": COMMIT, "files": entries}
    (trees / f"{COMMIT}.json").write_text(json.dumps(content))


def test_weights_in_other_formats_are_not_required(fill, requests):
    """A repository may have its weights in two formats, of which one was downloaded."""
    listed(fill(), "consolidated.safetensors", "onnx/model.safetensors", "README.md")
    assert interp.load(f"hub:{REPO}").config.name == f"{REPO}@{COMMIT}"
    assert requests == [True]


@pytest.mark.parametrize("name", ["tokenizer.json", "generation_config.json"])
def test_a_file_that_was_not_downloaded_is_requested(name, fill, requests):
    snapshot = fill()
    (snapshot / name).unlink(missing_ok=True)
    listed(snapshot, name)
    with pytest.raises(ModelLoadError, match="can't be downloaded"):
        interp.load(f"hub:{REPO}")
    assert requests == [True, False]


@pytest.fixture
def downloaded(cache, monkeypatch) -> Callable[..., list[str]]:
    """Fakes a repository with the files of a folder, and lists the files that are downloaded."""

    def serve(folder: Path, tmp_path: Path) -> list[str]:
        local = tmp_path / COMMIT
        local.mkdir()
        done: list[str] = []

        def fetch(
            repo: str, *, allow_patterns: list[str], local_files_only: bool = False, **_: object
        ) -> str:
            if local_files_only:
                raise huggingface_hub.errors.LocalEntryNotFoundError("nothing is there")
            names = [path.name for path in folder.iterdir()]
            for name in huggingface_hub.utils.filter_repo_objects(
                names, allow_patterns=allow_patterns
            ):
                shutil.copy(folder / name, local)
                done.append(name)
            return str(local)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
        return done

    return serve


BIN = "pytorch_model.bin"


def with_pickle(folder: Path, name: str = BIN) -> Path:
    """The folder, with a pickle of other weights, which are all 0."""
    weights = {key: torch.zeros_like(weight) for key, weight in load_file(folder / WEIGHTS).items()}
    torch.save(weights, folder / name)
    return folder


@pytest.mark.parametrize("allow", [True, False])
def test_a_pickle_is_not_downloaded_if_there_are_safetensors(allow, copied, downloaded, tmp_path):
    done = downloaded(with_pickle(copied("gpt2").path), tmp_path)
    assert interp.load(f"hub:{REPO}", allow_pickle=allow).W_E.abs().max() > 0
    assert WEIGHTS in done
    assert BIN not in done


def test_a_pickle_is_downloaded_only_if_it_is_allowed(copied, downloaded, tmp_path):
    folder = with_pickle(copied("gpt2").path)
    (folder / WEIGHTS).unlink()
    (folder / "training_args.bin").write_bytes(b"")
    done = downloaded(folder, tmp_path)
    with pytest.raises(ModelLoadError, match=f"If the repository has {BIN}.*allow_pickle=True"):
        interp.load(f"hub:{REPO}")
    assert not any(name.endswith(".bin") for name in done)
    model = interp.load(f"hub:{REPO}", allow_pickle=True)
    assert model.W_E.abs().max() == 0
    assert [name for name in done if name.endswith(".bin")] == [BIN]


def test_a_pickle_in_the_cache_is_read_if_it_is_allowed(fill, saved, requests):
    snapshot = fill()
    torch.save(load_file(snapshot / WEIGHTS), snapshot / BIN)
    (snapshot / WEIGHTS).unlink()
    model = interp.load(f"hub:{REPO}", allow_pickle=True)
    assert requests == [True]
    assert torch.equal(model.W_E, interp.load(saved["gpt2"]).W_E)
    with pytest.raises(ModelLoadError, match="is a pickle"):
        interp.load(f"hub:{REPO}")


def test_only_the_files_of_a_variant_are_downloaded(copied, downloaded, tmp_path):
    folder = copied("gpt2").path
    shutil.copy(folder / WEIGHTS, folder / "model.fp16.safetensors")
    done = downloaded(folder, tmp_path)
    interp.load(f"hub:{REPO}", variant="fp16")
    assert [name for name in done if name.endswith("safetensors")] == ["model.fp16.safetensors"]


def test_a_pickled_variant_is_downloaded(copied, downloaded, tmp_path):
    folder = with_pickle(copied("gpt2").path, "pytorch_model.fp16.bin")
    done = downloaded(folder, tmp_path)
    interp.load(f"hub:{REPO}", variant="fp16", allow_pickle=True)
    assert "pytorch_model.fp16.bin" in done
    assert WEIGHTS not in done


def test_an_adapter_of_the_hub_is_refused_with_its_base_model(copied, downloaded, tmp_path):
    folder = copied("gpt2").path
    for path in folder.iterdir():
        path.unlink()
    content = {"peft_type": "LORA", "base_model_name_or_path": "org/base"}
    (folder / "adapter_config.json").write_text(json.dumps(content))
    downloaded(folder, tmp_path)
    with pytest.raises(ModelLoadError, match=r"adapter.*'org/base'"):
        interp.load(f"hub:{REPO}")


def test_no_code_is_downloaded(monkeypatch, tmp_path, cache):
    patterns: list[str] = []

    def fetch(repo: str, *, allow_patterns: list[str], local_files_only: bool = False, **_: object):
        if local_files_only:
            raise huggingface_hub.errors.LocalEntryNotFoundError("nothing is there")
        patterns.extend(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    with pytest.raises(ModelLoadError):
        interp.load(f"hub:{REPO}")
    assert patterns
    assert "chat_template.jinja" in patterns  # rendered in a sandbox
    assert all(pattern.endswith((".jinja", ".json", ".safetensors")) for pattern in patterns)


@pytest.mark.parametrize(
    "error", [ConnectionError("unplugged"), RuntimeError("odd\nmore"), ValueError()], ids=repr
)
def test_an_error_of_the_network_is_one_line(error, fill, monkeypatch):
    def fail(*_: object, local_files_only: bool = False, **__: object) -> str:
        raise huggingface_hub.errors.LocalEntryNotFoundError("no") if local_files_only else error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    message = f"hub:{REPO}@{OTHER} is not in the cache and can't be downloaded"
    with pytest.raises(ModelLoadError, match=message) as raised:
        interp.load(f"hub:{REPO}@{OTHER}")
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is error


# Invalid names.


@each(
    "name",
    [
        "",
        "/",
        "org/",
        "/name",
        "org/name/more",
        "org/na me",
        "org/name@",
        "org/name@main@main",
        "../name",
        "org/..",
        "..",
        "org/name@../../secret",
        "org/name@a/../b",
        "org/name@/etc/passwd",
        "org/name\n",
        "https://example.org/name",
    ],
)
def test_a_malformed_name_is_refused_without_a_request(name, requests):
    with pytest.raises(ModelLoadError, match="should read hub:org/name"):
        interp.load(f"{hub.PREFIX}{name}")
    assert requests == []


@each("name", ["-org/name", "org/name.", "a--b/c", "x" * 97, "org/name.git"])
def test_a_name_that_the_hub_does_not_allow_is_refused(name, cache):
    with pytest.raises(ModelLoadError, match="can't be downloaded"):
        interp.load(f"{hub.PREFIX}{name}")
