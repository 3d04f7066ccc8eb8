"""Which circuit makes this answer? Found by attribution, checked by running it, named with roles.

    f(C) = 1 − Σ_i |m_i(C) − m_i(M)| / Σ_i |m_i(∅) − m_i(M)|        over pairs of prompts i

m_i(C) is the metric of clean prompt i when only the edges of C carry its values, and all others
those of its corrupted counterpart; m_i(M) is that of the whole model, m_i(∅) that without any edge.
Errors of opposite sign do not cancel in f, so it is never above the faithfulness of means that
``prune`` reports. The circuit is the smallest with f ≥ 0.8 among those of the highest-ranked edges
(by conductance; edges on no path from an input to the logits are left out). If no small circuit
reaches it, the summary says that none explains the answer. The control has as many edges, drawn at
random.

A component that computes the same on both prompts carries no difference, but the circuit may need
it, for instance to attend to the right token. Heads and MLPs outside the circuit are therefore
ablated as well, by their mean over tokens; those that change the metric by a fifth of its
difference or more are named, with their edges.

The analysis combines others: ``attribute_edges``, ``patch_paths``, ``ablate``,
``direct_logit_attribution``, ``head_roles``, ``attention_statistics``. What the numbers can't show:
that no other circuit does the same (Wang et al. 2022, "Interpretability in the Wild", test for
completeness), that a role measured on random tokens is what a head does here, or that the same
circuit serves other prompts: it was chosen on these.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.attribute_edges import EdgeAttribution, attribute_edges
from analyses.explain.circuit_evidence import Pairs
from analyses.explain.faithful import Circuit, candidates, faithfulness, smallest_faithful
from analyses.head_roles import HeadRoles
from analyses.methods.attribution import TOLERANCE
from analyses.methods.circuits import LOGITS, Names, run_circuits, strongest_paths, written
from analyses.methods.components import aligned
from analyses.methods.finite import check_finite_weights
from analyses.results import (
    NONE,
    AnyMetric,
    Drawing,
    Result,
    as_metric,
    circuit_drawing,
    counted,
    interval,
    number,
    percent,
    rounding,
)
from interp import Transformer, computation_graph
from interp.errors import InvalidInput
from interp.execution import Provenance
from interp.graph import Graph
from interp.integers import at_least
from interp.io import ProgressLike

FAITHFUL = 0.8
"""The least faithfulness of a circuit that explains the answer."""
NEEDED = 0.2
"""A circuit needs what changes the metric by this share of its difference when ablated."""
DRAWS = 3
PATHS, ROWS = 3, 12
"""The most paths and components in a summary."""
CARRIES, ALIKE = "carries the difference", "needed alike"
LETTERS = ("q", "k", "v")


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Result):
    """A circuit with the evidence for it.

    Attributes:
        whole: the metric of the whole model on the clean prompts.
        empty: the metric without any edge, that is, on the corrupted prompts.
        counts: number of edges of each circuit that was run, ascending.
        value: the metric of each of these circuits.
        control: the metric of circuits of as many edges as the chosen one, drawn at random.
        edges: the edges of the chosen circuit: the first that is faithful, or the largest.
        score: conductance of each edge, in the metric's unit: a change from ``whole``.
        exact: the effect of patching each edge alone.
        support: edges from and to components that do the same on both prompts.
        support_effect: the effect of patching each of these alone, with its mean over tokens.
        names: names of the components of the circuit and of ``support``, in the order of the
            forward.
        direct: their direct effects on the metric; NaN if it is not a logit or a logit difference.
        of_target: of a logit difference, their direct effects on the target's logit alone; else
            ``None``.
        effect: the effect of replacing each component by its mean over tokens.
        roles: roles of each head on repeated random tokens; ``""`` for none.
        attends: what each head attends to most above uniform attention on these prompts, weighted
            by the lengths of values; for a head that writes to the logits, from the position of
            the answer.
        reads: the edges into each component.
        paths: the strongest path through each part of the circuit, strongest first.
        n_edges: number of edges of the whole model.
        metric: the metric's name.
        unit: the metric's unit.
        provenance: model, tokens and seed that the numbers depend on.
        notes: what could not be measured, and why.
    """

    whole: Float[Tensor, " prompt"]
    empty: Float[Tensor, " prompt"]
    counts: tuple[int, ...]
    value: Float[Tensor, "circuit prompt"]
    control: Float[Tensor, "draw prompt"]
    edges: tuple[Names, ...]
    score: Float[Tensor, "edge prompt"]
    exact: Float[Tensor, "edge prompt"]
    support: tuple[Names, ...]
    support_effect: Float[Tensor, "support prompt"]
    names: tuple[str, ...]
    direct: Float[Tensor, "component prompt"]
    of_target: Float[Tensor, "component prompt"] | None
    effect: Float[Tensor, "component prompt"]
    roles: tuple[str, ...]
    attends: tuple[str, ...]
    reads: tuple[tuple[Names, ...], ...]
    paths: tuple[tuple[Names, ...], ...]
    n_edges: int
    metric: str
    unit: str
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @property
    def faithfulness(self) -> float:
        """f of the circuit."""
        return float(self._f(self.value[-1]))

    @property
    def faithfulness_control(self) -> float:
        """f of as many edges drawn at random, mean over draws."""
        return float(self._f(self.control).mean())

    @property
    def is_explained(self) -> bool:
        """Whether the circuit is faithful: f ≥ 0.8."""
        return self.faithfulness >= FAITHFUL

    def to_frame(self) -> pd.DataFrame:
        """One row per component, in the order of the forward.

        Columns:
            name: name of the head or MLP.
            reason: ``carries the difference`` if it is in the circuit, else ``needed alike``: it
                does the same on both prompts.
            role, attends: the role of a head and what it attends to; ``–`` for none.
            score: sum of the scores of the circuit's edges that leave it.
            direct: mean direct effect on the metric.
            to_target, to_distractor: of a logit difference, the two sides of the direct effect, as
                in ``direct_logit_attribution``.
            effect, low, high: mean effect of replacing it by its mean over tokens, and its 95 %
                interval.
            reads, feeds: its incoming and outgoing edges.
        """
        effects, edges = interval(self.effect), [*self.edges, *self.support]
        score = self.to_edge_frame().groupby("writer")["score"].sum(min_count=1)
        return pd.DataFrame(
            {
                "name": self.names,
                "reason": [CARRIES if self._is_carrying(name) else ALIKE for name in self.names],
                "role": [role or NONE for role in self.roles],
                "attends": [attended or NONE for attended in self.attends],
                "score": [float(score.get(name, torch.nan)) for name in self.names],
                "direct": self.direct.mean(-1).tolist(),
                **self._sides(),
                "effect": effects.mean.tolist(),
                "low": effects.low.tolist(),
                "high": effects.high.tolist(),
                "reads": [_joined(map(_input, reads)) for reads in self.reads],
                "feeds": [_joined(r for w, r in edges if w == name) for name in self.names],
            }
        )

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        return {"edges": self.to_edge_frame()}

    def to_edge_frame(self) -> pd.DataFrame:
        """One row per edge, those of the circuit first.

        Columns:
            writer, reader, reason: the edge, and whether it carries the difference.
            score: its conductance; NaN for an edge that is needed alike.
            exact: mean effect of patching it alone, with what it carries on the corrupted prompt;
                if it is needed alike, with the mean over tokens.
        """
        edges, absent = [*self.edges, *self.support], [torch.nan] * len(self.support)
        return pd.DataFrame(
            {
                "writer": [writer for writer, _ in edges],
                "reader": [reader for _, reader in edges],
                "reason": [CARRIES] * len(self.edges) + [ALIKE] * len(self.support),
                "score": [*self.score.mean(-1).tolist(), *absent],
                "exact": torch.cat([self.exact, self.support_effect]).mean(-1).tolist(),
            }
        )

    def to_size_frame(self) -> pd.DataFrame:
        """One row per circuit that was run: its number of edges, and f."""
        return pd.DataFrame({"count": self.counts, "faithfulness": self._f(self.value).tolist()})

    def drawing(self) -> Drawing:
        """The circuit as a graph with the roles of its heads, inputs at the bottom."""
        frame = self.to_edge_frame()
        pairs = zip(frame["writer"], frame["reader"], strict=True)
        weights = frame["score"].fillna(frame["exact"])
        return circuit_drawing(
            dict(zip(pairs, weights, strict=True)),
            title=self._title,
            unit=self.unit,
            labels={
                name: role.partition(",")[0]
                for name, role in zip(self.names, self.roles, strict=True)
            },
        )

    def summary(self, paths: int = PATHS, rows: int = ROWS) -> str:
        """The circuit's faithfulness, its strongest paths, and the evidence on each component."""
        paths, rows = at_least(0, paths, "paths"), at_least(0, rows, "rows")
        left = len(self.names) - rows
        return "\n".join(
            [
                *self.conclusion(paths),
                *self._component_lines(rows),
                *([f"and {left} more"] if left > 0 else []),
                *self.notes,
            ]
        )

    def conclusion(self, paths: int = 1) -> list[str]:
        """The faithfulness, the strongest ``paths``, and what is needed though alike."""
        alike = [name for name in self.names if not self._is_carrying(name)]
        return [
            self.headline(),
            *(f"path: {self._path_text(path)}" for path in self.paths[:paths]),
            *([f"needed, though alike on both prompts: {', '.join(alike)}"] if alike else []),
        ]

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        whole, empty = (number(x.mean().item(), 3) for x in (self.whole, self.empty))
        return (
            f"{self._size} keep {percent(self.faithfulness)} of the {self.metric} "
            f"({whole} → {empty} {self.unit}, {counted(len(self.whole), 'pair')}; as many at "
            f"random: {percent(self.faithfulness_control)})"
        )

    # ---- parts of the summary ---------------------------------------------------------------

    def _f(self, values: Float[Tensor, "*circuit prompt"]) -> Float[Tensor, "*circuit"]:
        return faithfulness(values, self.whole, self.empty)

    def _is_carrying(self, component: str) -> bool:
        return any(writer == component for writer, _ in self.edges)

    @property
    def _size(self) -> str:
        n = len(self.edges)
        return f"{n} edges" if self.is_explained else f"No small circuit explains this: {n} edges"

    @property
    def _title(self) -> str:
        more = f"; {len(self.support)} more are needed alike" if self.support else ""
        share = f"{percent(self.faithfulness)} of the {self.metric}"
        return f"{self._size} (of {self.n_edges}) keep {share}{more}"

    def _sides(self) -> dict[str, list[float]]:
        """The two sides of the direct effects, if there are two."""
        if self.of_target is None:
            return {}
        sides = {"to_target": self.of_target, "to_distractor": self.of_target - self.direct}
        return {name: side.mean(-1).tolist() for name, side in sides.items()}

    def _path_text(self, path: Sequence[Names]) -> str:
        """The nodes of a path, with the roles of heads."""
        role = dict(zip(self.names, self.roles, strict=True))
        words = [path[0][0]]
        for (_, reader), after in zip(path, [*(writer for writer, _ in path[1:]), ""], strict=True):
            words.append(f"{reader} ({role[after]})" if role.get(after) else reader)
        return " → ".join(words)

    def _component_lines(self, rows: int) -> list[str]:
        """The evidence on each component, those with the largest scores first."""
        frame = self.to_frame()
        order = frame.assign(size=frame["score"].abs().fillna(0), effect_size=frame["effect"].abs())
        order = order.sort_values(["size", "effect_size"], ascending=False, kind="stable")
        width = max(map(len, self.names), default=0)
        lines: list[str] = []
        for row in order.head(rows).to_dict("records"):
            attends = f"attends to {row['attends']}"
            numbers = (("score", "score"), ("direct", "direct"), ("effect", "ablated"))
            measured = [
                f"{word} {number(row[name], 3, sign=True)}"
                + (_sides_text(row) if name == "direct" else "")
                for name, word in numbers
                if row[name] == row[name]
            ]
            texts = [row["role"], attends, f"{', '.join(measured)} {self.unit}"]
            text = "; ".join(part for part in texts if not part.endswith(NONE))
            lines.append(f"{row['name']:<{width}} {text}")
        return lines


def explain(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    clean: Any,  # noqa: ANN401 - what model.check reads
    corrupt: Any,  # noqa: ANN401 - likewise
    *,
    metric: AnyMetric,
    most: int = 64,
    steps: int = 10,
    attribution: EdgeAttribution | None = None,
    roles: HeadRoles | None = None,
    seed: int = 0,
    memory: float | None = None,
    progress: ProgressLike = None,
) -> Explanation:
    """Find the smallest circuit that carries the difference between prompts, and describe it.

    Args:
        model: a model whose stream is a sum of what is written.
        clean: one prompt or more: texts, token ids, or a batch; ``(source, target)`` for an
            encoder–decoder.
        corrupt: as many prompts with another answer, each with as many tokens as its clean
            counterpart.
        metric: a metric of the answer, or a function of the logits, with a gradient; direct
            effects are measured only for a logit or a logit difference.
        most: the most edges of a small circuit; at most half of all edges are used.
        steps: least number of steps of the path along which edges are scored, as in
            ``attribute_edges`` with a tolerance of 0.01.
        attribution: the conductance of all edges, if :func:`attribute_edges` has measured it for
            this model, these pairs and this metric; it is measured otherwise.
        roles: the roles of the heads of this model, if :func:`head_roles` has measured them; they
            are measured otherwise.
        seed: seed for the random circuits, and for the tokens on which roles are measured.
        memory: bytes that the forwards may take, as for :func:`interp.sweep`.
        progress: called with the number of circuits × prompts done and their total.

    Returns:
        The circuit, its faithfulness, and the evidence on its components.

    Raises:
        InvalidInput: pairs that do not align, or that the metric does not tell apart; a metric
            without a gradient; norms change the stream (post-norm), so that there are no edges; or
            ``attribution`` or ``roles`` were measured on something else.

    Examples:
        >>> model = interp.load("rasp-reverse")
        >>> metric = interp.metrics.logit_diff("a", "b")
        >>> analyses.explain(model, "abcde", "bbcde", metric=metric)
        Explanation(2 edges keep 100 % of the logit difference (12 → −12 logits, 1 pair; as many at
        random: 0 %))
    """
    check_finite_weights(model)
    most, steps = at_least(1, most, "most"), at_least(1, steps, "steps")
    clean_batches, corrupt_batches = aligned(model, clean, corrupt)
    pairs = Pairs(
        model,
        computation_graph(model),
        clean_batches,
        corrupt_batches,
        as_metric(metric, model, clean_batches),
    )
    if roles is not None:
        pairs.check_roles(roles)
    if attribution is None:
        attribution = attribute_edges(
            model,
            clean_batches,
            corrupt_batches,
            metric=pairs.metric,
            steps=steps,
            tolerance=TOLERANCE,
            check=0,
            seed=seed,
            memory=memory,
        )
    else:
        pairs.check_attribution(attribution)
    least, scores = NEEDED * _difference(attribution), attribution.scores
    values = written(model, corrupt_batches)

    def run(circuits: Sequence[Circuit]) -> Float[Tensor, "circuit prompt"]:
        return run_circuits(
            model, clean_batches, circuits, values, pairs.metric, memory=memory, progress=progress
        )

    circuit = smallest_faithful(
        pairs.graph,
        _candidates(pairs.graph, scores, most),
        run,
        ends=(attribution.clean, attribution.corrupt),
        least=FAITHFUL,
        draws=DRAWS,
        seed=seed,
    )
    number = {edge: n for n, edge in enumerate(attribution.edges)}
    weights = {edge: scores[edge] for edge in circuit.edges}
    return Explanation(
        whole=attribution.clean,
        empty=attribution.corrupt,
        counts=circuit.counts,
        value=circuit.values,
        control=circuit.random,
        edges=circuit.edges,
        score=attribution.effect[[number[edge] for edge in circuit.edges]],
        exact=pairs.stacked(pairs.patched(circuit.edges, "resample").values()),
        # What a circuit needs is only measured for a faithful one.
        **_evidence(pairs, circuit.edges, least if circuit.is_faithful else torch.inf, roles, seed),
        paths=tuple(path.edges for path in strongest_paths(pairs.graph, weights)),
        n_edges=len(attribution.edges),
        metric=pairs.metric.name,
        unit=pairs.metric.unit,
        provenance=replace(Provenance.of(model, *clean_batches, *corrupt_batches), seed=seed),
    )


def _evidence(
    pairs: Pairs, edges: Sequence[Names], least: float, roles: HeadRoles | None, seed: int
) -> dict[str, Any]:
    """The fields of an explanation that tell what its components do.

    Args:
        pairs: the pairs of prompts.
        edges: the edges of the circuit.
        least: the effect from which a component is needed though the pairs do not differ in it.
        roles: the roles of the heads; ``None`` if they are not measured yet.
        seed: seed for the tokens on which roles are measured.
    """
    ablated, carrying = pairs.ablated(), {writer for writer, _ in edges}
    alike, support = pairs.needed_alike(ablated, carrying, least)
    components = tuple(name for name in ablated if name in carrying | alike)
    answering = {writer for writer, reader in edges if reader == LOGITS}
    (direct, of_target), attends = pairs.direct(), pairs.attends(answering)
    role_names, notes = pairs.roles(roles, seed)
    return {
        "support": tuple(support),
        "support_effect": pairs.stacked(support.values()),
        "names": components,
        "direct": pairs.stacked(map(direct.get, components)),
        "of_target": pairs.stacked(map(of_target.get, components)) if of_target else None,
        "effect": pairs.stacked(ablated[name] for name in components),
        "roles": tuple(role_names.get(name, "") for name in components),
        "attends": tuple(attends.get(name, "") for name in components),
        "reads": tuple(pairs.into(name, (*edges, *support)) for name in components),
        "notes": notes,
    }


def _difference(attribution: EdgeAttribution) -> float:
    """Mean |m(∅) − m(M)|, checked to exceed rounding errors."""
    difference = float((attribution.corrupt - attribution.clean).abs().mean())
    if difference <= rounding(attribution.clean, attribution.provenance.dtype):
        raise InvalidInput(
            f"The {attribution.metric} is the same on clean and corrupted prompts within rounding, "
            "so that faithfulness is undefined: there is nothing to explain. Give pairs on which "
            "it differs."
        )
    return difference


def _candidates(graph: Graph, scores: Mapping[Names, float], most: int) -> list[Circuit]:
    """Circuits of the highest-ranked edges, smallest first; or the strongest path of all edges."""
    order = sorted(scores, key=lambda edge: -abs(scores[edge]))
    circuits = candidates(graph, order, min(most, len(order) // 2))
    return circuits or [strongest_paths(graph, scores)[0].edges]


def _input(edge: Names) -> str:
    """A writer, with the letter of what a head reads of it: ``L0H5 (k)``."""
    writer, reader = edge
    letter = reader.rpartition(".")[2]
    return f"{writer} ({letter})" if letter in LETTERS else writer


def _sides_text(row: Mapping[Any, Any]) -> str:
    """``(target +0.08, distractor −2.39)``; empty if there are no sides."""
    if "to_target" not in row:
        return ""
    sides = (("target", "to_target"), ("distractor", "to_distractor"))
    texts = (f"{side} {number(row[column], 3, sign=True)}" for side, column in sides)
    return f" ({', '.join(texts)})"


def _joined(names: Iterable[str]) -> str:
    return " + ".join(names) or NONE
