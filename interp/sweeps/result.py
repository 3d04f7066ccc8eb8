"""What did each edit do to each prompt? One table, edits down, prompts across."""

from collections.abc import Iterator
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from interp.edits import Edit
from interp.execution.provenance import Provenance
from interp.metrics import Metric, MetricLike


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The metric under every edit, prompt by prompt.

    Attributes:
        values: the metric with the edit made; NaN where it was not run.
        clean: the metric with nothing changed; NaN where it was not run.
        done: where ``values`` were computed: all, unless the sweep was stopped.
        edits: what was done in each row: one edit, or several together.
        metric: what was measured.
        unit: of the metric.
        measured: the metric itself.
        provenance: what these numbers depend on.
        notes: what a reader should know of how they came about.
    """

    values: Float[Tensor, "edit prompt"]
    clean: Float[Tensor, " prompt"]
    done: Bool[Tensor, "edit prompt"]
    edits: tuple[tuple[Edit, ...], ...]
    metric: str
    unit: str
    measured: Metric | MetricLike
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """What was measured of how much; the numbers themselves may be very many."""
        edits, prompts = self.values.shape
        left = "" if self.complete else f", {int((~self.done).sum())} cells not done"
        return f"Sweep({self.metric} under {edits} edits of {prompts} prompts{left})"

    @property
    def effect(self) -> Float[Tensor, "edit prompt"]:
        """Edited less clean, in the metric's unit."""
        return self.values - self.clean

    @property
    def complete(self) -> bool:
        """Whether every cell was computed."""
        return bool(self.done.all())

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a computed cell: edit (its number), kind, where, prompt, clean, value, effect."""
        effect = self.effect
        for number, made in enumerate(self.edits):
            for prompt in self.done[number].nonzero()[:, 0].tolist():
                yield {
                    "edit": number,
                    "kind": " + ".join(edit.kind for edit in made),
                    "where": " + ".join(",".join(map(str, edit.where)) for edit in made),
                    "prompt": prompt,
                    "clean": self.clean[prompt].item(),
                    "value": self.values[number, prompt].item(),
                    "effect": effect[number, prompt].item(),
                }


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep: ``result`` holds what was done until then.

    It goes on as any KeyboardInterrupt does; ``interp.sweep(..., resume=error.result)`` does what
    is left.
    """

    def __init__(self, result: Sweep) -> None:
        cells = result.done.numel()
        super().__init__(
            f"The sweep was stopped with {int(result.done.sum())} of {cells} cells done."
        )
        self.result = result
