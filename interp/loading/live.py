"""Load models of ``transformers`` in memory, base or with a head, by copying their weights.

After loading, the outputs of both models for the same short input are compared. The largest
difference is kept as ``model.agreement`` and is recorded in every provenance.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import ModelLoadError, first_line
from interp.loading.agreement import (
    N_TOKENS,
    attending_by,
    check_agreement,
    evaluating,
    expected_rounding,
    random_ids,
)
from interp.loading.assemble import assemble
from interp.loading.family import Family
from interp.loading.registry import family_of
from interp.loading.source import DTYPES, StateDictSource
from interp.loading.special_tokens import as_tokenizer, set_tokenizer
from interp.model import Patches, ProjectedExit, ProjectedUnembedding
from interp.transformer import Transformer

LOGITS = ("logits", "prediction_logits", "image_embeds", "text_embeds")
STREAM, POOLED = "last_hidden_state", "pooler_output"
"""Outputs of models of ``transformers`` that can be compared; the first one present is used."""


def is_live(source: object) -> bool:
    """Whether an object looks like a model of ``transformers``."""
    return isinstance(source, torch.nn.Module) and hasattr(source, "config")


def load_live(
    hf_model: Any,  # noqa: ANN401 - transformers is not imported here
    tokenizer: object = None,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    *,
    strict: bool = False,
) -> Transformer:
    """Convert a live model to a :class:`Transformer`, with a copy of its weights.

    Args:
        hf_model: a model of ``transformers``.
        tokenizer: as for :func:`interp.load`.
        dtype: the dtype to compute in; ``None`` means the most frequent dtype of the weights.
        device: the device of the parameters; ``None`` means that of the model.
        strict: as for :func:`interp.load`.

    Raises:
        ModelLoadError: the family is not supported, a weight belongs to no part of the
            :class:`Transformer`, or the outputs differ by more than rounding.
    """
    config_json, weights = fields_of(hf_model), hf_model.state_dict()
    family = family_of(config_json)
    if not is_quantised(family, weights):
        config_json.pop("quantization_config", None)
    device = device_of(weights) if device is None else device
    model = assemble(family, config_json, StateDictSource(weights), dtype, device, strict=strict)
    model.config = replace(model.config, name=name_of(hf_model, config_json))
    set_tokenizer(model, config_json, as_tokenizer(tokenizer), generation_of(hf_model))
    names = (*LOGITS, POOLED if family.pooled else STREAM)
    with attending_by(hf_model.config, family.compared_attention):
        model.agreement = _agreement(model, hf_model, names)
    return model


def fields_of(hf_model: Any) -> dict[str, Any]:  # noqa: ANN401 - of transformers
    """The ``config.json`` that the model would be saved with.

    Raises:
        ModelLoadError: the model's configuration is not one of ``transformers``.
    """
    config_json = getattr(hf_model.config, "to_dict", dict)()
    if "model_type" not in config_json:
        raise ModelLoadError(
            f"{type(hf_model).__name__} is not a model of transformers: its config has no "
            "model_type. Load other models from a folder."
        )
    return {**config_json, "architectures": [type(hf_model).__name__]}


def generation_of(hf_model: Any) -> dict[str, Any]:  # noqa: ANN401 - of transformers
    """The model's ``generation_config.json``; empty if it has none."""
    return getattr(getattr(hf_model, "generation_config", None), "to_dict", dict)()


def name_of(hf_model: Any, config_json: Mapping[str, Any]) -> str:  # noqa: ANN401 - of transformers
    """The name or path that the model was loaded from, or else the name of its class."""
    return str(config_json.get("_name_or_path") or type(hf_model).__name__)


def device_of(weights: Mapping[str, Tensor]) -> torch.device | None:
    """The device of the first weight; ``None`` if there is none."""
    first = next(iter(weights.values()), None)
    return None if first is None else first.device


def is_quantised(family: Family, weights: Mapping[str, Tensor]) -> bool:
    """Whether a weight has a dtype that no model computes in.

    The ``quantization_config`` of a model says how its file was quantised; if the weights were
    dequantised as they were loaded (from GGUF, from MXFP4), it stays.
    """
    loaded = (x for name, x in weights.items() if family.canonical_name(name) is not None)
    return any(x.dtype not in DTYPES.values() for x in loaded)


def last_stream(model: Transformer, *inputs: Tensor, mask: Tensor | None = None) -> Tensor:
    """The ``last_hidden_state`` of ``transformers``: the last stream, projected if there is a W_P.

    Args:
        model: any model.
        *inputs: as for ``model(*inputs)``.
        mask: nonzero at real tokens.
    """
    x = model.stream(model.check(*inputs, mask=mask))
    last = model.unembed
    return last.read(x) if isinstance(last, ProjectedUnembedding | ProjectedExit) else x


def pooled_column(
    computed: Float[Tensor, "batch pos width"], pooled: Float[Tensor, "batch width"]
) -> Float[Tensor, "batch width"]:
    """For each row, the vector nearest to its pooled output: that of CLS, EOS or the last token."""
    nearest = (computed - pooled[:, None]).abs().amax(-1).argmin(-1)
    return computed[torch.arange(len(computed), device=computed.device), nearest]


@torch.no_grad()
def _agreement(
    model: Transformer,
    hf_model: Any,  # noqa: ANN401 - of transformers
    names: tuple[str, ...],
) -> float:
    """The largest relative difference of the two models' outputs.

    Args:
        model: the loaded model.
        hf_model: the model that it was loaded from.
        names: the outputs of ``hf_model`` that can be compared; the first one present is used.

    Raises:
        ModelLoadError: the difference is more than rounding, or no output can be compared.
    """
    inputs, named = inputs_of(model, getattr(hf_model.config, "pad_token_id", None))
    outputs = outputs_of(hf_model, named)
    origin = type(hf_model).__name__
    output = next((name for name in names if outputs.get(name) is not None), None)
    if output is None:
        raise ModelLoadError(
            f"{origin} returns {', '.join(outputs)}; none of "
            f"{', '.join(names)} is there to compare. Load its base model."
        )
    expected: Tensor = outputs[output]
    computed = last_stream(model, *inputs) if output == STREAM else model(*inputs)
    computed = as_output(computed, expected, output)
    return check_agreement(computed, expected, origin, expected_rounding(model))


@torch.no_grad()
def outputs_of(hf_model: Any, named: Mapping[str, Tensor]) -> Any:  # noqa: ANN401 - of transformers
    """The outputs of a live model in evaluation mode.

    Args:
        hf_model: the model.
        named: its inputs by name, of any device and dtype.

    Raises:
        ModelLoadError: its forward raised an exception.
    """
    weight = next(hf_model.parameters())
    moved = {
        name: x.to(weight.device, weight.dtype if x.is_floating_point() else None)
        for name, x in named.items()
    }
    with evaluating(hf_model):
        try:
            return hf_model(**moved, return_dict=True)
        except Exception as error:  # the model's own code may raise any exception
            raise ModelLoadError(
                f"{type(hf_model).__name__} can't be compared with the loaded model: its forward "
                f"raised {type(error).__name__}: {first_line(error)[:200]}"
            ) from error


def as_output(computed: Tensor, expected: Tensor, name: str) -> Tensor:
    """``computed`` without the axis or the positions that the output ``name`` lacks, if any.

    The axis is that of classes, if there is a single class per token, or of positions: position 0
    is selected for ``logits`` (of a text or an image), the pooled position for other outputs. The
    positions are those of special tokens before the patches of an image.
    """
    if computed.ndim == expected.ndim:
        return computed[:, -expected.shape[1] :]
    if computed.shape == (*expected.shape, 1):
        return computed[..., 0]
    return computed[:, 0] if name == "logits" else pooled_column(computed, expected)


def inputs_of(model: Transformer, pad: object) -> tuple[list[Tensor], dict[str, Tensor]]:
    """The input of each stack, and the same inputs by their names in ``transformers``.

    Ids exclude that of the padding token, which has no position in some models.
    """
    patches = model.stacks[0].tokens
    if isinstance(patches, Patches):
        generator = torch.Generator().manual_seed(0)
        image = torch.randn(1, *patches.image_shape, generator=generator)
        image = image.to(model.device, model.dtype)
        return [image], {"pixel_values": image}
    ids = random_ids(model, min(N_TOKENS, _unscaled_length(model)), excluded=pad)
    return ids, dict(zip(("input_ids", "decoder_input_ids"), ids, strict=False))


def _unscaled_length(model: Transformer) -> int:
    """A length of text at which no scaling of rotary positions depends on the length."""
    scalings = [stack.positions.scaling for stack in model.config.stacks.values()]
    bounds = [scaling.original_ctx - 1 for scaling in scalings if scaling is not None]
    return max(1, min([*bounds, model.config.n_ctx]))
