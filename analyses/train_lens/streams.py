"""The streams that a lens is trained on: recorded in forwards, or read from a harvest."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.methods.finite import check_forward
from analyses.methods.lens import decode, decoded_places
from interp import Harvest
from interp.execution import Provenance, run
from interp.model import Batch, Network
from interp.prompts import read_batches
from interp.transformer import TextNetwork

Streams = list[Float[Tensor, "one token d_model"]]


@runtime_checkable
class StreamSource(Protocol):
    """Prompts whose streams can be read."""

    @property
    def digest(self) -> str:
        """A hash of their tokens."""
        ...

    def __len__(self) -> int:
        """Number of prompts."""
        ...

    def take(self, rows: Int[Tensor, " row"]) -> "StreamSource":
        """Some of the prompts."""
        ...

    def real(self, rows: Int[Tensor, " row"]) -> Bool[Tensor, "row pos"]:
        """Where some prompts have tokens."""
        ...

    def read(
        self, rows: Int[Tensor, " row"], tokens: Bool[Tensor, "row pos"]
    ) -> tuple[Streams, Float[Tensor, "one token vocab"]]:
        """The stream before each block of the last stack, and the logits, at tokens of prompts."""
        ...

    def check_finite(self, rows: Int[Tensor, " row"]) -> None:
        """Raise an error that names the first activation that is not finite, if there is one."""


class PromptStreams:
    """Prompts that are run.

    Args:
        model: the model.
        batches: the prompts, one batch per stack.
    """

    def __init__(self, model: Network, batches: Sequence[Batch]) -> None:
        self._model, self.batches = model, list(batches)

    @property
    def digest(self) -> str:
        """See :class:`StreamSource`."""
        return Provenance.of(self._model, *self.batches).tokens

    def __len__(self) -> int:
        """See :class:`StreamSource`."""
        return len(self.batches[0].ids)

    def take(self, rows: Int[Tensor, " row"]) -> "PromptStreams":
        """See :class:`StreamSource`."""
        rows = rows.to(self.batches[0].ids.device)
        return PromptStreams(self._model, [batch.rows(rows) for batch in self.batches])

    def real(self, rows: Int[Tensor, " row"]) -> Bool[Tensor, "row pos"]:
        """See :class:`StreamSource`."""
        return self._rows(rows)[-1].is_real

    def read(
        self, rows: Int[Tensor, " row"], tokens: Bool[Tensor, "row pos"]
    ) -> tuple[Streams, Float[Tensor, "one token vocab"]]:
        """See :class:`StreamSource`."""
        model, places = self._model, [*decoded_places(self._model).values()]
        stop = len(model.stacks[-1].blocks)
        done = run(model, *self._rows(rows), record=places, stop_at_layer=stop)
        *streams, end = (done.cache[place][tokens][None] for place in places)
        with torch.no_grad():
            return streams, decode(model, end)

    def check_finite(self, rows: Int[Tensor, " row"]) -> None:
        """See :class:`StreamSource`."""
        check_forward(self._model, self._rows(rows))

    def _rows(self, rows: Int[Tensor, " row"]) -> list[Batch]:
        """Some prompts, with no more padding than they need."""
        return [batch.rows(rows.to(batch.ids.device)).padded_right() for batch in self.batches]


class HarvestStreams:
    """Texts of a harvest, which are not run.

    Args:
        model: the model of the harvest.
        harvest: a harvest of the stream before each block, and after the last one.
        texts: the texts that are read; by default all.

    Raises:
        InvalidInput: the harvest is of another model.
        NotRecorded: it has not stored these streams.
    """

    def __init__(
        self, model: TextNetwork, harvest: Harvest, texts: Int[Tensor, " text"] | None = None
    ) -> None:
        harvest.check_model(model)
        places = [*decoded_places(model).values()]
        self._model, self._harvest = model, Harvest(harvest.folder, places=[*places])
        names = {stored.as_place: stored.name for stored in self._harvest.places}
        self._names = [names[place] for place in places]
        self._texts = torch.arange(harvest.n_texts) if texts is None else texts
        self._first, self._lengths = harvest.first_rows(), harvest.lengths()

    @property
    def digest(self) -> str:
        """See :class:`StreamSource`."""
        listed = f"{self._harvest.index.texts} {self._texts.tolist()}"
        return sha256(listed.encode()).hexdigest()

    def __len__(self) -> int:
        """See :class:`StreamSource`."""
        return len(self._texts)

    def take(self, rows: Int[Tensor, " row"]) -> "HarvestStreams":
        """See :class:`StreamSource`."""
        return HarvestStreams(self._model, self._harvest, self._texts[rows])

    def real(self, rows: Int[Tensor, " row"]) -> Bool[Tensor, "row pos"]:
        """See :class:`StreamSource`."""
        lengths = self._lengths[self._texts[rows.cpu()]]
        return torch.arange(int(lengths.max())) < lengths[:, None]

    def read(
        self, rows: Int[Tensor, " row"], tokens: Bool[Tensor, "row pos"]
    ) -> tuple[Streams, Float[Tensor, "one token vocab"]]:
        """See :class:`StreamSource`."""
        model, first = self._model, self._first[self._texts[rows.cpu()]]
        stored = self._harvest.rows((first[:, None] + torch.arange(tokens.shape[1]))[tokens.cpu()])
        *streams, end = (stored[name].to(model.device, model.dtype)[None] for name in self._names)
        with torch.no_grad():
            return streams, decode(model, end)

    def check_finite(self, rows: Int[Tensor, " row"]) -> None:
        """A harvest has finite activations only."""


def streams_of(model: TextNetwork, prompts: object) -> StreamSource:
    """The streams of a harvest, or of prompts as an analysis takes them."""
    if isinstance(prompts, Harvest):
        return HarvestStreams(model, prompts)
    return PromptStreams(model, read_batches(model, prompts))


def provenance_of(model: Network, seed: int, *sources: StreamSource) -> Provenance:
    """The provenance of a lens and the prompts that it was trained and measured on."""
    if all(isinstance(source, PromptStreams) for source in sources):
        batches = [batch for source in sources for batch in source.batches]  # pyright: ignore
        return Provenance.of(model, *batches, seed=seed)
    tokens = sha256("".join(source.digest for source in sources).encode()).hexdigest()
    return replace(Provenance.of(model, seed=seed), tokens=tokens)
