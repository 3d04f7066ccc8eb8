"""Build models from a configuration, a table of weights and a source of tensors.

Names, shapes and dtypes of all weights are checked before any of them is read. A missing weight
raises an error: no weight is initialised at random.
"""

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from interp.config import MAX_LAYERS, Config
from interp.errors import InvalidInput, ModelLoadError, first_line, shorten
from interp.loading.family import Family
from interp.loading.foreign_config import BASE_MODEL, ForeignConfig
from interp.loading.known_fields import used_fields
from interp.loading.shares import device_of_weights, own_share, placed
from interp.loading.source import DTYPES, Source
from interp.loading.weight import Table, from_key
from interp.loading.weight_names import canonical_names, unembedding_kind, without_copies
from interp.transformer import Transformer

LAYERS = re.compile(r"(n|num|num_hidden|num_decoder|encoder|decoder)_layers?")
EXPERTS = re.compile(r"_experts$")
HEADED = re.compile(r"For[A-Z]|LMHead")
"""Matches the names of classes that have a head."""
HEADS = re.compile(r"(^|\.)(qa_outputs|score|classifier|classification_head)\.")
"""Matches the names of weights of heads that answer questions or classify."""


def assemble(
    family: Family,
    config_json: Mapping[str, Any],
    source: Source,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    *,
    strict: bool = False,
) -> Transformer:
    """The model of a foreign configuration and its weights.

    Args:
        family: the family of the model.
        config_json: the content of its ``config.json``.
        source: its weights.
        dtype: the dtype to compute in; ``None`` means the most frequent dtype of the weights.
        device: the device of the parameters.
        strict: whether fields are refused that no part of the model reads; otherwise, a warning
            names them.

    Raises:
        ModelLoadError: a field is missing or not supported, or a weight is missing, unexpected,
            or of another shape or dtype.
    """
    canonical = used_fields(family, config_json, strict=strict)
    _check_counts(family, canonical, source)
    tied = family.is_tied(ForeignConfig(family.name, canonical, family.defaults))
    names = without_copies(family, canonical_names(family, source.keys()), source, tied=tied)
    kind = unembedding_kind(family, names, source, tied=tied)
    fields = ForeignConfig(family.name, canonical, family.defaults, frozenset(names), kind)
    config = _config_of(family, fields)
    table = family.weights(config, fields)
    used = {key for weight in table.values() for key in weight.keys}
    used |= {family.head} if kind == "tied" else set()
    extra = sorted(n for n in set(names) - used if not family.is_optional(n))
    if extra:
        raise _unexpected(fields, [names[key] for key in extra])
    _check_head(family, config, fields)
    _warn_of_parts(family, source)
    return build(config, table, names, source, dtype, device)


def assemble_native(
    config: Config,
    source: Source,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> Transformer:
    """The model of a :class:`Config` and of weights stored under the parameters' own names."""
    names = {key: key for key in source.keys()}  # noqa: SIM118 - a source is not a dictionary
    layers = sum(stack.n_layers for stack in config.stacks.values())
    if layers > len(names):
        raise ModelLoadError(
            f"The config asks for {layers} layers, but there are only {len(names)} weights."
        )
    table = {name: from_key(name) for name, _ in meta_model(config).named_parameters()}
    extra = sorted(set(names) - set(table))
    if extra:
        raise ModelLoadError(
            f"{extra[0]} belongs to no part of this model; does config.json belong to these "
            "weights?"
        )
    return build(config, table, names, source, dtype, device)


def as_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """A dtype that models compute in, from its name or itself; ``None`` stays ``None``.

    Raises:
        InvalidInput: models do not compute in it.
    """
    named = {str(each).removeprefix("torch."): each for each in DTYPES.values()}
    if isinstance(dtype, str) and dtype in named:
        return named[dtype]
    if dtype is None or (isinstance(dtype, torch.dtype) and dtype in named.values()):
        return dtype
    raise InvalidInput(
        f"dtype={shorten(dtype)}: models compute in {', '.join(named)}; choose one of these."
    )


def build(
    config: Config,
    table: Table,
    names: Mapping[str, str],
    source: Source,
    dtype: torch.dtype | None,
    device: str | torch.device | None,
) -> Transformer:
    """The model of ``config``, with the parameters that ``table`` computes.

    Args:
        config: the configuration.
        table: how each parameter is computed.
        names: the source's name for each key of the table.
        source: the tensors.
        dtype: the dtype to compute in; ``None`` means the most frequent dtype of the weights.
        device: the device of the parameters.

    Raises:
        ModelLoadError: a weight is missing, of another shape or dtype, or not finite.
        InvalidInput: the device does not exist, or ``dtype`` is not one that models compute in.
    """
    dtype = as_dtype(dtype)
    model = meta_model(config)
    device_of = device_of_weights(model, device)
    _check_weights(model, table, names, source)
    compute_dtype = dtype or _most_frequent(
        source.dtype(names[k]) for w in table.values() for k in w.keys
    )
    parameters: dict[int, nn.Parameter] = {}
    for name, parameter in model.named_parameters():
        read = table[name](lambda key: source.read(names[key]))
        tensor = own_share(model, name, read).to(compute_dtype)
        if not is_finite(tensor):
            kind = str(compute_dtype).removeprefix("torch.")
            raise ModelLoadError(f"{name} has values that are not finite numbers in {kind}.")
        parameters[id(parameter)] = nn.Parameter(_moved(tensor, compute_dtype, device_of(name)))
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            module.register_parameter(name, parameters[id(parameter)])
        for name, buffer in module.named_buffers(recurse=False):
            module.register_buffer(
                name,
                torch.empty(buffer.shape, dtype=compute_dtype, device=device_of(f"{path}.")),
                persistent=False,
            )
    return placed(model.eval())


def is_finite(tensor: Tensor) -> bool:
    """Whether all elements are finite; if their sum is finite, no element is checked by itself."""
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    total = tensor.sum(dtype=torch.float32 if half else None)
    return bool(total.isfinite()) or bool(tensor.isfinite().all())


# ---- the configuration --------------------------------------------------------------------------


def _config_of(family: Family, fields: ForeignConfig) -> Config:
    try:
        config = family.config(fields)
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
        raise ModelLoadError(
            f"{family.name}: config.json does not describe a valid model: {first_line(error)}"
        ) from error
    if config.decoder is not None and fields.nullable("is_causal", default=True) is not True:
        raise fields.unsupported("is_causal", fields.nullable("is_causal"), "True")
    return config


def _unexpected(fields: ForeignConfig, keys: list[str]) -> ModelLoadError:
    """The error for weights that belong to no part of the model.

    Args:
        fields: the configuration.
        keys: their names.
    """
    head = next(filter(HEADS.search, keys), None)
    if head is not None:
        name = next(filter(HEADED.search, fields.class_names), "the model")
        return ModelLoadError(
            f"{fields.family}: {head} belongs to the head of {name}, which is not supported. "
            f"{BASE_MODEL}"
        )
    return ModelLoadError(
        f"{fields.family}: {keys[0]} belongs to no part of this model (nor do {len(keys) - 1} "
        "others); does config.json belong to these weights?"
    )


def _check_head(family: Family, config: Config, fields: ForeignConfig) -> None:
    """Refuse a model whose class name implies a head if only the head's weights are missing."""
    name = next(filter(HEADED.search, fields.class_names), None)
    has_body = family.embedding in (*fields.weight_names, "")
    if name is not None and has_body and not config.unembeds and fields.n_classes > 0:
        raise ModelLoadError(
            f"{family.name}: config.json has architectures={name}, but the weights of its head are "
            f"missing ({family.head}), and it is not tied to the embedding. If this is the base "
            "model, remove architectures from config.json."
        )


def _warn_of_parts(family: Family, source: Source) -> None:
    """Warn if weights of other parts of the model are left out."""
    named = ((key, family.part_left_out(key)) for key in source.keys() if family.left_out)  # noqa: SIM118
    parts: dict[str, list[str]] = {}
    for key, part in named:
        if part is not None:
            parts.setdefault(part, []).append(key)
    for part, keys in parts.items():
        warnings.warn(
            f"{family.name}: {part} is left out ({len(keys)} weights, {keys[0]} and others); the "
            "loaded model reads only tokens.",
            UserWarning,
            stacklevel=5,
        )


def _check_counts(family: Family, fields: Mapping[str, Any], source: Source) -> None:
    """Bound the numbers of layers and experts before memory is allocated for them.

    A layer has at least one weight, unless layers share theirs; an expert at least one number.
    """
    keys = source.keys()
    size = sum(prod(source.shape(key)) for key in keys)
    most_layers = None if family.shares_layers else len(keys)
    for name, value in fields.items():
        bound = most_layers if LAYERS.fullmatch(name) else size if EXPERTS.search(name) else None
        if bound is not None and isinstance(value, int) and value > bound:
            raise ModelLoadError(
                f"{family.name}: config.json has {name}={value}, but there are only {len(keys)} "
                f"weights with {size} numbers in total."
            )


# ---- parameters ---------------------------------------------------------------------------------


def meta_model(config: Config) -> Transformer:
    """The model on the meta device, whose parameters have shapes but no data."""
    layers = max(stack.n_layers for stack in config.stacks.values())
    if layers > MAX_LAYERS:
        raise ModelLoadError(
            f"The config asks for {layers} layers; at most {MAX_LAYERS} are supported."
        )
    try:
        with torch.device("meta"):
            return Transformer(config)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise ModelLoadError(
            f"A model of the sizes in the config can't be built: {first_line(error)}"
        ) from error


def _check_weights(
    model: nn.Module, table: Table, names: Mapping[str, str], source: Source
) -> None:
    """Check on the meta device that every parameter can be computed and has the right shape."""

    def meta(key: str) -> Tensor:
        dtype = source.dtype(names[key])
        if dtype is None:
            raise ModelLoadError(
                f"{names[key]} does not have a floating-point dtype (is the model quantised?); "
                "store the weights as float32, float16 or bfloat16."
            )
        return torch.empty(source.shape(names[key]), dtype=dtype, device="meta")

    for name, parameter in model.named_parameters():
        expected = tuple(parameter.shape)
        missing = [k for k in table[name].keys if k not in names] if name in table else [name]
        if missing:
            raise ModelLoadError(
                f"The weight {missing[0]} is missing; {name} {expected} is computed from it."
            )
        shapes = {names[key]: source.shape(names[key]) for key in table[name].keys}
        sources = ", ".join(f"{key} {shape}" for key, shape in shapes.items())
        try:
            computed = tuple(table[name](meta).shape)
        except (RuntimeError, IndexError, TypeError) as error:
            raise ModelLoadError(
                f"{name} {expected} can't be computed from {sources}: {first_line(error)}"
            ) from error
        if computed != expected:
            raise ModelLoadError(
                f"{name} computed from {sources} has the shape {computed}; the config asks for "
                f"{expected}."
            )


def _most_frequent(dtypes: Iterable[torch.dtype | None]) -> torch.dtype:
    counts = Counter(dtype for dtype in dtypes if dtype is not None)
    return counts.most_common(1)[0][0]


def _moved(tensor: Tensor, dtype: torch.dtype, device: str | torch.device | None) -> Tensor:
    try:
        return tensor.to(device=device, dtype=dtype)
    except (RuntimeError, AssertionError) as error:
        raise InvalidInput(f"Weights can't be moved to {device}: {first_line(error)}") from error
