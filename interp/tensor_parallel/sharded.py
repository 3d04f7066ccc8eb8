"""A model whose weights are divided among processes, with the numbers of one process.

    torchrun --nproc-per-node 2 program.py                  # program.py, on every rank:
    model = interp.parallel("hub:org/name")

Heads, neurons, experts and the vocabulary are divided; the residual stream is the same on all ranks
(tensor parallelism, Shoeybi et al. 2019, arXiv:1909.08053). Every rank runs the same program: it
gets the same logits, caches, sweeps and results, as the ranks exchange what they computed.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from interp.config import Config
from interp.errors import InterpError, InvalidInput, shorten
from interp.execution import fix_free_bytes, measured_free_bytes, versions
from interp.io import Table
from interp.loading import load, meta_model, reading_shares
from interp.model import (
    MLP,
    Attention,
    Experts,
    Network,
    SharedExperts,
    Stack,
    Unembedding,
    weight_sums,
)
from interp.tensor_parallel import heads, neurons, vocabulary
from interp.tensor_parallel.parts import LOCAL, Splits
from interp.tensor_parallel.ranks import Ranks, default_ranks, ranks_of
from interp.transformer import Transformer

TIMEOUT = 600.0
"""Seconds after which a collective that another rank does not join fails."""
Plan = Mapping[str, Splits]
"""How the weights of each part of a model are divided, by the name of the part."""


@runtime_checkable
class Mesh(Protocol):
    """A one-dimensional ``torch.distributed.device_mesh.DeviceMesh``."""

    @property
    def ndim(self) -> int:
        """Number of its dimensions."""
        ...

    def get_group(self) -> Any:  # noqa: ANN401 - torch's ProcessGroup
        """Its process group."""
        ...


class ShardedTransformer(Transformer):
    """A Transformer whose weights are divided among the ranks of a process group.

    Weights that are read from it are joined from all ranks, as copies: writing into them has no
    effect on the model.

    Attributes:
        ranks: the ranks; ``model.ranks.rank == 0`` on the one that should write and print.
    """

    ranks: Ranks

    def description(self) -> Table:
        """As that of any model, and how it is divided."""
        table = super().description()
        held = sum(weight.numel() for weight in self.parameters())
        row = ("ranks", f"{self.ranks.size}; rank {self.ranks.rank} holds {held:,} parameters")
        return replace(table, rows=[*table.rows, row])

    def weight_names(self) -> list[str]:
        """Names of the weights of the whole model."""
        return [name.replace(f".{LOCAL}.", ".") for name in super().weight_names()]

    def add_parts(self, other: Network) -> None:
        """Divide the parts of a model without data, as those of the rank with the largest share."""
        ranks = Ranks(0, self.ranks.size)
        plan = plan_of(other, ranks)
        _take_shares(other, other, plan, ranks)
        _shard_parts(other, plan, ranks)

    @property
    def is_writer(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether this is rank 0."""
        return self.ranks.rank == 0

    def write_once(self, write: Callable[[], None]) -> None:
        """Call ``write`` on rank 0; all ranks return after it, or raise its error."""
        errors: list[InterpError] = []
        if self.is_writer:
            try:
                write()
            except InterpError as error:
                errors.append(error)
        for error in self.ranks.objects(errors)[0]:
            raise error

    def require_whole(self, what: str) -> NoReturn:
        """Refuse what needs all weights.

        Raises:
            InvalidInput: always.
        """
        raise InvalidInput(
            f"{what}: this process has a share of the weights, as one of {self.ranks.size} ranks. "
            "Do this with the whole model, before interp.parallel."
        )

    def __deepcopy__(self, memo: object) -> "Transformer":
        """Refused: see :meth:`require_whole`."""
        self.require_whole("a copy")

    def __reduce_ex__(self, protocol: object) -> Any:  # noqa: ANN401
        """Refused: see :meth:`require_whole`."""
        self.require_whole("pickling")


def parallel(
    source: object,
    mesh: Mesh | None = None,
    *,
    timeout: float = TIMEOUT,
    **options: Any,  # noqa: ANN401 - those of interp.load
) -> ShardedTransformer:
    """Divide a model among the processes that ``torchrun`` started.

    Called by all ranks, like everything that runs the model afterwards: forwards, sweeps, analyses,
    and reads of caches and weights, as the ranks exchange what each has. Results are the same on
    all ranks (within rounding those of one process); let rank 0 write and print them.

    Each rank stores its share of the heads and neurons that a run records, and ``cache[...]`` joins
    them: all ranks must read the same places in the same order. ``cache.keep(places)`` makes places
    whole on all ranks, for what one of them alone is to read.

    Args:
        source: a model, of which each rank keeps its share as a copy; or what :func:`interp.load`
            reads, of which each rank keeps its share of one weight after another, and never holds
            the whole.
        mesh: a one-dimensional ``DeviceMesh``; ``None`` takes all processes of ``torchrun``.
        timeout: seconds after which a collective that a rank does not join fails, if the process
            group is not initialised yet.
        **options: the keyword arguments of :func:`interp.load`. By default a rank uses the GPU of
            its number on this machine, or the CPU.

    Raises:
        InvalidInput: the process was not started by ``torchrun``; the mesh has several dimensions;
            the ranks do not divide the heads of the model; or other ranks have another model or
            other versions.
        OutOfResources: another rank ended or does not answer.
        InterpError: as for :func:`interp.load`.
    """
    ranks = default_ranks(timeout) if mesh is None else _ranks_of_mesh(mesh)
    if isinstance(source, Network):
        if options:
            raise InvalidInput(f"{', '.join(options)}: options of loading; the model is loaded.")
        made = _shares_of_model(_as_transformer(source), ranks)
    else:
        reader = _Reader(ranks)
        settings: dict[str, Any] = {"device": _default_device(), **options}
        with reading_shares(reader):
            loaded = load(source, **settings)
        made = (
            _shares_of_model(loaded, ranks)
            if reader.plan is None
            else _sharded(loaded, reader.plan, ranks)
        )
    _check_alike(made, ranks)
    # Plans of sweeps depend on the free memory, and must be the same on all ranks.
    free = measured_free_bytes(made.device) // _processes_here(ranks, made.device)
    fix_free_bytes(made.device, min(ranks.objects(free)))
    return made


def plan_of(whole: Network, ranks: Ranks) -> Plan:
    """How the weights of a whole model, which may be on the meta device, are divided.

    Raises:
        InvalidInput: the ranks do not divide the heads, neurons or experts of a layer.
    """
    plan: dict[str, Splits] = {}
    for name, part in _parts(whole):
        if isinstance(part, Attention):
            plan[name] = heads.splits_of(part, ranks)
        elif isinstance(part, MLP | Experts):
            plan[name] = neurons.splits_of(part, ranks)
        else:
            plan[name] = vocabulary.splits_of(part, ranks)
    return plan


def rank_bytes(config: Config, size: int, dtype: torch.dtype = torch.bfloat16) -> list[int]:
    """Bytes of the weights that each rank holds, computed without a process group or any data.

    Args:
        config: the architecture.
        size: number of ranks.
        dtype: the dtype of the weights.

    Raises:
        InvalidInput: as for :func:`parallel`.
    """
    numbers: list[int] = []
    for rank in range(size):
        ranks = Ranks(rank, size)
        model = _shares_of_model(meta_model(config), ranks)
        numbers.append(sum(weight.numel() for weight in model.parameters()) * dtype.itemsize)
    return numbers


def block_bytes(config: Config, rows: int, columns: int, dtype: torch.dtype) -> int:
    """Bytes that a rank gives to the two sums of a block in a plain forward.

        2 · rows · columns · d_model · bytes of a number

    A ring all-reduce sends 2 (n − 1) / n times as much over the network.
    """
    return 2 * rows * columns * config.d_model * dtype.itemsize


# ---- making it ---------------------------------------------------------------------------------


def _parts(model: Network) -> Iterator[tuple[str, Stack | Unembedding | Attention | MLP | Experts]]:
    """The parts whose weights are divided, with their names."""
    if isinstance(model.unembed, Unembedding):
        yield "unembed", model.unembed
    for stack in model.stacks:
        yield stack.name, stack
        for layer in range(len(stack.blocks)):
            block, name = stack.block(layer), f"{stack.name}.blocks.{layer}"
            yield f"{name}.attn", block.attn
            for kind in ("cross_attn", "mlp"):
                part = getattr(block, kind, None)
                if part is not None:
                    yield f"{name}.{kind}", part
                if isinstance(part, SharedExperts):
                    yield f"{name}.{kind}.shared", part.shared


def _sharded(model: Transformer, plan: Plan, ranks: Ranks) -> ShardedTransformer:
    """The model, whose weights are this rank's already, with sharded parts."""
    _shard_parts(model, plan, ranks)
    model.__class__ = ShardedTransformer
    made = cast("ShardedTransformer", model)
    made.ranks = ranks
    return made


def _shard_parts(model: Network, plan: Plan, ranks: Ranks) -> None:
    """Make the parts of a model, whose weights are this rank's already, sharded ones."""
    for name, part in list(_parts(model)):
        splits = plan[name]
        if isinstance(part, Attention):
            heads.shard(part, splits, ranks)
        elif isinstance(part, MLP | Experts):
            neurons.shard(part, splits, ranks)
        elif splits:
            vocabulary.shard(part, splits, ranks)


def _shares_of_model(model: Transformer, ranks: Ranks) -> ShardedTransformer:
    """A new model with this rank's share of the weights of ``model``."""
    made, plan = meta_model(model.config), plan_of(model, ranks)
    _take_shares(made, model, plan, ranks)
    made.tokenizer, made.agreement = model.tokenizer, model.agreement
    return _sharded(made.train(model.training), plan, ranks)


def _take_shares(made: Network, model: Network, plan: Plan, ranks: Ranks) -> None:
    """Give ``made`` this rank's share of the weights of ``model``, which may be itself."""
    shares: dict[int, nn.Parameter] = {}
    for name, weight in model.named_parameters():
        part, _, attribute = name.rpartition(".")
        split = plan.get(part, {}).get(attribute)
        share = weight.detach().clone() if split is None else split.share(weight.detach(), ranks)
        shares[id(weight)] = nn.Parameter(share)
    for name, part in made.named_modules():
        whole = model.get_submodule(name)
        for key, _ in list(part.named_parameters(recurse=False)):
            part.register_parameter(key, shares[id(whole.get_parameter(key))])
        for key, _ in list(part.named_buffers(recurse=False)):
            part.register_buffer(key, whole.get_buffer(key), persistent=False)


class _Reader:
    """Takes this rank's share of each weight of a model as it is read.

    Attributes:
        ranks: the ranks.
        plan: how the weights are divided; ``None`` until the first is read.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.plan: Plan | None = None

    def __call__(self, whole: Network, name: str, weight: Tensor) -> Tensor:
        """The share of ``weight``; ``whole`` is the model without data."""
        if self.plan is None:
            self.plan = plan_of(whole, self.ranks)
        part, _, attribute = name.rpartition(".")
        split = self.plan.get(part, {}).get(attribute)
        return weight if split is None else split.share(weight, self.ranks)


def _as_transformer(model: Network) -> Transformer:
    if not isinstance(model, Transformer) or isinstance(model, ShardedTransformer):
        raise InvalidInput(f"A whole Transformer was expected; got a {type(model).__name__}.")
    model.require_whole("parallel")  # refuses a view with dictionaries
    return model


# ---- the ranks ---------------------------------------------------------------------------------


def _ranks_of_mesh(mesh: object) -> Ranks:
    if not isinstance(mesh, Mesh) or mesh.ndim != 1:
        raise InvalidInput(
            f"mesh={shorten(mesh)}: a DeviceMesh of one dimension was expected, as "
            "init_device_mesh(device, (n,)) makes it, or mesh[name] of several."
        )
    return ranks_of(mesh.get_group())


def _default_device() -> str:
    """The GPU of this process, or the CPU."""
    if not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


def _processes_here(ranks: Ranks, device: torch.device) -> int:
    """Number of ranks that share the memory of a device: those of this machine share the CPU's."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", ranks.size)) if device.type == "cpu" else 1


def _check_alike(model: ShardedTransformer, ranks: Ranks) -> None:
    """Make sure that all ranks have the same model and versions.

    Weights that all ranks hold, such as norms, tell two models of one architecture apart.

    Raises:
        InvalidInput: a rank has others.
    """
    whole = [w for name, w in model.named_parameters() if f".{LOCAL}." not in name]
    facts = {
        "versions": versions(),
        "architecture": model.config.to_dict(),
        "weights": weight_sums(whole) if whole else (),
        "dtype": str(model.dtype),
    }
    for rank, others in enumerate(ranks.objects(facts)):
        different = [name for name, fact in others.items() if fact != facts[name]]
        if different:
            raise InvalidInput(
                f"Rank {rank} has another model than rank {ranks.rank}: {', '.join(different)} "
                "differ. Give all ranks the same model, and the same versions of packages."
            )
