"""The commands of the analyses: where each differs from its function, and those of plug-ins.

Options come from the signature and the docstring of the function (:mod:`apps.commands.derive`).
Importing this package imports neither torch nor an analysis.
"""

import warnings
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from apps.commands.command import CommandSpec, Label
from apps.commands.derive import (
    DICTIONARIES,
    HIDDEN,
    METRIC_OF_PAIRS,
    METRICS,
    MODEL_WITH_DICTIONARIES,
    OPTIONS,
    Input,
    Option,
)
from apps.commands.readers import (
    attention_of,
    classes_of,
    cost_of_attribution,
    into_of,
    lens_of,
    metric_of,
    position_of,
    prompts_of,
    stream_of_many,
)

GROUP = "interp.analyses"
"""The entry points of other distributions' analyses; also in :mod:`analyses`."""
ATTRIBUTIONS = ("conductance", "eap", "eap-ig", "exact")
REPLACEMENTS = Option(
    choices=("zero", "mean", "resample"), help="What replaces an ablated activation."
)
PATCHES = Option(choices=("resample", "mean", "zero"))
AT_LEAST_ONE = Option(min=1)


def _own(  # noqa: PLR0913 - what a command may say of itself
    name: str,
    function: str,
    help: str,
    label: Label,
    *,
    fields: tuple[str, ...] | None = None,
    folder: str = "{model}-{command}",
    keeps_partial_results: bool = False,
    also_writes: tuple[str, ...] = (),
    passes_over_texts: bool = False,
    **differs: Option | Input,
) -> CommandSpec:
    entry = EntryPoint(name, function, GROUP)
    kinds = keeps_partial_results, also_writes, passes_over_texts
    return CommandSpec(name, entry, help, label, differs, folder, fields, *kinds)


COMMANDS = (
    _own(
        "predict",
        "analyses:predictions",
        "Report the most probable tokens and each token's surprisal, also with heads ablated.",
        "Predicting",
        pos=Option(
            kind=int,
            help="Position at which the prediction is read; negative: from the end.",
            shown="an encoder's mask token, else the last token",
        ),
        top=Option("likeliest", min=1),
        ablate=Option(help="A head or other component to ablate, e.g. L0H5", shown="none"),
        method=REPLACEMENTS,
    ),
    _own(
        "continue",
        "analyses:continuations",
        "Sample a few texts after each prompt, and report how probable each new token was.",
        "Continuing prompts",
        new_tokens=AT_LEAST_ONE,
        samples=AT_LEAST_ONE,
        temperature=Option(min=0),
        top_k=AT_LEAST_ONE,
    ),
    _own(
        "patterns",
        "analyses:attention_statistics",
        "Average each head's attention: entropy, distance, attention to BOS, previous token, ….\n\n"
        "For the attention pattern of one head on one prompt, use `interp explore`.",
        "Averaging attention",
        passes_over_texts=True,
        prompts=Input(stream_of_many, ("text",)),
        offsets=AT_LEAST_ONE,
        classes=Option(
            kind=str,
            help="Classes of tokens to measure attention to, as a JSON object of texts or token "
            'ids: \'{"digits": ["0", "1"], "end": 3}\'.',
            shown="none",
            read=classes_of,
        ),
        attention=Option(shown="cross", read=attention_of),
    ),
    _own(
        "roles",
        "analyses:head_roles",
        "Find previous-token, induction and other heads on repeated random tokens.",
        "Measuring roles",
        tokens=HIDDEN,
        half=AT_LEAST_ONE,
        rows=Option("sequences", help="Number of random sequences.", min=1),
        repeats=Option(min=2),
    ),
    _own(
        "scores",
        "analyses:explain_scores",
        "Explain why a head attends to a key: its score as a sum over pairs of writers.",
        "Explaining scores",
        model=MODEL_WITH_DICTIONARIES,
        layer=Option(default=0),
        head=Option(default=0),
        query=Option(
            kind=str,
            default="-1",
            help="Position of the query in each prompt (negative: from the end), or all.",
            read=position_of,
        ),
        key=Option(
            kind=str,
            default="strongest",
            help="Position of the key, or strongest, previous, first, same-token (the last "
            "earlier token that is the query's), after-same-token (the one after that).",
            read=position_of,
        ),
        other_key=Option(
            kind=str,
            help="A key whose score is subtracted, likewise.",
            shown="none",
            read=position_of,
        ),
        cells=HIDDEN,
        against=Option(choices=("others", "mean", "nothing")),
        by=Option(choices=("component", "layer", "kind", "feature")),
        neurons=Option(min=0),
        most=AT_LEAST_ONE,
        check=Option(min=0),
        pairs=AT_LEAST_ONE,
        attention=Option(shown="cross", read=attention_of),
    ),
    _own(
        "census",
        "analyses:head_census",
        "Find the heads of each published kind: induction, successor, retrieval, name mover, ….",
        "Taking a census",
        families=Option("family", help="A family of kinds, e.g. succession.", shown="all"),
        pairs=HIDDEN,
        rows=Option("sequences", help="Number of random sequences.", min=1),
    ),
    _own(
        "qk-covariance",
        "analyses:qk_covariance",
        "Find the directions in which a head's queries and keys tell cells with a role apart.",
        "Comparing cells",
        prompts=HIDDEN,
        layer=Option(default=0),
        head=Option(default=0),
        cells=Option(kind=str, help="A role on repeated tokens, e.g. induction."),
        others=HIDDEN,
        draws=AT_LEAST_ONE,
        rows=Option("sequences", help="Number of random sequences.", min=1),
    ),
    _own(
        "ablate",
        "apps.commands.ablate:ablate",
        "Ablate each head (or layer, MLP, …) in turn and report which ones matter.",
        "Ablating {units}",
        folder="{model}-{metric}-{method}",
        keeps_partial_results=True,
    ),
    _own(
        "patch",
        "analyses:patch_activations",
        "Copy activations between clean and corrupted prompts and measure what that restores.",
        "Patching {at}",
        at=Option(
            choices=(
                *("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out"),
                *("z", "q", "k", "v", "pattern"),
            ),
            help="The activation to patch.",
        ),
        over=Option(
            choices=("layer-pos", "layer-head", "layer", "pos", "layer-head-pos"),
            default="layer-pos",
            help="Axes that are patched index by index; other axes are patched as a whole.",
            read=lambda _, axes: axes.split("-"),
        ),
        direction=Option(choices=("denoise", "noise")),
        stack=HIDDEN,
    ),
    _own(
        "paths",
        "analyses:patch_paths",
        "Patch every edge of the computation graph in turn and report which ones matter.",
        "Patching edges",
        edges=HIDDEN,
        into=Option(
            help="Patch the edges into this head or MLP, e.g. L1H0, or into the logits; or all.",
            shown="all; logits if the model has more than 5000 edges",
            read=into_of,
        ),
        method=PATCHES,
        mode=Option(
            choices=("edge", "frozen-heads"),
            help="edge: single edges; frozen-heads: paths from head to head, also through MLPs, "
            "with all other heads frozen.",
            read=lambda _, mode: mode.replace("-", " "),
        ),
        metric=Option(
            choices=METRICS,
            default="logit-diff",
            help="Metric; kl is the divergence from the prediction on the clean prompts.",
            read=metric_of,
        ),
    ),
    _own(
        "attribute",
        "analyses:attribute_edges",
        "Estimate the effects of all edges at once from gradients, and check some by patching.",
        cost_of_attribution,
        method=Option(choices=ATTRIBUTIONS),
        steps=AT_LEAST_ONE,
        tolerance=Option(shown="exactly --steps; 0.01 for conductance without --steps"),
        check=AT_LEAST_ONE,
    ),
    _own(
        "nodes",
        "analyses:attribute_nodes",
        "Estimate the effects of all heads' q, k, v and z and of all MLPs, and check some.",
        "Checking against exact patching",
        method=Option(
            choices=("atp", "atp-star", "exact"),
            default="atp-star",
            help="How effects are estimated.",
            read=lambda _, method: method.replace("-star", "*"),
        ),
        check=AT_LEAST_ONE,
    ),
    _own(
        "prune",
        "apps.commands.prune:prune",
        "Rank all edges, and run circuits that consist of the highest-ranked ones alone.",
        "Running circuits",
        fields=("text", "corrupt"),
        scores=Option(choices=ATTRIBUTIONS),
        rank=Option(),
        method=PATCHES,
        metric=replace(METRIC_OF_PAIRS, read=None),
    ),
    _own(
        "explain",
        "analyses:explain",
        "Find the smallest circuit that gives an answer, check it and describe its components.",
        "Running circuits",
        most=AT_LEAST_ONE,
        steps=HIDDEN,
        attribution=Input(lambda inputs: inputs.earlier.get("attribute")),
        roles=Input(lambda inputs: inputs.earlier.get("roles")),
    ),
    _own(
        "dla",
        "analyses:direct_logit_attribution",
        "Attribute the logit of each target, minus that of its distractor, to what wrote it.",
        "Attributing logits",
        model=MODEL_WITH_DICTIONARIES,
        pos=HIDDEN,
        by=Option(choices=("component", "head", "source", "feature"), default="head"),
    ),
    _own(
        "check-dictionaries",
        "analyses:check_dictionaries",
        "Measure what dictionaries explain of a model, beside what their publishers claim.",
        "Checking dictionaries",
        model=MODEL_WITH_DICTIONARIES,
        transcoder=HIDDEN,
    ),
    _own(
        "trace",
        "analyses:trace_paths",
        "Trace the logit of each target, minus that of its distractor, back to the tokens.",
        "Removing nodes and edges",
        pos=HIDDEN,
        most=AT_LEAST_ONE,
        check=Option(
            kind=int,
            min=0,
            help="Number of nodes and edges of each prompt to remove, which measures what the "
            "answer loses: half of them the largest, the others drawn from the rest.",
        ),
    ),
    _own(
        "head-effects",
        "analyses:head_effects",
        "Say what each head does for the answer: where it attends, what it writes, its ablation.",
        "Ablating heads",
        pos=HIDDEN,
        heads=Option("head", help="A head to ablate, e.g. L0H5.", shown="all"),
        method=REPLACEMENTS,
    ),
    _own(
        "lens",
        "analyses:logit_lens",
        "Read a prediction from the residual stream at each layer (logit lens or tuned lens).",
        "Reading each layer",
        norm=Option(choices=("recomputed", "final")),
        lens=Option(
            kind=Path,
            help="File of a tuned lens of this model; see `interp train-lens`.",
            read=lens_of,
        ),
    ),
    _own(
        "train-lens",
        "analyses:train_lens",
        "Train a tuned lens and save it as lens.safetensors, for `interp lens --lens`.",
        "Training a lens",
        held_out=Option(
            kind=str,
            help="Prompts that the lens is evaluated on: a file or a bundled set.",
            shown="a fifth of the prompts, at most 32, drawn with the seed",
            read=prompts_of,
        ),
        steps=AT_LEAST_ONE,
        rows=Option("batch", min=1, shown="4, or 1 if prompts have more tokens than a step uses"),
        tokens=Option(min=1, shown="those whose logits take 8 MiB"),
    ),
    _own(
        "circuits",
        "apps.commands.circuits:circuits",
        "Read circuits from the weights: which heads compose, or one head's OV or QK circuit.",
        "Reading weights",
        fields=(),
    ),
    _own(
        "positions",
        "analyses:positions",
        "Describe the position scheme: shifts as linear maps, kernels and biases by offset.",
        "Reading positions",
        longest=Option(min=2),
    ),
    _own(
        "frequencies",
        "analyses:frequencies",
        "Decompose embeddings, neurons and logits over the residues of the first prompt.",
        "Decomposing into frequencies",
        residues=HIDDEN,
    ),
    _own(
        "probe",
        "analyses:probe",
        "Fit linear probes that read each prompt's target from the activations of every layer.",
        "Fitting probes",
        kind=Option(choices=("ridge", "logistic")),
        folds=Option(kind=int, min=2),
        stack=HIDDEN,
    ),
    _own(
        "erase",
        "analyses:erase",
        "Erase each prompt's target from the activations of every layer, and measure the effect.",
        "Erasing labels",
        metric=OPTIONS["metric"],
        method=Option(choices=("leace", "probe")),
        stack=HIDDEN,
    ),
    _own(
        "covariance",
        "analyses:permutation_covariance",
        "Check a model's exact symmetries: permuted tokens, heads, neurons; other bases of heads.",
        "Checking symmetries",
    ),
    _own(
        "order",
        "analyses:order_sensitivity",
        "Permute tokens, with and without mask and positions, to find which heads use their order.",
        "Permuting tokens",
        permutations=Option("permutation"),
        scope=Option(choices=("whole", "own")),
        mask=HIDDEN,
        positions=HIDDEN,
        draws=AT_LEAST_ONE,
    ),
    _own(
        "top-texts",
        "analyses:top_texts",
        "Find where in a corpus a head attends most or a neuron is most active.",
        "Reading texts",
        passes_over_texts=True,
        of=Option(
            default="L0H0",
            help="A head (L1H0), neuron (L0N12), sub-layer (L0MLP) or point "
            "(blocks.1.hook_resid_post).",
        ),
        by=Option(choices=("attention", "write"), shown="attention"),
        end=Option(choices=("highest", "lowest")),
    ),
    _own(
        "heads",
        "analyses:scan_heads",
        "Measure every head on a corpus: where it attends, on which tokens, in which texts.",
        "Scanning heads",
        also_writes=("site", "headvis"),
        offsets=AT_LEAST_ONE,
        max_length=Option(
            help="Maximum number of tokens of a text; longer ones are cut into several.", min=2
        ),
        sample=Option(help="Number of texts that are drawn, for sequences by decile.", min=10),
        shuffled=Option(
            help="One text in so many is also measured with its tokens in random order.", min=1
        ),
        effects=Option(help="Also measure the mean ablation of each head on tokens of the sample."),
        targets=Option(help="Number of tokens of each class for --effects.", min=1),
    ),
    _own(
        "compare",
        "apps.commands.compare:compare",
        "Run one analysis on two models and report the differences, --model minus --other.",
        "Comparing models",
        other=Option(),
        analysis=Option(),
        metric=replace(OPTIONS["metric"], read=None),
    ),
    _own(
        "neurons",
        "analyses:neurons",
        "Describe neurons: top tokens, direct effects on logits, weights, effects of ablation.",
        "Reading texts",
        layer=Option(default=0),
        neurons=Option("neuron"),
        tokens=HIDDEN,
        ablate=Option(min=0),
        method=REPLACEMENTS,
        metric=HIDDEN,
    ),
    _own(
        "steer",
        "apps.commands.steer:steer",
        "Continue prompts with a vector added to the stream: clean − corrupted, or a feature.",
        "Generating texts",
        fields=("text", "corrupt"),
        layer=Option(shown="-1"),
        dictionaries=Option("dictionary", help=DICTIONARIES, shown="none"),
        strengths=Option("strength"),
        new_tokens=AT_LEAST_ONE,
        temperature=Option(min=0),
    ),
)
"""The commands of this project's analyses, in the order of ``interp --help``."""
OTHERS = (
    *(
        "models",
        "report",
        "repeat",
        "harvest",
        "train-dictionary",
        "verify",
        "doctor",
        "convert",
        "explore",
    ),
    "prompts",
)
"""The commands that are no analyses."""


def plug_ins() -> dict[str, CommandSpec]:
    """The commands of other distributions' analyses, which are not imported.

    A name that is taken is refused with a warning.
    """
    specs: dict[str, CommandSpec] = {}
    functions = (command.entry.attr.replace("_", "-") for command in COMMANDS)
    taken = {*OTHERS, *(command.name for command in COMMANDS), *functions}
    for entry in entry_points(group=GROUP):
        name = entry.name.replace("_", "-")
        if name in taken or name in specs:
            origin = entry.value if entry.dist is None else entry.dist.name
            warnings.warn(
                f"The analysis {entry.name} of {origin} has no command: the name {name} is taken.",
                stacklevel=2,
            )
            continue
        specs[name] = CommandSpec(name, entry, None, f"Running {name}")
    return specs


def commands() -> dict[str, CommandSpec]:
    """All commands of analyses, by their names: those of this project, then those of plug-ins."""
    return {command.name: command for command in COMMANDS} | plug_ins()


def find_command(name: str) -> CommandSpec | None:
    """The command of the analysis of this name; ``None`` if there is none."""
    by_name = {command.name: command for command in COMMANDS}
    return by_name.get(name) or (None if name in OTHERS else plug_ins().get(name))


def summary(spec: CommandSpec) -> str:
    """What a command does, in one line, from what is known without importing its analysis."""
    if spec.help is not None:
        return spec.help
    if spec.entry.dist is None:
        return spec.entry.value
    about = spec.entry.dist.metadata.json
    return f"From {about['name']}: {about.get('summary') or spec.entry.value}"
