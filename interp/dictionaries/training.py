"""Training a dictionary on a harvest.

    minimize  ‖y − ŷ‖² / Var(y) + ‖e − ê‖² / (32 ‖e‖²),      e = y − ŷ

x is what the dictionary reads and y what it writes, both scaled to a mean square norm of their
width; ê is what the features that have not been active for a while, the largest ``d / 2`` of each
token, make of the error e, which brings them back (AuxK, Gao et al. 2024, arXiv:2406.04093). The
decoder's rows have norm 1. Three activations:

    topk        the k largest of each token (Gao et al. 2024)
    batchtopk   the k·n largest of a step of n tokens; afterwards JumpReLU at θ, the running mean of
                the least of them (Bussmann et al. 2024, arXiv:2412.06410)
    jumprelu    h where h > θ, with θ trained by a straight-through estimator, and a penalty
                (L0 / k − 1)² (Rajamanoharan et al. 2024, arXiv:2407.14435)

A transcoder is trained in the same way to write what an MLP writes (Dunefsky et al. 2024,
arXiv:2406.11944), with a linear path beside its features if it has a skip (Paulo et al. 2025,
arXiv:2501.18823). What a step reads depends only on the seed and its number, so training that was
stopped resumes bit-identically on the same processor.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.dictionaries.dictionary import Dictionary
from interp.dictionaries.files import checked_file
from interp.dictionaries.trained_weights import DictionarySettings, Rows, TrainedWeights
from interp.dictionaries.training_steps import (
    CURVES,
    Control,
    reader_of,
    run_steps,
    save_training,
    settings_in,
    steps_text,
    update,
    weights_in,
)
from interp.errors import InvalidInput, ModelLoadError
from interp.harvests import Harvest
from interp.io import ProgressLike, as_path
from interp.points import PlaceLike


@dataclass(frozen=True, eq=False, repr=False)
class DictionaryTraining:
    """A dictionary after some steps of its training, and what is needed to continue.

    Attributes:
        dictionary: the dictionary, for activations as the model forms them.
        fvu: share of the variance that each step's rows left unexplained, before its update.
        l0: mean number of active features of each step.
        n_dead: number of features that were not active for ``DEAD_TOKENS`` tokens, at each step.
        settings: the settings of the whole training.
        state: the weights in training, and the state of Adam.
        data: hash of the harvest's index, and the names of the places.
    """

    dictionary: Dictionary
    fvu: Float[Tensor, " step"]
    l0: Float[Tensor, " step"]
    n_dead: Float[Tensor, " step"]
    settings: DictionarySettings
    state: Mapping[str, Tensor]
    data: tuple[str, ...]

    def __repr__(self) -> str:
        """The dictionary and the last step, without tensors."""
        steps = steps_text(self.settings, self.fvu, self.l0, self.n_dead)
        return f"DictionaryTraining({steps}: {self.dictionary})"

    def save(self, path: str | Path) -> None:
        """Write everything that is needed to continue to a safetensors file.

        Raises:
            OutOfResources: the file can't be written.
        """
        save_training(self, str(self.dictionary.facts["model_name"]), as_path(path))


def train(  # noqa: PLR0913 - the settings of one training, by keyword
    harvest: Harvest,
    *,
    reads: PlaceLike,
    writes: PlaceLike | None = None,
    settings: DictionarySettings | None = None,
    progress: ProgressLike = None,
    cancelled: Callable[[], bool] | None = None,
    resume: DictionaryTraining | None = None,
) -> DictionaryTraining:
    """Train a dictionary on the activations of a harvest.

        places = [("normalized", 1, "ln2"), ("mlp_out", 1)]
        harvest = interp.harvest(model, texts, places, folder)
        training = dictionaries.train(harvest, reads=places[0], writes=places[1])
        dictionaries.save(training.dictionary, "transcoder-1")

    Args:
        harvest: the activations; each epoch reads all of its rows in another order.
        reads: the place that the dictionary reads.
        writes: the place that it writes: that of a transcoder; ``None`` trains an autoencoder.
        settings: the kind, sizes and number of steps.
        progress: called after each step with the number of steps done and of all.
        cancelled: called after each step; if it returns True, the training so far is returned.
        resume: what a call that was cancelled returned; the remaining steps are done, and the
            result is bit-identical to that of a call that was not cancelled.

    Raises:
        InvalidInput: a setting is invalid or does not go with the places; ``resume`` is of another
            training; or the loss is not finite.
        NotRecorded: the harvest has not stored the places.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> model, place = interp.load("python-2l"), ("resid_post", 0)
        >>> settings = interp.dictionaries.DictionarySettings(n_features=64, k=4, steps=20, batch=8)
        >>> with TemporaryDirectory() as folder:
        ...     harvest = interp.harvest(model, ["def f(x): return x + 1"] * 4, place, folder)
        ...     done = interp.dictionaries.train(harvest, reads=place, settings=settings)
        >>> done.dictionary
        Dictionary(64 features, JumpReLU, 256 → 256, blocks.0.hook_resid_post, interp batchtopk)
    """
    settings = (settings or DictionarySettings()).checked()
    several = [reads] if writes is None else [reads, writes]
    names = [Harvest(harvest.folder, places=place).names[0] for place in several]
    _check_kind(settings, is_transcoder=writes is not None)
    reader = reader_of(harvest, several, settings)
    sizes = {place.name: torch.Size(place.shape).numel() for place in reader.places}
    data = (harvest.index.digest, *dict.fromkeys(names))
    weights = TrainedWeights(sizes[names[0]], sizes[names[-1]], settings, tied=writes is None)
    rows = (names[0], names[-1])
    curves, state = run_steps(weights, reader, rows, data, Control(progress, cancelled, resume))
    model = str(harvest.index.computation.model)
    return DictionaryTraining(
        weights.dictionary(_where(settings, data, model)),
        **curves,
        settings=settings,
        state=state,
        data=data,
    )


def load_training(path: str | Path) -> DictionaryTraining:
    """A training that :meth:`DictionaryTraining.save` wrote.

    Raises:
        ModelLoadError: there is no such file, or it is damaged or of another kind.
    """
    file = as_path(path)
    tensors, metadata = checked_file(file)
    try:
        settings = settings_in(metadata)
        curves = {name: tensors.pop(f"curve.{name}") for name in CURVES}
        data = tuple(metadata["data"].split("\n"))
        d_in, d_out = tensors["weights.w_enc"].shape[0], tensors["weights.w_dec"].shape[1]
        weights = TrainedWeights(d_in, d_out, settings, tied=len(data) == len(("texts", "reads")))
        weights.load_state_dict(weights_in(tensors))
    except (KeyError, ValueError, RuntimeError, InvalidInput) as error:
        raise ModelLoadError(f"{file} is not the training of a dictionary: {error}.") from error
    dictionary = weights.dictionary(_where(settings, data, metadata["model"]))
    return DictionaryTraining(dictionary, **curves, settings=settings, state=tensors, data=data)


def _where(settings: DictionarySettings, data: tuple[str, ...], model: str) -> dict[str, Any]:
    """The places and the origin of a dictionary."""
    where: dict[str, Any] = {"reads": data[1], "writes": data[-1]}
    return {**where, "format": f"interp {settings.kind}", "facts": {"model_name": model}}


def train_rows(x: Rows, y: Rows, settings: DictionarySettings) -> Dictionary:
    """A dictionary of rows that are in memory, which are drawn anew for each step.

    Args:
        x: what it reads.
        y: what it writes; ``x`` itself for an autoencoder.
        settings: kind, sizes and number of steps.

    Raises:
        InvalidInput: as for :func:`train`.
    """
    settings = settings.checked()
    weights = TrainedWeights(x.shape[1], y.shape[1], settings, tied=x is y)
    optimizer = torch.optim.Adam(weights.parameters(), lr=settings.lr)
    generator = torch.Generator().manual_seed(settings.seed)
    for step in range(settings.steps):
        rows = torch.randint(len(x), (settings.batch,), generator=generator)
        if step == 0:
            weights.begin(x[rows], y[rows])
        update(weights, optimizer, (x[rows], y[rows]), step)
    return weights.dictionary({"format": f"interp {settings.kind}"})


def _check_kind(settings: DictionarySettings, *, is_transcoder: bool) -> None:
    """Check that the kind goes with the places.

    Raises:
        InvalidInput: it does not.
    """
    if settings.skip and not is_transcoder:
        raise InvalidInput("skip=True: only a transcoder has a linear path; give writes=.")
    if settings.kind == "topk" and is_transcoder:
        raise InvalidInput(
            'kind="topk": files have no transcoders of this kind; use "batchtopk", which is saved '
            "as JumpReLU."
        )
