"""The target of questions on the pages Why and Patch: metric, corrupted prompts, component."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from analyses import direct_logit_attribution, head_effects
from analyses.results import Result
from apps.commands.inputs import Inputs
from apps.explorer.canvas import Pick
from apps.explorer.questions import Question, question
from apps.explorer.view import Head, View
from interp.metrics import Logit, LogitDiff, logit, logit_diff

Texts = list[str] | tuple[list[str], list[str]]


def target_metric(view: View, inputs: Inputs) -> Logit | LogitDiff:
    """The logit of the target, minus that of the distractor if every prompt has one.

    It is read at the view's position, or at the position of the answer; for a prompt set, always at
    the latter.

    Raises:
        InvalidInput: a prompt lacks a target, or a target or distractor is not a single token.
    """
    target, pos = inputs.tokens("target"), None if view.prompts else view.position
    if inputs.all_have("distractor"):
        return logit_diff(target, inputs.tokens("distractor"), pos)
    return logit(target, pos)


def corrupted(inputs: Inputs) -> Texts:
    """The input of the model from the corrupted prompts.

    Raises:
        InvalidInput: a prompt has no corrupted text, or one with another number of tokens.
    """
    inputs.pairs  # noqa: B018 - checks that they align
    texts = [replace(prompt, text=prompt.corrupt or "") for prompt in inputs.prompts]
    return replace(inputs, prompts=texts).batch


@dataclass(frozen=True)
class Pairs:
    """Minimal pairs as analyses take them.

    Attributes:
        clean: the input from the prompts.
        corrupt: the input from their corrupted counterparts.
        metric: the metric of the answers.
    """

    clean: Texts
    corrupt: Texts
    metric: Logit | LogitDiff


def head_of(component: str) -> Head | None:
    """The head of the name of a component, such as L1H0 for ``cross.L1H0``; ``None`` if none."""
    return Head.of(component.rpartition(".")[2])


def with_component(view: View, name: str) -> View:
    """The view with a component chosen; a head is chosen for all pages."""
    head = head_of(name)
    if head is None:
        return replace(view, component=name)
    attention = name.rpartition(".")[0] or view.attention
    return replace(view, component=name, head=head, attention=attention)


def row_of(pick: Pick) -> str:
    """The label of the row that was clicked: ``L1H0.q`` for ``node L1H0.q, position 3``."""
    return str(pick["name"]).partition(",")[0].rpartition(" ")[2]


def direct_question(view: View, inputs: Inputs, by: str) -> Question:
    """Direct logit attribution of the answer.

    Raises:
        InvalidInput: as for :func:`target_metric`.
    """
    return _target_question(direct_logit_attribution, view, inputs, by=by)


def head_question(view: View, inputs: Inputs) -> Question:
    """What the chosen head does for the answer.

    Raises:
        InvalidInput: as for :func:`target_metric`.
    """
    return _target_question(head_effects, view, inputs, heads=(view.component,), method=view.method)


def _target_question(
    analysis: Callable[..., Result], view: View, inputs: Inputs, **settings: object
) -> Question:
    """An analysis of the answer: its target, its distractor and its position."""
    answer = direct_settings(view, inputs)
    return question(analysis, view.model, inputs.batch, **answer, **settings)


def direct_settings(view: View, inputs: Inputs) -> dict[str, object]:
    """The answer as arguments of an analysis: its target, its distractor and its position.

    Raises:
        InvalidInput: as for :func:`target_metric`.
    """
    metric = target_metric(view, inputs)
    return {
        "target": metric.target,
        "distractor": metric.distractor if isinstance(metric, LogitDiff) else None,
        "pos": metric.pos,
    }


def where(view: View) -> str:
    """The end of a title: the model, and the position if one was chosen."""
    at = "" if view.position is None or view.prompts else f", position {view.position}"
    return f"; {view.model}{at}"
