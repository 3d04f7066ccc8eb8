"""A model that ``transformers`` holds in memory, base or with a head: the same weights as ours.

After loading, both read the same few tokens; the largest difference of what they give out is kept
as the model's ``agreement`` and stands in every provenance.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from interp.errors import ModelLoadError
from interp.loading.agreement import agreement
from interp.loading.assemble import assembled
from interp.loading.registry import family_of
from interp.loading.source import Live
from interp.loading.special_tokens import equip, given_tokenizer
from interp.model.embeddings import Patches
from interp.model.unembedding import ProjectedUnembedding
from interp.transformer import Transformer

GIVEN_OUT = ("logits", "prediction_logits", "last_hidden_state")
"""What ``transformers`` calls what a model gives out: the first that there is counts."""
TRIED = 8
"""Tokens of the check."""


def is_live(source: object) -> bool:
    """Whether something looks like a model of ``transformers``."""
    return isinstance(source, torch.nn.Module) and hasattr(source, "config")


def load_live(
    theirs: Any,  # noqa: ANN401 - transformers is not imported here
    tokenizer: object = None,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> Transformer:
    """Our form of a live model; a copy of its weights, on its device if no other is named.

    Raises:
        ModelLoadError: its family is not known, it has weights that ours lacks, or what it gives
            out differs from what ours does.
    """
    told = getattr(theirs.config, "to_dict", dict)()
    if "model_type" not in told:
        raise ModelLoadError(
            f"{type(theirs).__name__} is no model of transformers: its config says no model_type. "
            "Give other models as a folder."
        )
    fields = {**told, "architectures": [type(theirs).__name__]}
    weights = theirs.state_dict()
    first = next(iter(weights.values()), None)
    place = device if device is not None or first is None else first.device
    model = assembled(family_of(fields), fields, Live(weights), dtype, place)
    name = fields.get("_name_or_path") or type(theirs).__name__
    model.config = replace(model.config, name=str(name))
    equip(model, fields, given_tokenizer(tokenizer))
    model.agreement = _checked(model, theirs)
    return model


@torch.no_grad()
def _checked(model: Transformer, theirs: Any) -> float:  # noqa: ANN401 - transformers' own
    """The largest difference of what both give out, of the largest number.

    Raises:
        ModelLoadError: it is so large that the two compute different things.
    """
    inputs, named = _inputs(model, getattr(theirs.config, "pad_token_id", None))
    own = next(theirs.parameters())
    named = {
        name: x.to(own.device, own.dtype if x.is_floating_point() else None)
        for name, x in named.items()
    }
    modes = [(module, module.training) for module in theirs.modules()]
    theirs.eval()
    try:
        told = theirs(**named, return_dict=True)
    finally:
        for module, trains in modes:
            module.training = trains
    given = next((name for name in GIVEN_OUT if told.get(name) is not None), None)
    if given is None:
        raise ModelLoadError(
            f"{type(theirs).__name__} gives out {', '.join(told)}; this toolkit compares one of "
            f"{', '.join(GIVEN_OUT)}."
        )
    expected: Tensor = told[given]
    streams = given == "last_hidden_state"
    found = last_stream(model, *inputs) if streams else model(*inputs)
    if expected.ndim < found.ndim:  # a class a text or an image: what is said at its first token
        found = found[:, 0]
    return agreement(found, expected, type(theirs).__name__)


def last_stream(model: Transformer, *inputs: Tensor, mask: Tensor | None = None) -> Tensor:
    """What a base model of theirs gives out: behind the matrix to W_U's width, if there is one."""
    x = model.stream(model.check(*inputs, mask=mask))
    return model.unembed.read(x) if isinstance(model.unembed, ProjectedUnembedding) else x


def _shortest(model: Transformer) -> int:
    """So few tokens that no model stretches its positions for them."""
    scalings = [stack.positions.scaling for stack in model.config.stacks.values()]
    trained = [scaling.original_ctx - 1 for scaling in scalings if scaling is not None]
    return max(1, min([*trained, model.config.n_ctx]))


def _inputs(model: Transformer, pad: object) -> tuple[list[Tensor], dict[str, Tensor]]:
    """A few tokens (or an image) for each stack, and what ``transformers`` calls them.

    None is what they pad with, which some models give no position.
    """
    generator = torch.Generator().manual_seed(0)
    patches = model.stacks[0].tokens
    if isinstance(patches, Patches):
        image = torch.randn(1, *patches.image_shape, generator=generator)
        image = image.to(model.device, model.dtype)
        return [image], {"pixel_values": image}
    tried = min(TRIED, _shortest(model))
    ids: list[Tensor] = []
    for stack in model.stacks:
        others = max(1, model.config.vocabulary_of(stack.name) - 1)
        drawn = torch.randint(others, (1, tried), generator=generator)
        ids.append(drawn + (drawn >= pad) if isinstance(pad, int) and others > 1 else drawn)
    names = ("input_ids", "decoder_input_ids")
    return ids, dict(zip(names, ids, strict=False))
