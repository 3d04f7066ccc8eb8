"""Evidence from other analyses about the components of a circuit, on the pairs it was found on."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.ablate import ablate
from analyses.attention_statistics import AttentionStatistics, attention_statistics
from analyses.attribute_edges import EdgeAttribution
from analyses.direct_logit_attribution import direct_logit_attribution
from analyses.head_roles import COPYING, HeadRoles, head_roles
from analyses.methods.circuits import LOGITS, Names, inputs_of, next_writers
from analyses.methods.components import Batches
from analyses.methods.heads import OTHER, AttentionName
from analyses.patch_paths import patch_paths
from analyses.results import fixed, rounding
from interp import Transformer
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.graph import Graph
from interp.metrics import (
    AtPosition,
    Logit,
    LogitDiff,
    Metric,
    Position,
    columns_read,
    measure_prompts,
)
from interp.model import Batch

EQUAL, AFTER_EQUAL = "the same token", "the token after the same one"
ANY_SEED = {"seed"}
ROLES = 2
"""The most roles of a head that are named."""
ByName = dict[str, Float[Tensor, " prompt"]]
"""Numbers of components, by name."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """A model, clean and corrupted prompts, and the metric that tells them apart."""

    model: Transformer
    graph: Graph
    clean: Batches
    corrupt: Batches
    metric: Metric

    @property
    def prompts(self) -> Batch | Batches:
        """The clean prompts in the form that analyses take."""
        return self.clean[0] if len(self.clean) == 1 else self.clean

    def check_attribution(self, attribution: object) -> None:
        """Check that edges were scored by conductance on these pairs, with this metric.

        Raises:
            InvalidInput: they were not.
        """
        if not isinstance(attribution, EdgeAttribution):
            raise InvalidInput(
                f"attribution={shorten(attribution)} should be a result of attribute_edges."
            )
        expected = Provenance.of(self.model, *self.clean, *self.corrupt)
        _check_same("attribution", attribution.provenance, expected, ANY_SEED)
        if attribution.method != "conductance" or bool(attribution.effect.isnan().any()):
            raise InvalidInput(
                f"attribution: edges are ranked by the conductance of all of them; these have "
                f"{attribution.method}{', not of all' if attribution.partial else ''}."
            )
        whole = measure_prompts(self.metric, self.model, self.clean)
        if not torch.allclose(
            attribution.clean, whole, rtol=0, atol=rounding(whole, expected.dtype)
        ):
            raise InvalidInput(
                f"attribution: its metric is {fixed(attribution.clean.mean(), 3)} on the clean "
                f"prompts, but metric= gives {fixed(whole.mean(), 3)}."
            )

    def check_roles(self, roles: object) -> None:
        """Check that roles were measured on this model.

        Raises:
            InvalidInput: they were not.
        """
        if not isinstance(roles, HeadRoles):
            raise InvalidInput(f"roles={shorten(roles)} should be a result of head_roles.")
        _check_same("roles", roles.provenance, Provenance.of(self.model), {*ANY_SEED, "tokens"})

    def stacked(
        self, rows: Iterable[Float[Tensor, " prompt"] | None]
    ) -> Float[Tensor, "row prompt"]:
        """Rows of numbers of the prompts; NaN where there are none."""
        absent = torch.full((len(self.clean[0].ids),), torch.nan, dtype=torch.float64)
        return torch.stack([absent, *(absent if row is None else row for row in rows)])[1:]

    def patched(self, edges: Sequence[Names], method: str) -> dict[Names, Tensor]:
        """The exact effect of each edge alone, on each prompt."""
        if not edges:
            return {}
        paths = patch_paths(
            self.model, self.clean, self.corrupt, edges=edges, method=method, metric=self.metric
        )
        return dict(zip(edges, paths.effect, strict=True))

    def ablated(self) -> ByName:
        """The effect of replacing each component by its mean, in the order of the forward."""
        writers = [writer for writer in self.graph.writers if writer.place is not None]
        names = [writer.name for writer in writers if writer.name not in inputs_of(self.graph)]
        units = {name: name for name in names}
        ablation = ablate(self.model, self.prompts, units=units, metric=self.metric)
        return dict(zip(names, ablation.effect, strict=True))

    def direct(self) -> tuple[ByName, ByName]:
        """The direct effect of each component, and its side of the target's logit.

        Both are empty if the metric is not a logit (difference); of a logit there are no sides.
        """
        if not isinstance(self.metric, Logit | LogitDiff):
            return {}, {}
        attribution = direct_logit_attribution(
            self.model,
            self.prompts,
            target=self.metric.target,
            distractor=self.metric.distractor if isinstance(self.metric, LogitDiff) else None,
            pos=self.metric.pos,
            by="head",
        )
        names = [part.name for part in attribution.parts]
        of_target = () if attribution.of_target is None else attribution.of_target.double()
        return (
            dict(zip(names, attribution.effect.double(), strict=True)),
            dict(zip(names, of_target, strict=False)),
        )

    def attends(self, answering: Collection[str]) -> dict[str, str]:
        """What each head attends to on average; heads in ``answering``, from the answer alone."""
        several = len(self.model.stacks) > 1
        kinds: tuple[AttentionName | None, ...] = get_args(AttentionName) if several else (None,)
        attended: dict[str, str] = {}
        for kind in kinds:
            before = f"{kind}." if kind else ""
            numbers = attention_statistics(self.model, self.prompts, attention=kind)
            masses = _furthest_from_uniform(numbers)
            attended |= {before + name: mass for name, mass in masses.items()}
        if several or not isinstance(self.metric, AtPosition):
            return attended
        at_answer = _furthest_from_uniform(self._attention_at_answer(self.metric.pos))
        return attended | {name: mass for name, mass in at_answer.items() if name in answering}

    def _attention_at_answer(self, pos: Position) -> AttentionStatistics:
        """Attention from the answer's query, including to equal tokens and those after them."""
        batch = self.clean[0].padded_right()  # the next column is the next token
        rows, column = torch.arange(len(batch.ids)), columns_read(batch, pos)
        answer = torch.zeros_like(batch.is_real)
        answer[rows, column] = True
        equal = (batch.ids == batch.ids[answer][:, None]) & ~answer
        after = equal.roll(1, -1)
        after[:, 0] = False
        classes = {} if batch.images is not None else {EQUAL: equal, AFTER_EQUAL: after}
        return attention_statistics(self.model, batch, classes=classes, queries=answer)

    def edges_of(self, alike: Collection[str], carrying: Collection[str]) -> list[Names]:
        """The edges among ``alike``, and between them and the inputs, the circuit or the logits."""
        following = next_writers(self.graph)
        parts = {*inputs_of(self.graph), *alike, *carrying}
        return [
            (writer.name, reader.name)
            for writer, reader in self.graph.edges
            if writer.name in parts
            and (reader.name == LOGITS or not parts.isdisjoint(following[reader.name]))
            and (writer.name in alike or not set(alike).isdisjoint(following[reader.name]))
        ]

    def needed_alike(
        self, ablated: ByName, carrying: Collection[str], least: float
    ) -> tuple[set[str], dict[Names, Tensor]]:
        """Find what a circuit needs although it does the same on both prompts.

        Args:
            ablated: the effect of replacing each component by its mean.
            carrying: the components of the circuit.
            least: the least size of an effect by which something counts as needed.

        Returns:
            The other components that are needed; and the needed ones among :meth:`edges_of` these
            components, with the effect of each.
        """
        alike = {name for name, x in ablated.items() if abs(float(x.mean())) >= least}
        alike -= set(carrying)
        effects = self.patched(self.edges_of(alike, carrying), "mean")
        return alike, {edge: x for edge, x in effects.items() if abs(float(x.mean())) >= least}

    def into(self, component: str, edges: Sequence[Names]) -> tuple[Names, ...]:
        """Those of ``edges`` that a component reads."""
        following = next_writers(self.graph)
        return tuple(edge for edge in edges if component in following[edge[1]])

    def roles(
        self, measured: HeadRoles | None, seed: int
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """The clearest roles of each head; or a note of why there are none.

        Args:
            measured: the scores of the heads; ``None`` measures them.
            seed: seed of the random tokens.
        """
        try:
            scores = head_roles(self.model, seed=seed) if measured is None else measured
        except InvalidInput as error:
            return {}, (f"roles: not measured. {error}",)
        by_head = scores.roles()
        # Where a head attends comes first: copying is what it does with what it finds there.
        ordered = {name: sorted(roles, key=COPYING.__eq__) for name, roles in by_head.items()}
        return {name: ", ".join(roles[:ROLES]) for name, roles in ordered.items()}, ()


def _check_same(
    name: str, provenance: Provenance, expected: Provenance, ignored: Collection[str]
) -> None:
    """Check that a result has the expected provenance, apart from the ``ignored`` fields.

    Raises:
        InvalidInput: it has not.
    """
    other = [
        entry.name
        for entry in fields(Provenance)
        if entry.compare
        and entry.name not in ignored
        and getattr(provenance, entry.name) != getattr(expected, entry.name)
    ]
    if other:
        raise InvalidInput(
            f"{name}: measured with other {' and '.join(other)} than those of this call; leave "
            "it out, and it is measured."
        )


def _furthest_from_uniform(statistics: AttentionStatistics) -> dict[str, str]:
    """For each head, the value-weighted mass that exceeds that of uniform attention most."""
    frame = statistics.to_frame().query("weighting == 'value-weighted'")
    frame = frame[frame["statistic"].isin(statistics.masses) & (frame["statistic"] != OTHER)]
    frame = frame[::-1]  # in a tie, a class of tokens is named rather than an offset
    best = frame.loc[(frame["mean"] - frame["uniform"]).groupby(frame["name"]).idxmax()]
    columns = (best[name] for name in ("name", "statistic", "mean", "uniform"))
    return {
        name: f"{statistic} {fixed(mean, 2)} (uniform {fixed(uniform, 2)})"
        for name, statistic, mean, uniform in zip(*columns, strict=True)
    }
