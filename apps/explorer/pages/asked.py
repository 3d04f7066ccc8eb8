"""What questions of all pages begin with: the prompts of a view, and its metric."""

import interp
from apps.commands.inputs import Inputs
from apps.explorer.default_views import examples
from apps.explorer.view import View
from interp.metrics import Metric
from interp.model.attentions import AttentionName
from interp.text.prompts import Prompt


def prompt_of(view: View) -> Prompt:
    """The prompt of a view."""
    fields = {name: getattr(view, name) or None for name in ("target", "distractor", "corrupt")}
    return Prompt(view.text, source="the prompt", prefix=view.prefix or None, **fields)


def inputs_of(view: View, model: interp.Transformer, *, swept: bool = False) -> Inputs:
    """The view's prompt, or the prompts that its sweeps run over."""
    prompts = examples(view.model) if swept and view.prompts else [prompt_of(view)]
    return Inputs(model, tuple(prompts))


def metric_of(view: View, inputs: Inputs) -> str | Metric:
    """The view's metric for these prompts.

    Raises:
        InvalidInput: a prompt lacks a target or a distractor, or it is not a single token.
    """
    return inputs.metric(view.metric)


def attention_of(view: View, model: interp.Transformer) -> AttentionName | None:
    """The attention that is shown of an encoder–decoder; ``None`` of a model with one stack."""
    names: dict[str, AttentionName] = {"encoder": "encoder", "cross": "cross"}
    return names.get(view.attention, "decoder") if len(model.stacks) > 1 else None
