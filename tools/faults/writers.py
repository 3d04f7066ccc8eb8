"""The commands that write folders, in two versions each, and how to recognize a version."""

import hashlib
import json
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from apps.cli import main
from interp.config import AttentionConfig, Config, StackConfig
from interp.errors import InterpError
from interp.io import MANIFEST
from interp.transformer import Transformer
from interp.zoo import Card
from training import (
    RECIPES,
    STORED_AS,
    BuiltModel,
    Schedule,
    TrainingRun,
    build_model,
    report_nothing,
)
from training.__main__ import main as train

OLD, NEW = "old", "new"
TIMES = re.compile(
    rb'"seconds": [\d.e-]+|"budget": \d+|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d|[\d.]+ s\b'
)
"""The times and the free memory in files, which differ between two runs of the same command."""
MODEL = "induction-by-hand"


@dataclass
class Writer:
    """A command that writes a folder.

    Attributes:
        name: name of the command.
        write: writes a version, :data:`OLD` or :data:`NEW`, into a folder; may raise SystemExit.
    """

    name: str
    write: Callable[[str, Path], object]
    _hashes: dict[str, str] = field(default_factory=dict)

    def learn(self, folder: Path) -> None:
        """Write each version once into ``folder`` without faults, and keep its hash.

        This runs in this process, so that processes forked from it have imported everything.
        """
        for version in (OLD, NEW):
            with suppress(SystemExit), redirect_stdout(StringIO()):
                self.write(version, folder / version)
            self._hashes[_hash(folder / version)] = version

    def version_of(self, folder: Path) -> str | None:
        """The version that a folder holds; ``None`` if it is missing, incomplete or mixed."""
        return self._hashes.get(_hash(folder)) if folder.is_dir() else None


def writers() -> dict[str, Writer]:
    """Each command by its name."""
    RECIPES["tiny"] = _tiny
    commands = (
        *(Writer("ablate", _ablate), Writer("convert", _convert)),
        *(Writer("report", _report), Writer("train", _train)),
    )
    return {writer.name: writer for writer in commands}


def _hash(folder: Path) -> str:
    """A hash of all files without the times in them, and of whether they match the manifest."""
    digest = hashlib.sha256()
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    content = {name: path.read_bytes() for name, path in files.items() if path.is_file()}
    manifest = content.pop(MANIFEST, None)
    if manifest is not None:
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
        digest.update(str(_listed(manifest) == hashes).encode())
    for name, data in sorted(content.items()):
        if Path(name).name == MANIFEST:  # of a page, with hashes of the times in its files
            continue
        digest.update(f"{name}\n".encode() + TIMES.sub(b"", data))
    return digest.hexdigest()


def _listed(manifest: bytes) -> object:
    """The hashes in a manifest; ``None`` if a killed writer left it incomplete."""
    try:
        return json.loads(manifest)["files"]
    except ValueError:
        return None


def _ablate(version: str, folder: Path) -> None:
    method = {OLD: "zero", NEW: "mean"}[version]
    words = ["ablate", "--model", MODEL, "--prompts", "letters", "--method", method]
    main([*words, "--out", str(folder)])


def _report(version: str, folder: Path) -> None:
    """A site of two pages, one of which is the same in both versions."""
    method = {OLD: "zero", NEW: "mean"}[version]
    config = f"""
title = "{version}"
models = "{MODEL}"
prompts = "letters"
[[analyses]]
command = "ablate"
method = "{method}"
[[analyses]]
command = "circuits"
ov = "L0H0"
"""
    with TemporaryDirectory() as place:
        file = Path(place) / "site.toml"
        file.write_text(config, encoding="utf-8")
        main(["report", "--config", str(file), "--out", str(folder)])


def _convert(version: str, folder: Path) -> None:
    main(["convert", {OLD: MODEL, NEW: "rasp-histogram"}[version], str(folder)])


def _train(version: str, folder: Path) -> None:
    if version == OLD:
        train([MODEL, "--out", str(folder)])
    try:
        build_model("tiny", folder, report=report_nothing)
    except InterpError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


def _tiny(run: TrainingRun) -> BuiltModel:
    """A recipe of six steps, with a checkpoint after each, and saved weights after two of them."""
    stack = StackConfig(1, AttentionConfig(n_heads=2, d_head=4))
    torch.manual_seed(0)
    model = Transformer(Config(d_model=8, d_vocab=11, n_ctx=6, decoder=stack, name="tiny"))
    schedule = Schedule(steps=6, rows=2, width=6, warm_up=2)

    def loss(model: Transformer, step: int) -> torch.Tensor:
        tokens = torch.randint(11, (2, 6), generator=schedule.generator(step))
        return torch.nn.functional.cross_entropy(
            model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
        )

    def observe(model: Transformer, step: int) -> dict[str, float]:
        if step in (0, 4):
            run.save_step(model, step)
        return {}

    history = run.train(model, loss, schedule, "random tokens", observe)
    card = Card("tiny", "", "", "random tokens", "", "", "letters", {})
    return BuiltModel(model, card, history, STORED_AS)
