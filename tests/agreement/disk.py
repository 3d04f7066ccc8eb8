"""The same model by way of a folder, under the names on disk, as it is written now and was before.

Before version 5, rotary positions were told by fields of their own, and layers by rules.
"""

import json
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from agreement.comparing import off

import interp

FULL, SLIDING = "full_attention", "sliding_attention"


@torch.no_grad()
def from_disk(theirs, ours):
    """How far what was saved and loaded is from what was loaded from memory."""
    ids = torch.randint(3, ours.config.d_vocab, (2, 7), generator=torch.Generator().manual_seed(5))
    wanted, errors = ours(ids), []
    with TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        errors.append(off(interp.load(folder)(ids), wanted))
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(as_before(json.loads(path.read_text()), theirs.config)))
        errors.append(off(interp.load(folder)(ids), wanted))
    return max(errors)


def as_before(fields, config):
    """A ``config.json`` as version 4 wrote it."""
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
    ruled = getattr(type(config)(**deepcopy(fields)), "layer_types", None)
    return fields if kinds == ruled else fields | {"layer_types": kinds}
