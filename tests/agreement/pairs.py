"""An encoder and a decoder by way of a folder, with the embedding under each name it may have."""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from agreement.comparing import off
from safetensors.torch import load_file, save_file

import interp

SHARED = "shared.weight"
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


def some_tokens(ours):
    """For each stack a few."""
    generator = torch.Generator().manual_seed(5)
    sizes = [ours.config.vocabulary_of(stack.name) for stack in ours.stacks]
    return [torch.randint(3, size, (2, 7), generator=generator) for size in sizes]


@torch.no_grad()
def pair_from_disk(theirs, ours):
    """How far what was saved and loaded is from what was loaded from memory."""
    ids = some_tokens(ours)
    wanted, errors = ours(*ids), []
    with TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        errors.append(off(interp.load(folder)(*ids), wanted))
        path = Path(folder, "model.safetensors")
        weights = load_file(path)
        key = next((key for key in weights if key.endswith(SHARED)), None)
        if key is None or not (ours.config.shared or len(ours.stacks) == 1):
            return max(errors)
        rows = weights.pop(key)
        for name in COPIES if "lm_head.weight" in weights else (*COPIES, "lm_head.weight"):
            own = name if name.startswith("lm_head") else key.replace(SHARED, name)
            save_file(weights | {own: rows}, path)
            loaded = interp.load(folder)
            assert (loaded.config.tied, loaded.config.shared) == (
                ours.config.tied,
                ours.config.shared,
            )
            errors.append(off(loaded(*ids), wanted))
    return max(errors)
