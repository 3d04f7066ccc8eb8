"""What the commands make of values that are typed: files of prompts, metrics, names, JSON."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analyses import TunedLens
    from apps.commands.inputs import Inputs
    from interp.harvests import Harvest
    from interp.metrics import Metric
    from interp.transformer import Transformer

MANY_EDGES = 5000
"""The most edges that ``interp paths`` patches if it is not asked for them."""
MANY_PROMPTS = 1000
"""The most prompts of which the numbers of each are kept, where a stream of them can be read."""
EVERY = "all"


def metric_of(inputs: "Inputs", name: str | None) -> "str | Metric":
    """The metric of a name, of the tokens of the prompts where it has some."""
    return inputs.metric(name or "loss")


def prompts_of(inputs: "Inputs", source: str | None) -> Any:  # noqa: ANN401 - a batch
    """The batch of a prompt file or a bundled set."""
    return None if source is None else inputs.of_file(source).batch


def stream_of_many(inputs: "Inputs") -> Any:  # noqa: ANN401 - a batch, or an iterator
    """The prompts; of more than ``MANY_PROMPTS`` an iterator, so that averages alone are kept."""
    if len(inputs.prompts) <= MANY_PROMPTS:
        return inputs.batch
    return iter(inputs.texts) if inputs.has_one_stack else zip(*inputs.batch, strict=True)


def corpus_of(inputs: "Inputs", texts: str | None) -> "Path | Harvest":
    """A corpus, which may be larger than memory: a file, a harvest, or the card's prompts.

    Raises:
        InvalidInput: no file is given, and the model has no prompts of its own; or a harvest can't
            be read.
    """
    from apps.defaults import default_prompts  # noqa: PLC0415
    from interp.harvests import INDEX, Harvest  # noqa: PLC0415
    from interp.prompts import path_of_prompts  # noqa: PLC0415

    name = inputs.model.config.name or "unnamed"
    path = path_of_prompts(texts or default_prompts(name, option="--texts"))
    return Harvest(path) if (path / INDEX).is_file() else path


def lens_of(inputs: "Inputs", file: Path | None) -> "TunedLens | None":
    """The tuned lens of a file."""
    from analyses import TunedLens  # noqa: PLC0415

    return None if file is None else TunedLens.load(file, inputs.model)


def attention_of(inputs: "Inputs", attention: str | None) -> str | None:
    """The attention that is measured: of an encoder–decoder, cross-attention by default."""
    return attention or (None if inputs.has_one_stack else "cross")


def classes_of(_: "Inputs", classes: str | None) -> Any:  # noqa: ANN401 - checked by the analysis
    """Classes of tokens by name, from JSON."""
    from interp.errors import InvalidInput, first_line, shorten  # noqa: PLC0415
    from interp.io import parse_json  # noqa: PLC0415

    if classes is None:
        return None
    try:
        parsed = parse_json(classes)
        if isinstance(parsed, dict):
            return parsed
        reason = "a list or a value"
    except ValueError as error:
        reason = first_line(error)
    raise InvalidInput(
        f"--classes {shorten(classes)} should be a JSON object from the name of each class to its "
        f'tokens, such as {{"digits": ["0", "1"]}}; got {reason}.'
    )


def position_of(_: "Inputs", position: str | None) -> int | str | None:
    """A position, or the name of a rule with spaces in place of hyphens."""
    if position is None:
        return None
    digits = position.removeprefix("-")
    return int(position) if digits.isdecimal() else position.replace("-", " ")


def into_of(inputs: "Inputs", component: str | None) -> str | None:
    """The component whose edges are patched; ``None`` for every edge.

    Of a model with very many edges, only those into the logits are patched unless others are asked
    for, with a warning.
    """
    import interp  # noqa: PLC0415 - imports torch

    if component is not None:
        return None if component == EVERY else component
    n = len(interp.computation_graph(inputs.model).edges)
    if n <= MANY_EDGES:
        return None
    warnings.warn(
        f"This model has {n} edges, and patching each takes up to a forward pass of every pair: "
        "only those into the logits are patched. --into L1H0 patches those into a head, --into "
        f"{EVERY} every edge; interp attribute estimates the effects of all at once.",
        stacklevel=2,
    )
    return "logits"


def cost_of_attribution(options: Mapping[str, Any]) -> str:
    """What ``interp attribute`` computes, with its cost."""
    from analyses.methods.attribution import most_points, steps_and_tolerance  # noqa: PLC0415

    method = str(options["method"])
    if method == "exact":
        return "Patching every edge"
    steps, tolerance = steps_and_tolerance(method, options["steps"], options["tolerance"])
    points = most_points(method, steps, tolerance)
    passes = f"{'' if tolerance is None else 'up to '}{points} forward and backward passes a pair"
    return f"Scoring edges: {passes}; then patching {options['check']} exactly"


def with_dictionaries_of(inputs: "Inputs", names: "Sequence[str] | None") -> "Transformer":
    """The model, with the features of some dictionaries if any are named.

    Raises:
        InvalidInput: a dictionary is of another model.
        ModelLoadError: there is no such dictionary, or it can't be read.
    """
    from interp import dictionaries, with_dictionaries  # noqa: PLC0415

    if not names:
        return inputs.model
    return with_dictionaries(inputs.model, [dictionaries.load_any(name) for name in names])
