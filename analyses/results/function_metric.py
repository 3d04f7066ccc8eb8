"""A plain function of the logits as a metric of an analysis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InvalidInput
from interp.io import TensorData
from interp.metrics import (
    Metric,
    MetricLike,
    cause_of_nan,
    gets_nan_at_padding,
    measured,
)
from interp.model import Batch

UNNAMED, LAMBDA = "function", "<lambda>"
AnyMetric = str | Metric | MetricLike
"""A name, one of :mod:`interp.metrics`, or a function of the logits (and their batch)."""


@dataclass(frozen=True)
class FunctionMetric(Metric):
    """The numbers that a function computes from the logits of all prompts.

    The function may hold what belongs to single prompts, such as their answers. Therefore it is
    always called with all prompts, in their order and with their padding, and an analysis that has
    to divide them refuses it.

    Attributes:
        function: a function of the logits ``[batch pos vocab]``, or of the logits and their batch,
            with one number per prompt; see :func:`interp.metrics.measure`.
        copies: how many copies of all prompts the logits contain, one after another.
    """

    kind = "function"
    unit = "units"

    function: MetricLike = field(kw_only=True)
    copies: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        name = getattr(self.function, "__name__", UNNAMED)
        object.__setattr__(self, "name", UNNAMED if name == LAMBDA else name)

    @property
    def reads_other_rows(self) -> bool:
        """True: it may index prompts and columns, so that a batch is neither split nor repadded."""
        return True

    def for_rows(self, rows: Sequence[int], n: int) -> "FunctionMetric":
        """The metric for one or more copies of all ``n`` prompts.

        Raises:
            InvalidInput: the rows are others.
        """
        copies = len(rows) // n
        if list(rows) != [*range(n)] * copies:
            raise InvalidInput(
                f"The metric is a function of the logits of all {n} prompts, and this analysis "
                f"divides them into parts, such as one of {len(rows)}. Give fewer prompts, or a "
                "metric of interp.metrics, such as logit_diff(target, distractor)."
            )
        return replace(self, copies=self.copies * copies)

    def to_dict(
        self, of_tensor: Callable[[TensorData], object] = TensorData.to_json
    ) -> dict[str, Any]:
        """A function is no data.

        Raises:
            InvalidInput: always.
        """
        del of_tensor
        raise InvalidInput(f"The metric is a Python function ({self.name}), which can't be saved.")

    def __call__(
        self, logits: Float[Tensor, "batch pos vocab"], batch: Batch
    ) -> Float[Tensor, " batch"]:
        """One number per row.

        Raises:
            InvalidInput: the function returns something else.
        """
        n = len(logits) // self.copies
        prompts = batch.rows(torch.arange(n, device=batch.ids.device)) if self.copies > 1 else batch
        values = torch.stack([self._of_prompts(part, prompts) for part in logits.split(n)])
        return values.flatten()

    def _of_prompts(
        self, logits: Float[Tensor, "prompt pos vocab"], prompts: Batch
    ) -> Float[Tensor, " prompt"]:
        values = measured(self.function, logits, prompts)
        if values.ndim == 0 and len(logits) > 1:
            raise InvalidInput(
                f"The metric is a function ({self.name}) that gave a single number for "
                f"{len(logits)} prompts; an analysis needs one per prompt, [{len(logits)}]."
            )
        if gets_nan_at_padding(self.function, prompts) and bool(values.isnan().any()):
            raise InvalidInput(f"The metric is NaN: {cause_of_nan(self.function, prompts)}")
        return values.reshape(len(logits))
