"""Training a cross-layer transcoder on a harvest of what all MLPs read and write.

    minimize  Σ_m ‖y_m − ŷ_m‖² / Var(y_m) + Σ_l ‖e_≥l − ê_l‖² / (32 ‖e_≥l‖²)
    ŷ_m = Σ_{l ≤ m} f_l W_dec,l→m + b_dec,m,      e_m = y_m − ŷ_m

Features of each layer are chosen as those of a transcoder are (``batchtopk`` or ``jumprelu``; see
:mod:`interp.dictionaries.training`), k of each layer. All that a feature writes, its decoders to
all layers one after another, has norm 1, so that its activation is the norm of what it writes in
total, as in the penalty of Ameisen et al. 2025, "Circuit Tracing", tanh(c ‖W_dec,i‖ a_i). Features
that have not been active for a while predict the errors e_≥l of all layers that they write.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.dictionaries.activations import JumpReLU
from interp.dictionaries.cross_layer import CrossLayerTranscoder
from interp.dictionaries.files import checked_file
from interp.dictionaries.trained_weights import DictionarySettings, TrainedWeights
from interp.dictionaries.training_steps import (
    CURVES,
    Control,
    reader_of,
    run_steps,
    save_training,
    settings_in,
    steps_text,
    weights_in,
)
from interp.errors import InvalidInput, ModelLoadError, shorten
from interp.harvests import Harvest
from interp.io import ProgressLike, as_path
from interp.points import PlaceLike

Curve = Float[Tensor, "step layer"]
_WRONG_PLACES = (
    "reads={} and writes={} should have a place of each layer, with the same width in all layers."
)


@dataclass(frozen=True, eq=False, repr=False)
class CrossLayerTraining:
    """A cross-layer transcoder after some steps of its training, and what is needed to continue.

    Attributes:
        transcoder: the transcoder, for activations as the model forms them.
        fvu: share of the variance of each layer's output that each step's rows left unexplained,
            before its update.
        l0: mean number of active features of each layer.
        n_dead: number of features that were not active for 200 000 tokens.
        settings: the settings of the whole training.
        state: the weights in training, and the state of Adam.
        data: hash of the harvest's index, and the names of the places, those that are read first.
    """

    transcoder: CrossLayerTranscoder
    fvu: Curve
    l0: Curve
    n_dead: Curve
    settings: DictionarySettings
    state: Mapping[str, Tensor]
    data: tuple[str, ...]

    def __repr__(self) -> str:
        """The transcoder and the last step, without tensors."""
        steps = steps_text(self.settings, self.fvu, self.l0, self.n_dead)
        return f"CrossLayerTraining({steps}: {self.transcoder})"

    def save(self, path: str | Path) -> None:
        """Write everything that is needed to continue to a safetensors file.

        Raises:
            OutOfResources: the file can't be written.
        """
        save_training(self, str(self.transcoder.facts["model_name"]), as_path(path))


class LayersInTraining(nn.Module):
    """The weights of all layers in training, each with decoders to all later ones."""

    def __init__(self, n_layers: int, sizes: tuple[int, int], settings: DictionarySettings) -> None:
        super().__init__()
        self.settings = settings
        self.layers = nn.ModuleList(
            TrainedWeights(
                *sizes,
                replace(settings, seed=(settings.seed + layer) % 2**63),
                tied=False,
                n_targets=n_layers - layer,
            )
            for layer in range(n_layers)
        )

    @property
    def each(self) -> list[TrainedWeights]:
        """The weights of each layer."""
        return cast("list[TrainedWeights]", list(self.layers))

    def forward(self, *rows: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The loss, and for each layer the variance unexplained and the number of features.

        Args:
            *rows: what all layers read, then what all layers write.
        """
        n, layers = len(self.layers), self.each
        x = [rows[layer] * each.scales[0] for layer, each in enumerate(layers)]
        y = [rows[n + layer] * each.scales[1] for layer, each in enumerate(layers)]
        h = [each.encoded(x_l) for each, x_l in zip(layers, x, strict=True)]
        features = [each.active(h_l) for each, h_l in zip(layers, h, strict=True)]
        written = [
            (f @ each.w_dec).unflatten(1, (n - layer, -1)).unbind(1)
            for layer, (each, f) in enumerate(zip(layers, features, strict=True))
        ]
        errors = [
            y[m] - (sum(written[layer][m - layer] for layer in range(m + 1)) + layers[m].b_dec)
            for m in range(n)
        ]
        left = [e.square().sum() for e in errors]
        fvu = [e / (y_m - y_m.mean(0)).square().sum() for e, y_m in zip(left, y, strict=True)]
        loss = torch.stack(fvu).sum()
        for layer, each in enumerate(layers):
            later = torch.cat([e.detach() for e in errors[layer:]], 1)
            loss = loss + each.penalties(h[layer], later)
        n_active = torch.stack([(f > 0).sum() / len(f) for f in features])
        return loss, [torch.stack(fvu).detach(), n_active]

    def begin(self, *rows: Tensor) -> None:
        """Set scales and first biases from the rows of the first step."""
        n = len(self.layers)
        for layer, each in enumerate(self.each):
            each.begin(rows[layer], rows[n + layer])

    def normalize(self, *, gradient: bool) -> None:
        """Scale the decoders of each feature to a norm of 1, or project their gradients."""
        for each in self.each:
            each.normalize(gradient=gradient)

    def n_dead(self) -> Tensor:
        """Number of features of each layer that have not been active for a while."""
        return torch.stack([each.n_dead() for each in self.each])

    @torch.no_grad()
    def transcoder(self, data: tuple[str, ...], model: str) -> CrossLayerTranscoder:
        """The transcoder for activations that are not scaled; decoders have norm 1 again."""
        n, layers = len(self.layers), self.each
        y_scales = torch.stack([each.scales[1] for each in layers])
        decoders = [
            each.w_dec.unflatten(1, (n - layer, -1)) / y_scales[layer:, None]
            for layer, each in enumerate(layers)
        ]
        norms = [w_dec.flatten(1).norm(dim=1) for w_dec in decoders]
        parts = list(zip(layers, norms, strict=True))
        return CrossLayerTranscoder(
            w_enc=torch.stack([each.w_enc * each.scales[0] * norm for each, norm in parts]),
            b_enc=torch.stack([each.b_enc * norm for each, norm in parts]),
            w_dec=tuple(
                w_dec / norm[:, None, None] for w_dec, norm in zip(decoders, norms, strict=True)
            ),
            b_dec=torch.stack([each.b_dec for each in layers]) / y_scales[:, None],
            activation=tuple(JumpReLU(each.thresholds() * norm) for each, norm in parts),
            reads=data[1 : 1 + n],
            writes=data[1 + n :],
            format=f"interp {self.settings.kind}",
            facts={"model_name": model},
        )


def train_cross_layer(  # noqa: PLR0913 - the settings of one training, by keyword
    harvest: Harvest,
    *,
    reads: Sequence[PlaceLike],
    writes: Sequence[PlaceLike],
    settings: DictionarySettings | None = None,
    progress: ProgressLike = None,
    cancelled: Callable[[], bool] | None = None,
    resume: CrossLayerTraining | None = None,
) -> CrossLayerTraining:
    """Train a cross-layer transcoder on the activations of a harvest.

        reads = [("normalized", layer, "ln2") for layer in range(model.n_layers)]
        writes = [("mlp_out", layer) for layer in range(model.n_layers)]
        harvest = interp.harvest(model, texts, [*reads, *writes], folder)
        training = dictionaries.train_cross_layer(harvest, reads=reads, writes=writes)
        dictionaries.save_cross_layer(training.transcoder, "transcoder")

    Args:
        harvest: the activations; each epoch reads all of its rows in another order.
        reads: the place that the features of each layer read.
        writes: the place that is reconstructed in each layer.
        settings: the kind, sizes (of each layer) and number of steps.
        progress: called after each step with the number of steps done and of all.
        cancelled: called after each step; if it returns True, the training so far is returned.
        resume: what a call that was cancelled returned; the remaining steps are done, and the
            result is bit-identical to that of a call that was not cancelled.

    Raises:
        InvalidInput: a setting is invalid, or a file of a cross-layer transcoder can't have it; the
            places are not those of as many layers, or of other widths; ``resume`` is of another
            training; or the loss is not finite.
        NotRecorded: the harvest has not stored the places.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> model, layers = interp.load("python-4l"), range(4)
        >>> reads = [("normalized", layer, "ln2") for layer in layers]
        >>> writes = [("mlp_out", layer) for layer in layers]
        >>> settings = interp.dictionaries.DictionarySettings(n_features=64, k=4, steps=5, batch=8)
        >>> with TemporaryDirectory() as folder:
        ...     texts = ["def f(x): return x + 1"] * 4
        ...     harvest = interp.harvest(model, texts, [*reads, *writes], folder)
        ...     done = interp.dictionaries.train_cross_layer(
        ...         harvest, reads=reads, writes=writes, settings=settings
        ...     )
        >>> done.fvu.shape, done.transcoder.n_features
        (torch.Size([5, 4]), 64)
    """
    settings = _checked(settings or DictionarySettings())
    places = [*reads, *writes]
    names = [Harvest(harvest.folder, places=place).names[0] for place in places]
    n, distinct = len(reads), {*names}
    if not n or not len(names) == len(distinct) == 2 * n:
        raise InvalidInput(_WRONG_PLACES.format(shorten(names[:n]), shorten(names[n:])))
    reader = reader_of(harvest, places, settings)
    widths = {place.name: torch.Size(place.shape).numel() for place in reader.places}
    sizes = [{widths[name] for name in several} for several in (names[:n], names[n:])]
    if {1} != {*map(len, sizes)}:
        raise InvalidInput(_WRONG_PLACES.format(shorten(names[:n]), shorten(names[n:])))
    data = (harvest.index.digest, *names)
    weights = LayersInTraining(n, (sizes[0].pop(), sizes[1].pop()), settings)
    curves, state = run_steps(weights, reader, names, data, Control(progress, cancelled, resume))
    model = str(harvest.index.computation.model)
    transcoder = weights.transcoder(data, model)
    return CrossLayerTraining(transcoder, **curves, settings=settings, state=state, data=data)


def load_cross_layer_training(path: str | Path) -> CrossLayerTraining:
    """A training that :meth:`CrossLayerTraining.save` wrote.

    Raises:
        ModelLoadError: there is no such file, or it is damaged or of another kind.
    """
    file = as_path(path)
    tensors, metadata = checked_file(file)
    try:
        settings = _checked(settings_in(metadata))
        curves = {name: tensors.pop(f"curve.{name}") for name in CURVES}
        data = tuple(metadata["data"].split("\n"))
        d_in, d_out = (tensors[f"weights.layers.0.{name}"].shape[0] for name in ("w_enc", "b_dec"))
        weights = LayersInTraining(len(data) // 2, (d_in, d_out), settings)
        weights.load_state_dict(weights_in(tensors))
    except (KeyError, ValueError, RuntimeError, InvalidInput) as error:
        raise ModelLoadError(
            f"{file} is not the training of a cross-layer transcoder: {error}."
        ) from error
    transcoder = weights.transcoder(data, metadata["model"])
    return CrossLayerTraining(transcoder, **curves, settings=settings, state=tensors, data=data)


def _checked(settings: DictionarySettings) -> DictionarySettings:
    """Settings of a kind that a file can have.

    Raises:
        InvalidInput: they are of another.
    """
    settings = settings.checked()
    if settings.kind == "topk" or settings.skip:
        what = "skip=True" if settings.skip else 'kind="topk"'
        raise InvalidInput(
            f'{what}: files have no cross-layer transcoders of this kind; use "batchtopk", which '
            'is saved as JumpReLU, or "jumprelu", without a skip.'
        )
    return settings
