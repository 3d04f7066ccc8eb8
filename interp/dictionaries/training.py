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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.dictionaries.activations import Activation, JumpReLU, TopK
from interp.dictionaries.dictionary import Dictionary, SkipDictionary
from interp.dictionaries.files import checked_file
from interp.errors import InvalidInput, ModelLoadError, shorten
from interp.harvests import Harvest
from interp.integers import as_seed, at_least
from interp.io import (
    ProgressLike,
    as_path,
    as_progress,
    check_cancelled,
    save_tensors,
    write_whole,
)
from interp.points import PlaceLike

KINDS = ("topk", "batchtopk", "jumprelu")
AUX_SHARE = 1 / 32
"""Weight of the loss of features that are not active."""
DEAD_TOKENS = 200_000
"""A feature that was not active for so many tokens takes part in this loss."""
THRESHOLD_RATE = 0.01
"""Of the running mean of the threshold of ``batchtopk``."""
BANDWIDTH = 0.03
"""Width of the kernel by which thresholds of ``jumprelu`` get a gradient, in units of h."""
DECAY = 0.2
"""Share of the steps, at the end, in which the learning rate falls to zero."""
WARM_UP = 0.05
"""Share of the steps in which the penalty of ``jumprelu`` rises to its weight."""
Rows = Float[Tensor, "row d"]


@dataclass(frozen=True, kw_only=True)
class DictionarySettings:
    """The settings of the training of a dictionary.

    Attributes:
        kind: ``topk``, ``batchtopk`` or ``jumprelu``.
        n_features: number of features.
        k: mean number of features that are active for a token.
        skip: whether a transcoder has a linear path.
        steps: number of updates.
        batch: tokens of an update.
        lr: learning rate of Adam.
        seed: seed of the first weights and of the order of the rows.
    """

    kind: str = "batchtopk"
    n_features: int = 2048
    k: int = 32
    skip: bool = False
    steps: int = 1000
    batch: int = 2048
    lr: float = 1e-3
    seed: int = 0

    def checked(self) -> "DictionarySettings":
        """The same settings, validated.

        Raises:
            InvalidInput: a setting is invalid.
        """
        if self.kind not in KINDS:
            raise InvalidInput(f"kind={shorten(self.kind)} should be one of {', '.join(KINDS)}.")
        for name in ("n_features", "k", "steps", "batch"):
            at_least(1, getattr(self, name), name)
        if self.k > self.n_features:
            raise InvalidInput(f"k={self.k} should be at most n_features={self.n_features}.")
        is_number = isinstance(self.lr, int | float) and self.lr is not True  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_number or not 0 < self.lr < float("inf"):
            raise InvalidInput(f"lr={shorten(self.lr)} should be a positive number.")
        return replace(self, seed=as_seed(self.seed))


@dataclass(frozen=True, eq=False)
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

    def save(self, path: str | Path) -> None:
        """Write everything that is needed to continue to a safetensors file.

        Raises:
            OutOfResources: the file can't be written.
        """
        curves = {f"curve.{name}": getattr(self, name) for name in CURVES}
        settings = {f.name: str(getattr(self.settings, f.name)) for f in fields(self.settings)}
        model = str(self.dictionary.facts["model_name"])
        metadata = {**settings, "data": "\n".join(self.data), "model": model}
        tensors = {**self.state, **curves}
        write_whole(as_path(path), lambda new: save_tensors(tensors, new, metadata))


CURVES = ("fvu", "l0", "n_dead")
INTEGERS = ("n_features", "k", "steps", "batch", "seed")
"""Settings that are integers."""


class _Weights(nn.Module):
    """The weights in training, for scaled inputs and outputs."""

    scales: Tensor
    idle: Tensor
    threshold: Tensor

    def __init__(self, d_in: int, d_out: int, settings: DictionarySettings, *, tied: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(settings.seed)
        rows = torch.randn(settings.n_features, d_out, generator=generator)
        rows /= rows.norm(dim=-1, keepdim=True)
        columns = torch.randn(d_in, settings.n_features, generator=generator)
        columns /= columns.norm(dim=0, keepdim=True)
        self.tied, self.settings = tied, settings
        self.w_dec = nn.Parameter(rows)
        self.w_enc = nn.Parameter(rows.T.clone() if d_in == d_out else columns)
        self.b_enc = nn.Parameter(torch.zeros(settings.n_features))
        self.b_dec = nn.Parameter(torch.zeros(d_out))
        if settings.skip:
            self.w_skip = nn.Parameter(torch.zeros(d_in, d_out))
        if settings.kind == "jumprelu":
            self.log_threshold = nn.Parameter(torch.full((settings.n_features,), 0.1).log())
        # Not trained: scales of x and y, their number of steps, what was active when, and θ.
        for name, n in (("scales", 3), ("idle", settings.n_features), ("threshold", 1)):
            self.register_buffer(name, torch.zeros(n))

    def forward(self, x: Rows, y: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, the fraction of variance unexplained, and the mean number of features."""
        h = (x - self.b_dec if self.tied else x) @ self.w_enc + self.b_enc
        features = self._active(h)
        written = features @ self.w_dec + self.b_dec
        error = y - (written + x @ self.w_skip if self.settings.skip else written)
        fvu = error.square().sum() / (y - y.mean(0)).square().sum()
        n_active = (features > 0).sum() / len(x)
        self._count(features)
        loss = fvu + AUX_SHARE * self._auxiliary(h, error.detach())
        if self.settings.kind == "jumprelu":
            l0 = _step(h, self.log_threshold.exp()).sum() / len(x)
            loss = loss + self._warm_up() * (l0 / self.settings.k - 1).square()
        return loss, fvu.detach(), n_active

    def _active(self, h: Tensor) -> Tensor:
        """The features of a step."""
        k, kind = self.settings.k, self.settings.kind
        if kind == "jumprelu":
            return _jump(h, self.log_threshold.exp())
        positive = h.relu()
        if kind == "topk":
            values, indices = positive.topk(k, dim=-1)
            return torch.zeros_like(h).scatter(-1, indices, values)
        n = min(k * len(h), positive.numel())
        least = positive.detach().flatten().topk(n, sorted=False).values.min()
        features = positive * (positive >= least) * (positive > 0)
        smallest = features.detach()[features > 0]
        if smallest.numel():
            rate = THRESHOLD_RATE if bool(self.threshold) else 1.0
            self.threshold.lerp_(smallest.min()[None], rate)
        return features

    def _auxiliary(self, h: Tensor, error: Tensor) -> Tensor:
        """‖e − ê‖² / ‖e‖², with ê from features that are not active."""
        dead = self.idle > DEAD_TOKENS
        n = min(int(dead.sum()), error.shape[1] // 2)
        if not n:
            return error.new_zeros(())
        values, indices = h.masked_fill(~dead, -torch.inf).topk(n, dim=-1)
        features = torch.zeros_like(h).scatter(-1, indices, values.relu())
        share = min(1.0, n / (error.shape[1] // 2))
        missed = (error - features @ self.w_dec).square().sum()
        return share * missed / error.square().sum().clamp(min=torch.finfo(h.dtype).tiny)

    def _count(self, features: Tensor) -> None:
        active = (features.detach() > 0).any(0)
        self.idle.add_(len(features)).masked_fill_(active, 0)
        self.scales[2] += 1

    def _warm_up(self) -> float:
        return min(1.0, float(self.scales[2]) / max(1.0, WARM_UP * self.settings.steps))

    @torch.no_grad()
    def begin(self, x: Rows, y: Rows) -> None:
        """Set scales and the first bias from the rows of the first step."""
        for number, rows in enumerate((x, y)):
            mean_square = rows.square().sum(-1).mean()
            if not bool(mean_square > 0):
                raise InvalidInput("All activations of the first step are zero.")
            self.scales[number] = (rows.shape[1] / mean_square).sqrt()
        self.b_dec.copy_((y * self.scales[1]).mean(0))

    @torch.no_grad()
    def normalize(self, *, gradient: bool) -> None:
        """Scale the decoder's rows to norm 1; or project their gradient, which keeps the norms."""
        if gradient and self.w_dec.grad is not None:
            along = (self.w_dec.grad * self.w_dec).sum(-1, keepdim=True)
            self.w_dec.grad -= along * self.w_dec
        else:
            self.w_dec /= self.w_dec.norm(dim=-1, keepdim=True)

    def dictionary(self, where: Mapping[str, Any]) -> Dictionary:
        """The dictionary for activations that are not scaled; decoders keep their norm."""
        x_scale, y_scale = self.scales[:2].tolist()
        tensors = {
            "w_enc": self.w_enc * (x_scale / y_scale),
            "b_enc": self.b_enc / y_scale,
            "b_in": self.b_dec / y_scale if self.tied else self.w_enc.new_zeros(len(self.w_enc)),
            "w_dec": self.w_dec,
            "b_dec": self.b_dec / y_scale,
        }
        fixed = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        rest: dict[str, Any] = {**where, "activation": self._activation(y_scale)}
        if self.settings.skip:
            w_skip = (self.w_skip * (x_scale / y_scale)).detach().clone()
            return SkipDictionary(**fixed, **rest, w_skip=w_skip)
        return Dictionary(**fixed, **rest)

    def _activation(self, y_scale: float) -> Activation:
        if self.settings.kind == "topk":
            return TopK(self.settings.k)
        is_jump = self.settings.kind == "jumprelu"
        threshold = self.log_threshold.exp() if is_jump else self.threshold.expand_as(self.b_enc)
        return JumpReLU(threshold.detach() / y_scale)


class _Jump(torch.autograd.Function):
    """h where h > θ; θ gets a gradient from h within half of ``BANDWIDTH``."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, threshold: Tensor) -> Tensor:  # noqa: ANN401 - torch's context
        """The activations."""
        ctx.save_for_backward(h, threshold)
        return h * (h > threshold)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """By h, and by θ."""
        h, threshold = ctx.saved_tensors
        near = ((h - threshold).abs() < BANDWIDTH / 2) / BANDWIDTH
        return gradients[0] * (h > threshold), -(threshold * near * gradients[0]).sum(0)


class _Step(torch.autograd.Function):
    """1 where h > θ; only θ gets a gradient, as in :class:`_Jump`."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, threshold: Tensor) -> Tensor:  # noqa: ANN401 - torch's context
        """Which features are active."""
        ctx.save_for_backward(h, threshold)
        return (h > threshold).to(h.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:  # noqa: ANN401
        """By θ."""
        h, threshold = ctx.saved_tensors
        near = ((h - threshold).abs() < BANDWIDTH / 2) / BANDWIDTH
        return None, -(near * gradients[0]).sum(0)


def _jump(h: Tensor, threshold: Tensor) -> Tensor:
    return _Jump.apply(h, threshold)  # pyright: ignore[reportReturnType]


def _step(h: Tensor, threshold: Tensor) -> Tensor:
    return _Step.apply(h, threshold)  # pyright: ignore[reportReturnType]


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
    reader = Harvest(
        harvest.folder, places=[*several], batch=settings.batch, seed=settings.seed, drop_last=True
    )
    if not len(reader):
        raise InvalidInput(
            f"batch={settings.batch} should be at most the {reader.n_rows} rows of the harvest."
        )
    sizes = {place.name: torch.Size(place.shape).numel() for place in reader.places}
    data = (harvest.index.digest, *dict.fromkeys(names))
    weights = _Weights(sizes[names[0]], sizes[names[-1]], settings, tied=writes is None)
    optimizer = torch.optim.Adam(weights.parameters(), lr=settings.lr)
    curves: dict[str, list[float]] = {name: [] for name in CURVES}
    if resume is not None:
        _restore(resume, weights, optimizer, settings, data)
        curves = {name: getattr(resume, name).tolist() for name in CURVES}
    report = as_progress(progress, "training steps")
    for step, batch in _steps(reader, settings.steps, len(curves["fvu"])):
        x, y = (batch[name].flatten(1).float() for name in (names[0], names[-1]))
        if step == 0:
            weights.begin(x, y)
        measured = _update(weights, optimizer, x, y, step)
        for name, value in zip(CURVES, measured, strict=True):
            curves[name].append(value)
        check_cancelled()
        if report is not None:
            report(step + 1, settings.steps)
        if cancelled is not None and cancelled():
            break
    model = str(harvest.index.computation.model)
    return DictionaryTraining(
        weights.dictionary(_where(settings, data, model)),
        **{name: torch.tensor(values, dtype=torch.float64) for name, values in curves.items()},
        settings=settings,
        state=_state(weights, optimizer),
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
        settings = DictionarySettings(
            kind=metadata["kind"],
            **{name: int(metadata[name]) for name in INTEGERS},
            skip=metadata["skip"] == "True",
            lr=float(metadata["lr"]),
        ).checked()
        curves = {name: tensors.pop(f"curve.{name}") for name in CURVES}
        data = tuple(metadata["data"].split("\n"))
        d_in, d_out = tensors["weights.w_enc"].shape[0], tensors["weights.w_dec"].shape[1]
        weights = _Weights(d_in, d_out, settings, tied=len(data) == len(("texts", "reads")))
        weights.load_state_dict(_of_weights(tensors))
    except (KeyError, ValueError, RuntimeError, InvalidInput) as error:
        raise ModelLoadError(f"{file} is not the training of a dictionary: {error}.") from error
    dictionary = weights.dictionary(_where(settings, data, metadata["model"]))
    return DictionaryTraining(dictionary, **curves, settings=settings, state=tensors, data=data)


def _where(settings: DictionarySettings, data: tuple[str, ...], model: str) -> dict[str, Any]:
    """The places and the origin of a dictionary."""
    where: dict[str, Any] = {"reads": data[1], "writes": data[-1]}
    return {**where, "format": f"interp {settings.kind}", "facts": {"model_name": model}}


def _of_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights in training among all that changes."""
    prefix = "weights."
    return {name.removeprefix(prefix): x for name, x in state.items() if name.startswith(prefix)}


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
    weights = _Weights(x.shape[1], y.shape[1], settings, tied=x is y)
    optimizer = torch.optim.Adam(weights.parameters(), lr=settings.lr)
    generator = torch.Generator().manual_seed(settings.seed)
    for step in range(settings.steps):
        rows = torch.randint(len(x), (settings.batch,), generator=generator)
        if step == 0:
            weights.begin(x[rows], y[rows])
        _update(weights, optimizer, x[rows], y[rows], step)
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


def _steps(reader: Harvest, steps: int, first: int) -> Iterator[tuple[int, Mapping[str, Tensor]]]:
    """The rows of each step from ``first`` on, from one epoch after another."""
    epoch, batch = divmod(first, len(reader))
    step = first
    while step < steps:
        reader.load_state_dict({"epoch": epoch, "batch": batch})
        for rows in reader:
            yield step, rows
            step += 1
            if step == steps:
                return
        epoch, batch = epoch + 1, 0


def _update(
    weights: _Weights, optimizer: torch.optim.Adam, x: Rows, y: Rows, step: int
) -> tuple[float, float, float]:
    """One step; its fraction of variance unexplained, L0, and number of dead features.

    Raises:
        InvalidInput: the loss is not finite.
    """
    settings = weights.settings
    left = (settings.steps - step) / (DECAY * settings.steps)
    optimizer.param_groups[0]["lr"] = settings.lr * min(1.0, left)
    with torch.enable_grad():
        loss, fvu, l0 = weights(x * weights.scales[0], y * weights.scales[1])
        if not bool(loss.isfinite()):
            raise InvalidInput(
                f"The loss of step {step + 1} is not finite; try a lower lr than {settings.lr}."
            )
        optimizer.zero_grad()
        loss.backward()
    weights.normalize(gradient=True)
    optimizer.step()
    weights.normalize(gradient=False)
    return float(fvu), float(l0), float((weights.idle > DEAD_TOKENS).sum())


def _state(weights: _Weights, optimizer: torch.optim.Adam) -> dict[str, Tensor]:
    """Everything that changes in training, as tensors by name."""
    state = {f"weights.{name}": x.detach().clone() for name, x in weights.state_dict().items()}
    for number, moments in optimizer.state_dict()["state"].items():
        state |= {f"adam.{number}.{name}": x.clone() for name, x in moments.items()}
    return state


def _restore(
    resume: DictionaryTraining,
    weights: _Weights,
    optimizer: torch.optim.Adam,
    settings: DictionarySettings,
    data: tuple[str, ...],
) -> None:
    """Continue where a training stopped.

    Raises:
        InvalidInput: it had other settings or other data.
    """
    differing = [
        f.name
        for f in fields(settings)
        if getattr(resume.settings, f.name) != getattr(settings, f.name)
    ]
    differing += [] if resume.data == data else ["data"]
    if differing:
        raise InvalidInput(
            f"resume= is of a training with other {', '.join(differing)}; give the arguments of "
            "that call."
        )
    weights.load_state_dict(_of_weights(resume.state))
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in resume.state.items():
        if name.startswith("adam."):
            _, number, moment = name.split(".")
            moments.setdefault(int(number), {})[moment] = tensor.clone()
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
