"""The same model loaded from folders: as written now, as written before, and as published.

The loaded model must always have the same configuration, the same weights and the same outputs.
"""

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from agreement.comparing import Check, inputs_of, off
from agreement.small import FULL, SLIDING
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import interp
from interp import Transformer
from interp.loading.live import last_stream

CONFIG, WEIGHTS = "config.json", "model.safetensors"
EMBEDDING = "shared.weight"
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


def written(theirs: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The fields and the weights of what their ``save_pretrained`` writes."""
    with TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        fields = json.loads(Path(folder, CONFIG).read_text(encoding="utf-8"))
        return fields, load_file(Path(folder, WEIGHTS))


def read(fields: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Transformer:
    """The model loaded from a folder with these fields and weights."""
    with TemporaryDirectory() as folder:
        Path(folder, CONFIG).write_text(json.dumps(fields), encoding="utf-8")
        save_file({name: w.clone() for name, w in weights.items()}, Path(folder, WEIGHTS))
        return interp.load(folder)


def changed(loaded: Transformer, ours: Transformer) -> float:
    """The largest difference of any weight or output."""
    assert replace(loaded.config, name="") == replace(ours.config, name="")
    weights = dict(loaded.named_parameters())
    errors = [off(weights.pop(name), weight) for name, weight in ours.named_parameters()]
    assert not weights, f"weights that ours lacks: {', '.join(weights)}"
    return max(*errors, outputs_apart(loaded, ours))


@torch.no_grad()
def outputs_apart(loaded: Transformer, ours: Transformer) -> float:
    """The largest difference of logits, or of streams where there are none."""
    inputs = inputs_of(ours)
    if not ours.config.unembeds:
        return off(last_stream(loaded, *inputs), last_stream(ours, *inputs))
    return off(loaded(*inputs), ours(*inputs))


def as_written(theirs: Any, ours: Transformer) -> float:
    """Loaded from the folder that ``save_pretrained`` writes."""
    with TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return changed(interp.load(folder), ours)


def as_before(theirs: nn.Module, ours: Transformer) -> float:
    """As version 4 of ``transformers`` wrote it: separate rotary fields, and layers by rules."""
    fields, weights = written(theirs)
    fields["torch_dtype"] = fields.pop("dtype")
    rope = fields.pop("rope_parameters")
    if FULL in rope:
        fields["rope_local_base_freq"] = rope[SLIDING]["rope_theta"]
        rope = rope[FULL]
    for name in ("rope_theta", "partial_rotary_factor"):
        fields |= {name: rope.pop(name)} if name in rope else {}
    rope["type"] = rope.pop("rope_type")
    fields["rope_scaling"] = None if rope["type"] == "default" else rope
    kinds = fields.pop("layer_types", None)
    if kinds != getattr(type(theirs.config)(**deepcopy(fields)), "layer_types", None):
        fields["layer_types"] = kinds
    return changed(read(fields, weights), ours)


def with_embedding_elsewhere(theirs: nn.Module, ours: Transformer) -> float:
    """An encoder–decoder with its shared embedding under each name that files may use."""
    fields, weights = written(theirs)
    key = next((key for key in weights if key.endswith(EMBEDDING)), None)
    if key is None or not (ours.config.shared or len(ours.stacks) == 1):
        return 0.0  # each tower has its own
    rows, errors = weights.pop(key), []
    for name in COPIES if "lm_head.weight" in weights else (*COPIES, "lm_head.weight"):
        renamed = name if name.startswith("lm_head") else key.replace(EMBEDDING, name)
        errors.append(changed(read(fields, weights | {renamed: rows}), ours))
    return max(errors)


def published(
    fields: Mapping[str, object],
    names: Mapping[str, str] | None = None,
    more: Mapping[str, tuple[int, ...]] | None = None,
) -> Check:
    """A check of files as they were first published.

    Args:
        fields: the fields of their ``config.json``.
        names: patterns of weights' names, and their replacements in the file.
        more: names and shapes of tensors that the file holds besides the weights.
    """

    def check(theirs: nn.Module, ours: Transformer) -> float:
        weights = dict(theirs.state_dict())
        for pattern, name in (names or {}).items():
            weights = {re.sub(pattern, name, key): weight for key, weight in weights.items()}
        weights |= {name: torch.ones(shape) for name, shape in (more or {}).items()}
        return changed(read(fields, weights), ours)

    return check
