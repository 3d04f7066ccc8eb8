"""A small GGUF file, whole and damaged: other values, other sizes and offsets, other bytes."""

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from interp.loading import GgufEntry
from tools.fuzz.mutations import damaged_bytes

FILE = "model.gguf"
SIZES = {"context_length": 16, "embedding_length": 32, "block_count": 1, "feed_forward_length": 32}
HEADS = {"attention.head_count": 2, "attention.layer_norm_rms_epsilon": 1e-5}
TOKENS = ["<s>", *"abcdefg", "ab", "cd"]
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    **{f"llama.{name}": size for name, size in {**SIZES, **HEADS}.items()},
    "llama.rope.scaling.type": "linear",
    "llama.rope.scaling.factor": 2.0,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3, *[1] * (len(TOKENS) - 1)],
    "tokenizer.ggml.merges": ["a b", "c d"],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.add_bos_token": True,
    "split.no": 0,
    "split.count": 1,
}
MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
Q8_0, F32 = 8, 0
TYPES = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}
"""Number and format of the type of a value."""
NUMBERS = (0, 1, 7, 8, 31, 33, 2**16, 2**31, 2**32, 2**62, 2**63, 2**64 - 1)
OTHERS = (*NUMBERS, -1, 0.5, float("nan"), 1e30, True, "", "x", "é" * 500, [], [1], ["a"], [0.5])


def write_gguf(folder: Path) -> None:
    """A model of one layer with a tokenizer; its matrices are quantised."""
    (folder / FILE).write_bytes(encoded(*_whole()))


def _whole() -> tuple[dict[str, Any], dict[str, GgufEntry], bytes]:
    """Metadata, tensors and data of the file."""
    tensors = {"token_embd.weight": (len(TOKENS), 32), "output_norm.weight": (32,)}
    tensors |= {f"blk.0.{name}.weight": (32,) for name in ("attn_norm", "ffn_norm")}
    tensors |= {f"blk.0.{name}.weight": (32, 32) for name in MATRICES}
    entries: dict[str, GgufEntry] = {}
    data = b""
    for name, shape in tensors.items():
        kind = F32 if len(shape) == 1 else Q8_0
        entries[name] = GgufEntry(shape, kind, len(data))
        block = struct.pack("<e", 0.01) + bytes(range(32))
        part = np.ones(32, "<f4").tobytes() if kind == F32 else block * shape[0]
        data += part + bytes(-len(part) % 32)
    return dict(METADATA), entries, data


def damaged_gguf(random: Random, content: bytes) -> bytes:
    """Other bytes, or another value in the metadata or in the list of tensors."""
    metadata, entries, data = _whole()
    changes: tuple[Callable[[], object], ...] = (
        lambda: metadata.update({random.choice([*metadata]): random.choice(OTHERS)}),
        lambda: metadata.pop(random.choice([*metadata])),
        lambda: metadata.update({random.choice(("", "llama.x", "\0")): random.choice(OTHERS)}),
        lambda: entries.update({random.choice([*entries]): _other_entry(random)}),
        lambda: entries.pop(random.choice([*entries])),
        lambda: entries.update(
            {random.choice(("", "x", "blk.9.attn_q.weight")): _other_entry(random)}
        ),
    )
    if random.random() < 0.5:  # noqa: PLR2004 - half of them
        return damaged_bytes(random, content)
    random.choice(changes)()
    return encoded(metadata, entries, data, random.choice((1, 2, 3, 3, 3, 3)))


def _other_entry(random: Random) -> GgufEntry:
    shape = tuple(random.choice((1, 10, 32, *NUMBERS)) for _ in range(random.randrange(6)))
    return GgufEntry(shape, random.choice((0, 1, 8, 12, 99)), random.choice((0, 32, 64, *NUMBERS)))


def encoded(
    metadata: Mapping[str, Any], entries: Mapping[str, GgufEntry], data: bytes, version: int = 3
) -> bytes:
    """The bytes of a file; numbers are cut to the width of their type."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(entries), len(metadata))
    for name, value in metadata.items():
        head += _text(name) + _value(value)
    for name, entry in entries.items():
        sizes = [size % 2**64 for size in reversed(entry.shape)]
        head += _text(name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        head += struct.pack("<IQ", entry.type % 2**32, entry.offset % 2**64)
    return head + bytes(-len(head) % 32) + data


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:  # noqa: ANN401 - a value of the metadata
    """Type and bytes of a value."""
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, list):
        parts: list[bytes] = [_value(part) for part in value]
        kind = parts[0][:4] if parts else struct.pack("<I", 4)
        return (
            struct.pack("<I", 9)
            + kind
            + struct.pack("<Q", len(parts))
            + b"".join(part[4:] for part in parts)
        )
    kind, form = TYPES[type(value)]
    number = value % 2**32 if isinstance(value, int) and not isinstance(value, bool) else value
    return struct.pack(f"<I{form}", kind, number)
