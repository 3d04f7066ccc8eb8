"""What does each head do on repeated random tokens? Previous-token, induction and other heads.

Rows are BOS and distinct random tokens x, repeated: BOS x x. A role is a set of cells (query i, key
j), and its score the attention on them, averaged over the queries that have such a key:

    role                                    cells                       control
    previous-token, next-token, offset k    j = i − 1, i + 1, i + k     uniform attention
    bos-sink (first-position-sink)          j = 0                       uniform attention
    induction                               j = i + 1 − n·|x|, n ≥ 1    the same on unrepeated rows
    duplicate-token                         j = i − n·|x|, n ≥ 1        the same on unrepeated rows
    copying                                 Σλ / Σ|λ| of W_E S W_U      columns of W_U permuted

(Olsson et al. 2022, "In-context Learning and Induction Heads"; Wang et al. 2022 for duplicate
tokens; Xiao et al. 2023 for sinks). On unrepeated rows, BOS x y, the same cells hold nothing that
repeats; attention by offset is the same there, so its control is uniform. Copying is computed from
weights alone, with S = W_V W_O and norms left out (Elhage et al. 2021): a head that raises the
logits of the tokens it attends to has eigenvalues λ of positive real part. It is measured on eight
groups of up to 512 tokens, in each with the mean over columns of W_U subtracted, which would raise
the logits of all its tokens alike and so change no odds. With ``first_mlp``, heads after the first
MLP are measured on W_E + MLP₀(W_E), which they read in many models, in place of W_E (Wang et al.
2022).

A head has a role if its score exceeds the control by more than 0.1 and the 95 % interval of that
difference, over rows (or groups), leaves out 0. Roles describe these rows: on text a head may do
something else, or more, and a head without a role need not be idle. That a head attends somewhere
does not show that the model uses what it moves.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.methods.circuits import streams_of_tokens
from analyses.methods.finite import check_finite_weights
from analyses.methods.heads import (
    SINKS,
    RepeatedRows,
    attentions_of,
    mass,
    mean_over_queries,
    pattern_at,
    repeated_rows,
    uniform_weights,
    visible_keys,
)
from analyses.results import FEWEST, Drawing, Heatmap, Result, counted, fixed, grid, mean_frame
from interp import LowRank, Transformer, run
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.io import Progress, as_progress
from interp.metrics import at_least_float32, relative_rounding
from interp.model import ImageInput, MaskedHead, Unembedding, whole_numbers
from interp.zoo import trained_tokens

LEAST = 0.1
"""The amount by which a score must exceed its control."""
GROUPS, SMALLEST, LARGEST = 8, 4, 512
"""Number of groups of tokens for copying, and the fewest and most tokens of a group."""
ROWS, RECORDED = 8, 2**27
"""The most rows that are run at a time, and bytes that they record, if that is more than a row."""
OF_REPETITION = ("induction", "duplicate-token")
COPYING = "copying"
BACKGROUND = (COPYING, *SINKS)
"""Roles that most heads of a large model have, and which therefore single out none."""
NAMED = 3
"""The most roles that the first line names a head for."""
Scores = Float[Tensor, "layer head sample"]


@dataclass(frozen=True, eq=False, repr=False)
class HeadRoles(Result):
    """The scores of each head, by role, and their controls.

    Attributes:
        score: attention from 0 to 1 (copying: from −1 to 1) of each sample: a row, or for copying
            a group of tokens. NaN where a sliding window hides the keys of a role.
        control: control of each score, on the same sample.
        silent: heads that write nothing: ‖z W_O‖ is a rounding error of the stream everywhere.
        half: number of tokens that are repeated.
        repeats: how many times each row contains them.
        provenance: model, tokens and seed that the numbers depend on.
        notes: roles that this model was not measured for, and why.
    """

    score: Mapping[str, Scores]
    control: Mapping[str, Scores]
    silent: Bool[Tensor, "layer head"]
    half: int
    repeats: int
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """One row per head and role.

        Columns:
            layer, head, name: the head.
            role: the role's name.
            score, control: means over samples.
            difference, low, high: score − control, with the 95 % interval over samples.
            n: number of samples.
            has_role: whether the difference exceeds 0.1 and its interval leaves out 0; never of a
                silent head.
        """
        return pd.concat([self._role_frame(role) for role in self.score], ignore_index=True)

    def roles(self) -> dict[str, tuple[str, ...]]:
        """The roles of each head, strongest first: ``{"L0H5": ("previous-token",), …}``.

        A head that writes nothing has the role ``silent``; one without a role has none.
        """
        frame = self.to_frame()
        with_role = frame[frame["has_role"]].sort_values(
            "difference", ascending=False, kind="stable"
        )
        of_head = with_role.groupby("name")["role"].agg(tuple).to_dict()
        silent = dict.fromkeys(self._silent, ("silent",))
        return {name: (silent | of_head).get(name, ()) for name in frame["name"].unique()}

    def drawing(self) -> Drawing:
        """Heatmap of score − control: heads down, roles across, colours centred on zero."""
        frame = self.to_frame().pivot_table(
            index=["layer", "head", "name"], columns="role", values="difference", sort=False
        )
        return Heatmap(
            torch.tensor(frame.to_numpy()),
            title="Roles of heads on repeated random tokens: score − control",
            rows=list(frame.index.get_level_values("name")),
            columns=list(frame.columns),
            axes=("head", "role"),
            unit="score − control",
            diverging=True,
            top=1.0,
        )

    def summary(self, top: int = 5) -> str:
        """The heads that stand out, and up to ``top`` heads of each role, largest first."""
        top = at_least(1, top, "top")
        listed, lines = self._listed(), [self.headline()]
        for role, heads in listed.groupby("role", sort=False):
            best = zip(heads["name"], heads["score"], heads["control"], strict=True)
            texts = [f"{name} {fixed(s, 3)} ({fixed(control, 3)})" for name, s, control in best]
            more = f", and {len(texts) - top} more" if len(texts) > top else ""
            lines.append(f"{role:<19} {', '.join(texts[:top])}{more}")
        lines += ["in brackets: the control"] if len(listed) else []
        lines += [f"{'silent':<19} {', '.join(self._silent)}"] if self._silent else []
        if self._has_few_rows:
            lines.append(f"fewer than {FEWEST} rows: no intervals, so no role of attention")
        return "\n".join([*lines, *self.notes])

    @property
    def _has_few_rows(self) -> bool:
        return any(scores.shape[-1] < FEWEST for scores in self.score.values())

    def _listed(self) -> pd.DataFrame:
        """The roles that the summary lists, those that most heads have last."""
        frame = self.to_frame()
        listed = frame[frame["difference"] > LEAST if self._has_few_rows else frame["has_role"]]
        rare = ~listed["role"].isin(BACKGROUND)
        return listed.assign(rare=rare).sort_values(
            ["rare", "difference"], ascending=False, kind="stable"
        )

    def headline(self) -> str:
        """The head that exceeds its control most, for the roles that few heads have."""
        listed = self._listed()
        rows = f"{self.repeats} × {self.half} random tokens"
        best = listed[~listed["role"].isin(BACKGROUND)].drop_duplicates("role").head(NAMED)
        of = f"of {counted(self.silent.numel(), 'head')}"
        if best.empty:
            return f"{self.provenance.model}: none {of} stands out on {rows}"
        texts = [
            f"{name} ({role} {fixed(score, 2)}, control {fixed(control, 2)})"
            for name, role, score, control in zip(
                best["name"], best["role"], best["score"], best["control"], strict=True
            )
        ]
        return f"{self.provenance.model}: {of} on {rows}, {', '.join(texts)} stand out most"

    def _role_frame(self, role: str) -> pd.DataFrame:
        scores, controls = self.score[role].flatten(0, 1), self.control[role].flatten(0, 1)
        layers, heads = self.silent.shape
        cells = grid(layer=range(layers), head=range(heads))
        frame = mean_frame(
            {**cells, "name": self._names, "role": [role] * len(scores)}, scores - controls
        )
        frame = frame.rename(columns={"mean": "difference"})
        frame.insert(4, "score", scores.nanmean(-1).numpy())
        frame.insert(5, "control", controls.nanmean(-1).numpy())
        above = (frame["difference"] > LEAST) & (frame["low"] > 0)
        frame["has_role"] = above & ~self.silent.flatten().numpy()
        return frame[frame["n"] > 0]

    @property
    def _names(self) -> list[str]:
        layers, heads = self.silent.shape
        return [f"L{layer}H{head}" for layer in range(layers) for head in range(heads)]

    @property
    def _silent(self) -> list[str]:
        return [
            name for name, silent in zip(self._names, self.silent.flatten(), strict=True) if silent
        ]


def head_roles(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    *,
    tokens: Sequence[int] | None = None,
    half: int | None = None,
    rows: int = 32,
    repeats: int = 2,
    seed: int = 0,
    first_mlp: bool = False,
    progress: Progress | None = None,
) -> HeadRoles:
    """Measure what each head attends to on repeated random tokens, and what it copies.

    Args:
        model: a decoder or an encoder of tokens. An encoder has next-token heads, but no induction
            heads, which predict next tokens.
        tokens: ids that rows are drawn from; by default the trained tokens of the model's card, or
            without a card all but the special tokens.
        half: number of tokens that are repeated; by default 60, or as many as the context or
            ``tokens`` allow. All tokens of a row are distinct except for the repetition.
        rows: number of rows that are drawn.
        repeats: how many times each row contains the tokens.
        seed: seed for the draws.
        first_mlp: whether copying is measured on embeddings to which the output of the first MLP is
            added, as heads after it read them; heads of layer 0 read embeddings alone.
        progress: called with ``(steps done, steps in total)``: runs of some rows, and the copying
            of each layer.

    Returns:
        Scores and controls by role.

    Raises:
        InvalidInput: a model of pairs or images; fewer than two repeats or one row; a context or
            a vocabulary too small for ``half`` (or 3) tokens and their repetition; attention that
            is not finite; or ``first_mlp`` where the first block has no MLP.
        InvalidTokens: ``tokens`` are not ids of the vocabulary.

    Examples:
        >>> analyses.head_roles(interp.load("induction-by-hand"))
        HeadRoles(induction-by-hand: of 8 heads on 2 × 31 random tokens, L1H0 (induction 1.00,
        control 0.00), L0H0 (previous-token 1.00, control 0.05) stand out most)
    """
    check_finite_weights(model)
    if not _reads_tokens(model):
        raise InvalidInput(
            "head_roles repeats random tokens, which models of pairs and of images do not read; "
            "attention_statistics takes them."
        )
    if not isinstance(first_mlp, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"first_mlp={shorten(first_mlp)} should be True or False.")
    if first_mlp and not hasattr(model.stacks[0].block(0), "mlp"):
        raise InvalidInput("first_mlp=True: the first block of this model has no MLP.")
    seed = as_seed(seed)
    ids = whole_numbers(trained_tokens(model) if tokens is None else tokens).cpu().unique()
    drawn = repeated_rows(model, ids, half=half, rows=rows, repeats=repeats, seed=seed)
    parts = _parts(model, drawn)
    n_runs = len(parts)
    report, steps = as_progress(progress, "steps"), n_runs + len(model.blocks)

    def at_step(step: int) -> None:
        if report is not None:
            report(step, steps)

    scores, controls, silent = _attention_scores(model, drawn, parts, at_step)
    generator = torch.Generator().manual_seed(seed)
    shuffled = ids[torch.randperm(len(ids), generator=generator)]
    copying, notes = _copying(
        model, shuffled, first_mlp=first_mlp, done=lambda layer: at_step(n_runs + layer)
    )
    at_step(steps)
    if copying is not None:
        scores[COPYING], controls[COPYING] = copying
    if not model.config.is_causal:
        notes.append("induction: not measured, for attention to next tokens predicts none")
    provenance = replace(Provenance.of(model, drawn.repeated, drawn.unrepeated), seed=seed)
    return HeadRoles(scores, controls, silent, drawn.half, repeats, provenance, tuple(notes))


def has_roles(model: Transformer) -> bool:
    """Whether roles can be measured: the model reads tokens, and enough different ones."""
    if not _reads_tokens(model):
        return False
    try:
        repeated_rows(model, torch.tensor(trained_tokens(model)), rows=1)
    except InvalidInput:
        return False
    return True


def _reads_tokens(model: Transformer) -> bool:
    return len(model.stacks) == 1 and not isinstance(model.stacks[0].input, ImageInput)


def _parts(model: Transformer, rows: RepeatedRows) -> tuple[Int[Tensor, " row"], ...]:
    """The indices of the rows that are run together."""
    n, width = rows.repeated.ids.shape
    layers = attentions_of(model).layers
    of_heads = sum((3 * attn.n_heads + 2 * attn.kv_heads) * attn.d_head for attn in layers)
    bytes_of_row = width * (of_heads + len(layers) * model.d_model) * model.dtype.itemsize
    together = min(ROWS, max(1, RECORDED // bytes_of_row))
    return torch.arange(n, device=model.device).split(together)


def _attention_scores(
    model: Transformer,
    rows: RepeatedRows,
    parts: Sequence[Int[Tensor, " row"]],
    done: Callable[[int], None],
) -> tuple[dict[str, Scores], dict[str, Scores], Bool[Tensor, "layer head"]]:
    """Scores and controls by role, and which heads write nothing; ``done`` takes each run."""
    measured: list[Any] = []
    for part in parts:
        measured.append(_scores_of_rows(model, rows.rows(part)))
        done(len(measured))
    scores, controls, written, streams = zip(*measured, strict=True)
    largest = torch.stack(written).amax(0)  # ‖z W_O‖ over all positions
    rounding = relative_rounding(largest.dtype) * torch.stack(streams).amax(0)
    return _joined(scores), _joined(controls), (largest <= rounding[:, None]).cpu()


@torch.no_grad()
def _scores_of_rows(
    model: Transformer, rows: RepeatedRows
) -> tuple[
    dict[str, Scores],
    dict[str, Scores],
    Float[Tensor, "layer head"],
    Float[Tensor, " layer"],
]:
    """Scores and controls by role; the largest ‖z W_O‖ of each head, and norm of each stream."""
    kind = attentions_of(model)
    patterns = [kind.places(layer)[0] for layer in range(len(kind.layers))]
    n, wanted = len(kind.layers), [*patterns, "z", "resid_pre"]  # and no logits
    cache = run(model, rows.repeated, record=wanted, stop_at_layer=n).cache
    other = run(model, rows.unrepeated, record=patterns, stop_at_layer=n).cache
    (context,) = model.contexts([rows.repeated])
    cells = rows.cells(bidirectional=kind.is_bidirectional)
    scores: dict[str, list[Tensor]] = {role: [] for role in cells}
    controls: dict[str, list[Tensor]] = {role: [] for role in cells}
    written: list[Tensor] = []
    streams: list[Tensor] = []
    for layer, (attn, place) in enumerate(zip(kind.layers, patterns, strict=True)):
        pattern, unrelated = pattern_at(cache, place), pattern_at(other, place)
        visible = visible_keys(attn, context, pattern.shape[-1])
        uniform = uniform_weights(visible, pattern.dtype).expand_as(pattern)
        for role, mask in cells.items():
            chosen = mask.to(visible.device) & visible
            control = unrelated if role in OF_REPETITION else uniform
            scores[role].append(_mean_mass(pattern, chosen))
            controls[role].append(_mean_mass(control, chosen))
        z, stream = (at_least_float32(cache[point, layer]) for point in ("z", "resid_pre"))
        heads = zip(z.unbind(2), at_least_float32(attn.W_O), strict=True)
        written.append(torch.stack([(z @ W_O).norm(dim=-1).max() for z, W_O in heads]))
        streams.append(stream.norm(dim=-1).max())
    return _stacked(scores), _stacked(controls), torch.stack(written), torch.stack(streams)


def _stacked(by_role: Mapping[str, list[Tensor]]) -> dict[str, Scores]:
    """The layers of each role."""
    return {role: torch.stack(layers).cpu() for role, layers in by_role.items()}


def _joined(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Scores]:
    """The rows of each role."""
    first, *others = parts
    return {
        role: torch.cat([scores, *(part[role] for part in others)], -1)
        for role, scores in first.items()
    }


def _mean_mass(weights: Tensor, cells: Tensor) -> Float[Tensor, "head row"]:
    """The weights on the cells, averaged over the queries that have one."""
    return mean_over_queries(mass(weights, cells), cells.any(-1)[:, None]).T


@torch.no_grad()
def _copying(
    model: Transformer,
    ids: Int[Tensor, " token"],
    *,
    first_mlp: bool,
    done: Callable[[int], None],
) -> tuple[tuple[Scores, Scores] | None, list[str]]:
    """Scores and controls of copying on groups of tokens; or a note on why there are none.

    ``done`` takes the number of layers so far.
    """
    size = min(len(ids) // GROUPS, LARGEST)
    if (reason := _no_copying(model, size)) is not None:
        return None, [f"copying: not measured, for {reason}"]
    groups = ids[: size * GROUPS].view(GROUPS, 1, size).to(model.device)
    W_E, columns = (at_least_float32(matrix[groups]) for matrix in (model.W_E, model.W_U.mT))
    centred = (columns - columns.mean(-2, keepdim=True)).mT
    after_mlp = W_E
    if first_mlp:
        stack, until = model.stacks[0], model.stacks[0].block(1).steps[0]
        streams = streams_of_tokens(stack, groups.flatten(), until, None, first_mlp=True)
        after_mlp = at_least_float32(streams).view_as(W_E)
    fractions: list[Tensor] = []
    for layer, block in enumerate(model.blocks):
        attn = block.attn
        factors = attn.each_query(attn.W_V, axis=0), attn.W_O
        paths = (
            (after_mlp if layer else W_E)
            @ LowRank(*(at_least_float32(factor) for factor in factors))
            @ centred
        )
        # Groups are in random order: shifting them by one gives each token another's column.
        permuted = LowRank(paths.left, paths.right.roll(1, -1))
        fractions.append(
            torch.stack([product.positive_fraction().T for product in (paths, permuted)])
        )
        done(layer + 1)
    scores, controls = torch.stack(fractions, 1).cpu()
    return (scores, controls), []


def _no_copying(model: Transformer, size: int) -> str | None:
    """Why W_E S W_U is not what a head does to the logits of tokens; ``None`` if it is."""
    if not isinstance(model.unembed, Unembedding) or model.config.n_classes is not None:
        return "this model has no logits of tokens"
    if isinstance(model.stacks[0].final_norm, MaskedHead):
        return "a masked-language head stands between the stream and the logits"
    if model.W_E.shape[1] != model.d_model:
        return "this model projects its embedding to another width"
    if size < SMALLEST:
        return f"it needs {GROUPS * SMALLEST} tokens or more"
    return None
