"""The kinds of files that the package reads: how to write a valid one, and how a user reads it."""

import csv
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from random import Random
from shutil import copy, copytree
from typing import Any

import pyarrow as pa
import torch
from pyarrow.parquet import write_table
from safetensors.torch import save_file
from torch import Tensor

import interp
from interp.config import AttentionConfig, Config, StackConfig
from interp.io import read_json
from interp.loading import MODEL_FOLDER, save_folder
from interp.prompts import PROMPT_FOLDER
from interp.zoo import History
from tools.fuzz import gguf_file, written
from tools.fuzz.mutations import (
    VALUES,
    Mutate,
    damaged_bytes,
    damaged_header,
    damaged_json,
    damaged_lines,
    damaged_toml,
)
from training import FILE, FileCheckpointer

SMALL = "rasp-duplicates"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
CHECKPOINT, CACHE, EDIT, PROMPTS = "ckpt.pt", "run.cache", "edit.json", "prompts.jsonl"
TABLE, PARQUET, TEMPLATE = "prompts.csv", "prompts.parquet", "template.toml"
CHAT, CHAT_TEXT = (
    "chat_template.jinja",
    """{{ bos_token }}{% set ns = namespace(n=0) %}
{% macro turn(role, text) %}{{ role | upper ~ ': ' + text | trim }}{% endmacro %}
{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}
{% set ns.n = ns.n + 1 %}{{ turn(m.role, m['content']) }}{{ '=' * 9 }}{{ ns.n | tojson }}
{% endfor %}{% if add_generation_prompt %}{{ 'A'.center(9) }}{% endif %}""",
)
TEMPLATE_TEXT = """
text = ["{a} and {b} went to the {place.name}. {a}", "{b} and {a} went. {{a}} {a}"]
corrupt = "{a} and {b} went to the {place.name}. {c}"
target = " {place.kind}"
n = 12
seed = 3
[lists]
name = ["Ann", "Bob", "Cy", "Dan"]
place = [{name = "shop", kind = "x"}, {name = "park", kind = "y"}]
[slots]
a = "name"
b = "name"
c = "name"
"""
GPT2 = {"n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 30}
TINY = Config(
    d_model=8, d_vocab=11, n_ctx=6, decoder=StackConfig(1, AttentionConfig(n_heads=2, d_head=4))
)


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        file: name of the file in its folder.
        prepare: writes the file, and the files that belong to it, into an empty folder.
        read: reads the file from the folder, as a user would.
        mutate: damages the content of the file.
    """

    file: str
    prepare: Callable[[Path], object]
    read: Callable[[Path], object]
    mutate: Mutate


# ---- how files are written -----------------------------------------------------------------------


def _bundled(folder: Path) -> None:
    copytree(MODEL_FOLDER / SMALL, folder, dirs_exist_ok=True)


def _saved(folder: Path) -> None:
    """A model with a checksum, which the bundled files do not have."""
    save_folder(_model(), folder)


def _byte_level(folder: Path) -> None:
    copy(MODEL_FOLDER / "python-2l" / "tokenizer.json", folder)


def _chat(folder: Path) -> None:
    tokenizer = interp.Tokenizer.from_file(MODEL_FOLDER / "python-2l" / "tokenizer.json")
    save_folder(interp.Transformer(replace(TINY, d_vocab=tokenizer.vocab_size), tokenizer), folder)
    (folder / CHAT).write_text(CHAT_TEXT, encoding="utf-8")


def _gpt2(folder: Path) -> None:
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_positions": 16}
    config |= {**GPT2, "bos_token_id": 0, "eos_token_id": 1, "activation_function": "gelu_new"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    generation = {"bos_token_id": 0, "eos_token_id": [1, 2], "max_length": 20}
    (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    save_file(_gpt2_weights(), folder / WEIGHTS, {"format": "pt"})


def _sharded(folder: Path) -> None:
    _gpt2(folder)
    (folder / WEIGHTS).unlink()
    weights = _gpt2_weights()
    names = {key: f"{'ab'[index % 2]}.safetensors" for index, key in enumerate(weights)}
    for shard in set(names.values()):
        save_file({key: w for key, w in weights.items() if names[key] == shard}, folder / shard)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}), encoding="utf-8")


def _nanogpt(folder: Path) -> None:
    torch.save(_nanogpt_content(), folder / CHECKPOINT)


def _cache(folder: Path) -> None:
    interp.run(_model(), [[1, 2, 3], [2, 3, 4]], record="all").cache.save(folder / CACHE)


def _harvest(folder: Path) -> None:
    interp.harvest(_model(), [[1, 2, 3], [2, 3, 4]], ("z", 0), folder, shard_rows=4)


def _training(folder: Path) -> None:
    model, optimizer = _trained()
    model(torch.tensor([[1, 2]])).sum().backward()
    optimizer.step()
    history = History([1.0], {0: {"figure": 0.5}}, [0], 1.0, ["a processor"])
    _checkpointer(folder).save(model, optimizer, history)


def _edit(folder: Path) -> None:
    edit = interp.edits.add("z", torch.ones(1, 1, 1, 1), layer=0, head=0, pos=[0, 1])
    (folder / EDIT).write_text(json.dumps(edit.to_dict()), encoding="utf-8")


def _prompts(folder: Path) -> None:
    (folder / PROMPTS).write_bytes((PROMPT_FOLDER / "letters.jsonl").read_bytes())


def _prompt_table(folder: Path) -> None:
    """The same prompts as CSV and as Parquet."""
    prompts = interp.read_prompts("letters")
    rows = [{"id": str(n), **prompt.fields()} for n, prompt in enumerate(prompts)]
    with (folder / TABLE).open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, list(rows[0]), quoting=csv.QUOTE_ALL)
        lines.writeheader()
        lines.writerows(rows)
    write_table(pa.Table.from_pylist(rows), folder / PARQUET)


def _template(folder: Path) -> None:
    (folder / TEMPLATE).write_text(TEMPLATE_TEXT, encoding="utf-8")


# ---- how files are read --------------------------------------------------------------------------


def _load(folder: Path) -> object:
    model = interp.load(folder)
    return model(torch.zeros(1, 2, dtype=torch.long))


def _tokenize(folder: Path) -> object:
    tokenizer = interp.Tokenizer.from_file(folder / "tokenizer.json")
    ids = tokenizer.encode("def f(x):\n    return x")
    return tokenizer.decode(ids), tokenizer.display(ids), tokenizer.added_ids()


def _render(folder: Path) -> object:
    messages = [{"role": "user", "content": " a"}, {"role": "assistant", "content": "b"}]
    chat = interp.load(folder).chat(messages)
    return repr(chat), chat.tokens


def _read_cache(folder: Path) -> object:
    interp.load_cache(folder / CACHE)
    return list(interp.load_cache(folder / CACHE, _model()).items())


def _read_harvest(folder: Path) -> object:
    harvest = interp.Harvest(folder, batch=4)
    harvest.verify()
    return list(harvest), harvest.batches(_model())


def _resume(folder: Path) -> object:
    return _checkpointer(folder).resume(*_trained())


def _run_edit(folder: Path) -> object:
    """Users parse the JSON of an edit themselves; here, the parser of this package does it."""
    try:
        values = read_json(folder / EDIT, 2**20)
    except (OSError, ValueError) as error:
        raise interp.InterpError(str(error)) from error
    edit = interp.edits.from_dict(values)
    return edit.digest, interp.run(_model(), [[1, 2, 3]], edits=[edit])


def _read_card(folder: Path) -> object:
    return interp.card(folder).to_markdown()


# ---- damage to pickles ---------------------------------------------------------------------------


def _damaged_checkpoint(random: Random, content: bytes) -> bytes:
    """Changes weights or settings, or the parts of the archive, or bytes."""
    damages = (_other_content, _other_archive, damaged_bytes)
    return random.choice(damages)(random, content)


def _other_content(random: Random, content: bytes) -> bytes:  # noqa: ARG001 - as all damages
    checkpoint = _nanogpt_content()
    weights: dict[Any, Any] = checkpoint["model"]
    key = random.choice(list(weights))
    weight: Tensor = weights[key]
    values: tuple[Any, ...] = (
        weight.to_sparse(),
        weight[:1].expand(300_000, *weight.shape[1:]) if weight.ndim else weight,
        weight.to(torch.int8),
        weight * torch.nan,
        weight.to(torch.complex64),
        torch.empty(weight.shape, device="meta"),
        weight[..., :0],
        *VALUES,
    )
    changes: tuple[Callable[[], object], ...] = (
        lambda: weights.update({key: random.choice(values)}),
        lambda: weights.update({random.choice(("x", 3, "", "\ud800")): weight}),
        lambda: weights.update({f"{n}": weight for n in range(2000)}),
        lambda: weights.pop(key),
        lambda: checkpoint["model_args"].update(
            {random.choice(list(checkpoint["model_args"])): random.choice(VALUES)}
        ),
        lambda: checkpoint.update({random.choice(list(checkpoint)): random.choice(VALUES)}),
    )
    random.choice(changes)()
    out = BytesIO()
    torch.save(checkpoint, out)
    return out.getvalue()


def _other_archive(random: Random, content: bytes) -> bytes:
    out = BytesIO()
    with (
        zipfile.ZipFile(BytesIO(content)) as old,
        zipfile.ZipFile(out, "w", random.choice((0, 8))) as new,
    ):
        for name in old.namelist():
            part = old.read(name)
            part = damaged_bytes(random, part) if random.random() < 0.3 else part  # noqa: PLR2004
            part = part + bytes(10**6) if random.random() < 0.1 else part  # noqa: PLR2004
            new.writestr(name, part)
    return out.getvalue()


KINDS: Mapping[str, Kind] = {
    "config.json": Kind("config.json", _bundled, _load, damaged_json),
    "config.json of a family": Kind("config.json", _gpt2, _load, damaged_json),
    "generation_config.json": Kind("generation_config.json", _gpt2, _load, damaged_json),
    "model.safetensors": Kind(WEIGHTS, _saved, _load, damaged_header),
    "GGUF": Kind(
        gguf_file.FILE,
        gguf_file.write_gguf,
        lambda folder: interp.load(folder / gguf_file.FILE),
        gguf_file.damaged_gguf,
    ),
    "index of shards": Kind(INDEX, _sharded, _load, damaged_json),
    "tokenizer.json": Kind("tokenizer.json", _byte_level, _tokenize, damaged_json),
    "chat template": Kind(CHAT, _chat, _render, damaged_bytes),
    "checkpoint of nanoGPT": Kind(
        CHECKPOINT,
        _nanogpt,
        lambda folder: interp.load(folder / CHECKPOINT, allow_pickle=True),
        _damaged_checkpoint,
    ),
    "cache": Kind(CACHE, _cache, _read_cache, damaged_header),
    "index of a harvest": Kind("index.json", _harvest, _read_harvest, damaged_json),
    "shard of a harvest": Kind("shard-00000.safetensors", _harvest, _read_harvest, damaged_header),
    "texts of a harvest": Kind("texts-00000.safetensors", _harvest, _read_harvest, damaged_header),
    "prompts": Kind(
        PROMPTS, _prompts, lambda folder: interp.read_prompts(folder / PROMPTS), damaged_lines
    ),
    "prompts as CSV": Kind(
        TABLE, _prompt_table, lambda folder: interp.read_prompts(folder / TABLE), damaged_bytes
    ),
    "prompts as Parquet": Kind(
        PARQUET, _prompt_table, lambda folder: interp.read_prompts(folder / PARQUET), damaged_bytes
    ),
    "template": Kind(
        TEMPLATE, _template, lambda folder: interp.read_prompts(folder / TEMPLATE), damaged_toml
    ),
    "report config": Kind(
        "site.toml", written.write_config, written.read_report_config, damaged_toml
    ),
    "page.json": Kind(
        "page/page.json", written.write_files_of_page, written.read_page, damaged_json
    ),
    "run.json": Kind("page/run.json", written.write_files_of_page, written.repeat, damaged_json),
    "report.html": Kind(
        "page/report.html", written.write_files_of_page, written.read_reports, damaged_bytes
    ),
    "table as CSV": Kind(
        "page/heads.csv", written.write_files_of_page, written.read_reports, damaged_bytes
    ),
    "table as Parquet": Kind(
        "page/heads.parquet", written.write_files_of_page, written.repeat, damaged_bytes
    ),
    "partial result": Kind(
        "sweep.safetensors", written.write_partial, written.resume, damaged_header
    ),
    "run.json of a partial result": Kind(
        "run.json", written.write_partial, written.resume, damaged_json
    ),
    "card.json": Kind("card.json", _bundled, _read_card, damaged_json),
    "history.json": Kind(
        "history.json",
        lambda folder: copytree(MODEL_FOLDER / "dates", folder, dirs_exist_ok=True),
        interp.history,
        damaged_json,
    ),
    "training checkpoint": Kind(FILE, _training, _resume, damaged_header),
    "edit": Kind(EDIT, _edit, _run_edit, damaged_json),
}


# ---- models --------------------------------------------------------------------------------------


@cache
def _model() -> interp.Transformer:
    return interp.load(SMALL)


def _trained() -> tuple[interp.Transformer, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = interp.Transformer(replace(TINY, name="tiny"))
    return model, torch.optim.AdamW(model.parameters())


def _checkpointer(folder: Path) -> FileCheckpointer:
    return FileCheckpointer(folder / FILE, {"data": "none"})


def _gpt2_weights() -> dict[str, Tensor]:
    """Weights of a small GPT-2, all with the same value."""
    shapes = {"wte.weight": (30, 8), "wpe.weight": (16, 8), "ln_f.weight": (8,), "ln_f.bias": (8,)}
    for n in range(2):
        for name, shape in _block().items():
            shapes |= {f"h.{n}.{name}.weight": shape, f"h.{n}.{name}.bias": shape[-1:]}
    return {f"transformer.{name}": torch.full(shape, 0.1) for name, shape in shapes.items()}


def _nanogpt_content() -> dict[str, Any]:
    """A checkpoint of the same weights, with the matrices of blocks transposed."""
    weights = {
        name: weight.T.contiguous() if weight.ndim == 2 and ".h." in name else weight  # noqa: PLR2004
        for name, weight in _gpt2_weights().items()
    }
    return {"model": weights, "model_args": {**GPT2, "block_size": 16, "bias": True}, "iter_num": 1}


def _block() -> dict[str, tuple[int, ...]]:
    return {
        "ln_1": (8,),
        "attn.c_attn": (8, 24),
        "attn.c_proj": (8, 8),
        "ln_2": (8,),
        "mlp.c_fc": (8, 32),
        "mlp.c_proj": (32, 8),
    }
