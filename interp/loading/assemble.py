"""Is every weight there, of the right shape and finite? Then a model is made of them.

First everything is checked that names, shapes and types can tell; only then is a weight read. None
is ever filled in at random.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from interp.config import Config
from interp.errors import InvalidInput, ModelLoadError, first_line
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.source import TYPES, Source
from interp.loading.weight import Table, at
from interp.transformer import Transformer

LAYERS = re.compile(r"(n|num|num_hidden|num_decoder|encoder|decoder)_layers?")
EXPERTS = re.compile(r"_experts$")


def assembled(
    family: Family,
    fields: Mapping[str, Any],
    source: Source,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> Transformer:
    """The model that a foreign configuration and its weights make.

    Args:
        family: which kind it is.
        fields: of its ``config.json``.
        source: its weights.
        dtype: to compute in; ``None`` means that of the weights.
        device: where they go.

    Raises:
        ModelLoadError: a field or a weight that is missing, extra, or not what it should be.
    """
    fields = family.fields_of(fields)
    _check_counts(family, fields, source)
    told = Raw(family.name, fields, family.defaults)
    ties: bool = told.get("tie_word_embeddings", family.ties)
    names = _less_copies(family, _named(family, source.keys()), source, ties=ties)
    head = _head(family, names, source, ties=ties)
    raw = Raw(family.name, fields, family.defaults, frozenset(names), head)
    raw.only("quantization_config")
    raw.only("per_layer_config")
    try:
        config = family.config(raw)
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
        raise ModelLoadError(
            f"{family.name}: config.json describes no model: {first_line(error)}"
        ) from error
    if config.decoder is not None:
        raw.only("is_causal", (True,))
    unneeded = {family.head} if head == "tied" else set[str]()
    table = family.weights(config, raw)
    used = {key for weight in table.values() for key in weight.keys}
    extra = sorted(n for n in set(names) - used - unneeded if not family.may_leave(n))
    if extra:
        raise ModelLoadError(
            f"{family.name}: {names[extra[0]]} belongs to no part of this model (so do "
            f"{len(extra) - 1} others); is config.json another model's?"
        )
    return filled(config, table, names, source, dtype, device)


def as_written(
    config: Config,
    source: Source,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> Transformer:
    """The model whose weights have our own names."""
    names = {key: key for key in source.keys()}  # noqa: SIM118 - a source is no dictionary
    layers = sum(stack.n_layers for stack in config.stacks.values())
    if layers > len(names):
        raise ModelLoadError(
            f"The config asks for {layers} layers; there are {len(names)} weights."
        )
    table = {name: at(name) for name, _ in _outlined(config).named_parameters()}
    extra = sorted(set(names) - set(table))
    if extra:
        raise ModelLoadError(f"{extra[0]} belongs to no part of this model.")
    return filled(config, table, names, source, dtype, device)


def filled(
    config: Config,
    table: Table,
    names: Mapping[str, str],
    source: Source,
    dtype: torch.dtype | None,
    device: str | torch.device | None,
) -> Transformer:
    """The model of ``config``, each weight made as ``table`` says.

    Args:
        config: what the model is.
        table: our names, and what each is made of.
        names: the source's name of each key in the table.
        source: the tensors.
        dtype: to compute in; ``None`` means the one that most weights have.
        device: where they go.

    Raises:
        ModelLoadError: a weight that is missing, of another shape or type, or not finite.
        InvalidInput: no such device, or a type that nothing can be computed in.
    """
    if dtype is not None and dtype not in TYPES.values():
        known = ", ".join(str(one).removeprefix("torch.") for one in TYPES.values())
        raise InvalidInput(f"dtype={dtype} is none that a model computes in; those are {known}.")
    model = _outlined(config)
    _check(model, table, names, source)
    common = dtype or _commonest(source.dtype(names[key]) for w in table.values() for key in w.keys)
    made: dict[int, nn.Parameter] = {}
    for name, parameter in model.named_parameters():
        tensor = table[name](lambda key: source.read(names[key])).to(common)
        if not is_finite(tensor):
            kind = str(common).removeprefix("torch.")
            raise ModelLoadError(f"{name} holds values that are not finite numbers in {kind}.")
        made[id(parameter)] = nn.Parameter(_placed(tensor, common, device))
    for module in model.modules():
        for name, own in module.named_parameters(recurse=False):
            module.register_parameter(name, made[id(own)])
        for name, buffer in module.named_buffers(recurse=False):
            module.register_buffer(
                name, torch.empty(buffer.shape, dtype=common, device=device), persistent=False
            )
    return model.eval()


def _outlined(config: Config) -> Transformer:
    """The model with shapes and no weights."""
    try:
        with torch.device("meta"):
            return Transformer(config)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise ModelLoadError(
            f"No model has the sizes that the config asks for: {first_line(error)}"
        ) from error


def is_finite(tensor: Tensor) -> bool:
    """Whether no element is NaN or infinite; by one sum, unless that is not finite itself."""
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    total = tensor.sum(dtype=torch.float32 if half else None)
    return bool(total.isfinite()) or bool(tensor.isfinite().all())


def _check_counts(family: Family, fields: Mapping[str, Any], source: Source) -> None:
    """Make sure that there can be so many layers and experts, before anything is made for each.

    A layer has a weight or more, an expert a number or more.
    """
    keys = source.keys()
    numbers = sum(prod(source.shape(key)) for key in keys)
    for name, value in fields.items():
        most = len(keys) if LAYERS.fullmatch(name) else numbers if EXPERTS.search(name) else None
        if most is not None and isinstance(value, int) and value > most:
            raise ModelLoadError(
                f"{family.name}: config.json says {name}={value}; there are {len(keys)} weights of "
                f"{numbers} numbers."
            )


def _named(family: Family, keys: Iterable[str]) -> dict[str, str]:
    """The source's name of each weight, by the family's own."""
    names: dict[str, str] = {}
    for key in keys:
        name = family.known_as(key)
        if name is None:
            continue
        if name in names:
            raise ModelLoadError(f"{family.name}: {names[name]} and {key} are the same weight.")
        names[name] = key
    return names


def _less_copies(
    family: Family, names: Mapping[str, str], source: Source, *, ties: bool
) -> dict[str, str]:
    """The names, where one embedding serves several stacks: it has one name, and each stack has it.

    A copy that holds other numbers stays: it is a stack's own.
    """
    if not family.copies:
        return dict(names)
    own = (family.embedding, *family.copies)
    stands_for_all = (family.shared, *own, family.head) if ties else (family.shared, *own)
    common = next((names[name] for name in stands_for_all if name in names), None)
    found = {name: key for name, key in names.items() if name != family.shared}
    if common is None:
        return found
    embedding = found.setdefault(family.embedding, common)
    for copy in family.copies:
        if _same(source, found.get(copy, common), embedding):
            found.pop(copy, None)
        else:
            found.setdefault(copy, common)
    return found


def _same(source: Source, one: str, other: str) -> bool:
    """Whether two tensors are equal, number by number."""
    if one == other:
        return True
    if source.shape(one) != source.shape(other):
        return False
    return torch.equal(source.read(one), source.read(other))


def _head(family: Family, names: Mapping[str, str], source: Source, *, ties: bool) -> str:
    """Whether the unembedding is ``tied``, has weights of its ``own``, or there is ``none``.

    Two matrices that are there both are compared by value, whatever the configuration says.
    """
    if family.head not in names:
        return "tied" if ties and family.embedding in names else "none"
    if family.embedding not in names:
        return "own"
    return "tied" if _same(source, names[family.head], names[family.embedding]) else "own"


def _check(model: nn.Module, table: Table, names: Mapping[str, str], source: Source) -> None:
    """Make sure that all is there and fits, without reading any of it."""

    def outline(key: str) -> Tensor:
        dtype = source.dtype(names[key])
        if dtype is None:
            raise ModelLoadError(
                f"{names[key]} is of a type that is no floating-point number (is the model "
                "quantised?); give the weights as float32, float16 or bfloat16."
            )
        return torch.empty(source.shape(names[key]), dtype=dtype, device="meta")

    for name, parameter in model.named_parameters():
        missing = [k for k in table[name].keys if k not in names] if name in table else [name]
        if missing:
            shape = tuple(parameter.shape)
            raise ModelLoadError(f"The weight {missing[0]} is missing; {name} {shape} takes it.")
        try:
            found = tuple(table[name](outline).shape)
        except (RuntimeError, IndexError, TypeError) as error:
            shapes = {names[key]: source.shape(names[key]) for key in table[name].keys}
            raise ModelLoadError(
                f"{name} {tuple(parameter.shape)} can't be made of {shapes}: {first_line(error)}"
            ) from error
        if found != tuple(parameter.shape):
            made_of = ", ".join(f"{names[k]} {source.shape(names[k])}" for k in table[name].keys)
            raise ModelLoadError(
                f"{name} made of {made_of} is {found}; the config asks for "
                f"{tuple(parameter.shape)}."
            )


def _commonest(types: Iterable[torch.dtype | None]) -> torch.dtype:
    found = Counter(dtype for dtype in types if dtype is not None)
    return found.most_common(1)[0][0]


def _placed(tensor: Tensor, dtype: torch.dtype, device: str | torch.device | None) -> Tensor:
    try:
        return tensor.to(device=device, dtype=dtype)
    except (RuntimeError, AssertionError) as error:
        raise InvalidInput(f"Weights can't be put on {device}: {first_line(error)}") from error
