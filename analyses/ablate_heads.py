"""Which heads matter for these prompts? Head ablation: the metric with one head's z replaced.

A short form of :mod:`analyses.ablate` for all heads of a model with one stack.

    effect[l, h, prompt] = metric(z_lh replaced) − metric(clean)

*Zero* ablation replaces z with 0; *mean* ablation with its mean over all prompts and positions
(Wang et al. 2022, "Interpretability in the Wild"); *resample* ablation with its value on another
prompt at the same position (Chan et al. 2022, "Causal Scrubbing"). Ablating a head that helps
raises a loss and lowers a logit difference.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from analyses.ablate import Ablation, ablate
from analyses.results import AnyMetric, Progress
from interp import Sweep, Transformer
from interp.errors import InvalidInput


def ablate_heads(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.batch reads
    *,
    metric: AnyMetric = "loss",
    method: str = "mean",
    seed: int = 0,
    rows: int = 64,
    memory: float | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    resume: Sweep | None = None,
) -> Ablation:
    """Ablate every head of a model with a single stack: :func:`ablate`, by layer and head.

    Args:
        model: the model.
        prompts: texts, token ids padded with ``interp.PAD``, images, or a batch that
            ``model.batch`` made (with token types or a mask, say).
        metric: ``"loss"`` (next-token, nats), ``"kl"`` (see :func:`ablate`), a metric,
            e.g. ``interp.metrics.logit_diff(...)``, or a function of the logits.
        method: ``zero``, ``mean`` (over all prompts and positions) or ``resample`` (another prompt
            at the same position, drawn by ``seed``).
        seed: seed for the resampling.
        rows: prompts per forward while activations are collected; the result does not depend on it.
        memory: bytes that the sweep may take, as for :func:`interp.sweep`.
        progress: called with ``(heads done, heads in total)``.
        cancelled: called after each forward; if it returns True, what was measured is returned,
            and its ``partial`` can be resumed.
        resume: partial result of the same call: ``partial`` of a cancelled one, or the ``result``
            of the :class:`interp.Interrupted`, or of the error, that stopped it.

    Returns:
        Effects ``[layer head prompt]``.

    Raises:
        InvalidInput: an unknown method or metric, a model with two stacks, resampling with a single
            prompt, or a ``resume`` of another call.
        Cancelled: ``cancelled`` returned True before anything was measured.
        Interrupted: Ctrl-C; its ``result`` can be resumed.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> analyses.ablate_heads(model, ["abcabc", "xyzxyz"])
        Ablation(loss 2.762 nats on 2 prompts; largest effect of 8 heads (mean ablation): L0H0 +1.38
        nats; ≥ 10 % of the metric: 2 of 8)
    """
    if len(model.stacks) > 1:
        raise InvalidInput("ablate_heads takes models with one stack; ablate takes those with two.")
    ablation = ablate(
        model,
        prompts,
        metric=metric,
        method=method,
        seed=seed,
        rows=rows,
        memory=memory,
        progress=progress,
        cancelled=cancelled,
        resume=resume,
    )
    return replace(ablation, ablated=ablation.ablated.unflatten(0, (len(model.blocks), -1)))
