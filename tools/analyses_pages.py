"""The pages of analyses: the question, call, method, figure and result of each.

    make analyses    # docs/reference/analyses/*.md, docs/reference/analyses/figures/*.svg

Questions, equations, limits and options are those of the docstrings in ``analyses/``; the code of
each page is run unchanged, and its result draws the figure. An index lists the analyses by what one
wants to know.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import pandas as pd
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

import analyses
import interp
from analyses.results import Result
from apps.method_text import module_of, paragraphs, question
from interp.kernels import DispatchMode
from tools.figure_svg import figure_svg
from tools.site.roles import without_roles

FIGURES = "figures"
"""The folder of figures, next to the pages."""
WIDTH = 100
LINES, ROWS = 12, 6
"""Number of lines of a summary, and of rows of a table, on a page."""
GIGA = 1e9
SETTINGS = "show_root_heading: false, show_root_toc_entry: false"
"""How mkdocstrings writes the parameters of an analysis."""
ROOT = Path(__file__).parents[1]
QUESTIONS = {
    "What does the model predict?": ("predictions", "continuations", "logit_lens", "train_lens"),
    "What does a head attend to?": (
        "attention_pattern",
        "attention_patterns",
        "attention_statistics",
        "head_roles",
        "explain_scores",
        "head_cell",
        "scan_heads",
        "head_census",
        "qk_covariance",
        "top_texts",
    ),
    "Which part writes the answer?": (
        "direct_logit_attribution",
        "head_effects",
        "neurons",
    ),
    "Which part does the answer need?": (
        "ablate_heads",
        "ablate",
        "patch_activations",
        "attribute_nodes",
    ),
    "Which edges carry it?": (
        "trace_paths",
        "attribution_graph",
        "scale_units",
        "patch_paths",
        "attribute_edges",
        "head_loadings",
        "prune",
        "explain",
    ),
    "What do dictionaries explain?": ("check_dictionaries",),
    "What do weights alone say?": ("ov", "qk", "composition", "positions", "frequencies"),
    "Does order matter?": ("order_sensitivity", "permutation_covariance"),
    "What can be read from activations, and what does it change?": ("probe", "erase", "steer"),
    "What differs between models, and when did it form?": ("compare", "training_history"),
    "What of more prompts than memory holds?": ("run_in_parts",),
}
"""The analyses, in order, by what one wants to know."""
HEAD = """# Analyses

Each analysis answers one question: a function of a model and prompts, which are texts, token ids
padded with `interp.PAD`, images or a batch of `model.batch`; of several prompts also the `Path` of
a file, a dataset, or an iterator. Its result is a frozen dataclass of tensors, with `to_frame()` (a
tidy table), `figure()`, `summary()` (a few lines of text) and `payload()` (plain data). A
[command](../commands.md) does the same and writes tables, a report and `run.json` into a folder.

The pages are written by `make analyses`, on bundled models; the same calls take
[any model that can be loaded](../../how-to/load-a-model.md).
"""


class Products(DispatchMode):
    """Counts the operations of matrix products, those of fused attention included."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - as PyTorch calls it
        result = func(*args, **(kwargs or {}))
        packet = func.overloadpacket
        match str(packet).removeprefix("aten."):
            case "_scaled_dot_product_flash_attention_for_cpu":
                self.operations += sdpa_flop_count(*(tensor.shape for tensor in args[:3]))
            case "_scaled_dot_product_flash_attention_for_cpu_backward":
                shapes = (tensor.shape for tensor in args[:4])
                self.operations += sdpa_backward_flop_count(*shapes)
            case _ if packet in flop_registry:
                self.operations += flop_registry[packet](*args, **(kwargs or {}), out_val=result)
            case _:
                pass
        return result


@dataclass(frozen=True)
class Ran:
    """What the code of an example gave.

    Attributes:
        result: the result of the analysis.
        operations: floating-point operations in matrix products.
        forwards: the same in forward passes of the example's prompts, if it has any.
        n_prompts: number of these prompts.
    """

    result: Result
    operations: int
    forwards: float | None
    n_prompts: int


@dataclass(frozen=True)
class Example:
    """The code of a page, and the equivalent command.

    Attributes:
        first: code that loads a model and prompts.
        call: the call of the analysis.
        command: the command that does the same, if there is one.
        figure: the method of the result that draws the figure.
    """

    first: str
    call: str
    command: str | None = None
    figure: str = "figure"

    @property
    def code(self) -> str:
        """The code, which imports, loads, calls the analysis, and prints the summary."""
        of_metric = "from interp.prompts import logit_diff_of_prompts"
        imports = ["import analyses", "import interp"]
        body = [self.first, f"result = {self.call}", "print(result.summary())"]
        if "logit_diff_of_prompts" in "".join(body):
            imports.append(of_metric)
        return "\n".join([*imports, "", *body])

    def run(self) -> Ran:
        """Run the code, and count what it multiplies."""
        names: dict[str, Any] = {"print": lambda _: None}
        with Products() as products:
            exec(self.code, names)
        prompts = names.get("prompts", [])[: 1 if "prompts[0]" in self.call else None]
        forwards = None
        if prompts:
            with Products() as plain:
                interp.run(names["model"], [prompt.text for prompt in prompts])
            forwards = products.operations / plain.operations
        return Ran(names["result"], products.operations, forwards, len(prompts))


def on(model: str, prompts: str) -> str:
    """A line of code that loads a bundled model and a prompt set."""
    return f'model, prompts = interp.load("{model}"), interp.read_prompts("{prompts}")'


def of_pairs(model: str) -> str:
    """Lines of code that load a bundled model, its minimal pairs and their metric."""
    return (
        f"{on(model, f'{model}-pairs')}\n"
        "metric = logit_diff_of_prompts(model.to_single_token, prompts)\n"
        "pairs = [p.text for p in prompts], [p.corrupt for p in prompts]"
    )


TEXTS, CORRUPT = "[p.text for p in prompts]", "[p.corrupt for p in prompts]"
EXAMPLES = {
    "predictions": Example(
        on("python-4l", "python-keywords"),
        "analyses.predictions(\n    model,\n"
        f"    {TEXTS},\n    targets=[p.target for p in prompts],\n"
        '    ablate=["L0H5", "L1H0"],\n)',
        "interp predict --model python-4l --prompts python-keywords --ablate L0H5 --ablate L1H0",
    ),
    "continuations": Example(
        f"{on('python-4l', 'docstrings')}[:4]",
        f"analyses.continuations(model, {TEXTS}, new_tokens=10)",
        "interp continue --model python-4l --prompts docstrings --new-tokens 10",
    ),
    "attention_pattern": Example(
        on("induction-by-hand", "letters"),
        "analyses.attention_pattern(model, prompts[0].text, layer=1, head=0)",
    ),
    "attention_patterns": Example(
        on("induction-by-hand", "letters"),
        "analyses.attention_patterns(model, prompts[0].text)",
    ),
    "attention_statistics": Example(
        on("python-2l", "repeated"),
        f"analyses.attention_statistics(model, {TEXTS})",
        "interp patterns",
    ),
    "head_roles": Example(
        'model = interp.load("python-2l")', "analyses.head_roles(model)", "interp roles"
    ),
    "head_census": Example(
        'model = interp.load("python-2l")', "analyses.head_census(model)", "interp census"
    ),
    "qk_covariance": Example(
        'model = interp.load("python-2l")',
        'analyses.qk_covariance(model, 0, 5, cells="previous-token")',
        "interp qk-covariance --layer 0 --head 5 --cells previous-token",
    ),
    "composition": Example(
        'model = interp.load("python-4l")',
        "analyses.composition(model)",
        "interp circuits --model python-4l",
    ),
    "ov": Example(
        'model = interp.load("python-2l")',
        'analyses.ov(model, 1, 0, ["self", "class", "return"])',
        "interp circuits --ov L1H0 --token self --token class --token return",
    ),
    "qk": Example(
        'model = interp.load("python-2l")',
        "analyses.qk(model, 0, 5)",
        "interp circuits --qk L0H5",
        "offset_figure",
    ),
    "ablate_heads": Example(
        on("python-2l", "repeated"), f"analyses.ablate_heads(model, {TEXTS})", "interp ablate"
    ),
    "ablate": Example(
        on("python-4l", "docstrings"),
        f'analyses.ablate(model, {TEXTS}, units="layers", metric="kl")',
        "interp ablate --model python-4l --units layers --metric kl",
    ),
    "patch_activations": Example(
        of_pairs("python-2l"),
        "analyses.patch_activations(model, *pairs, metric=metric)",
        "interp patch",
    ),
    "patch_paths": Example(
        on("rasp-reverse", "rasp-reverse-pairs"),
        f"analyses.patch_paths(model, {TEXTS}, {CORRUPT})",
        "interp paths --model rasp-reverse --metric kl",
    ),
    "attribute_edges": Example(
        of_pairs("python-2l"),
        "analyses.attribute_edges(model, *pairs, metric=metric)",
        "interp attribute",
    ),
    "attribute_nodes": Example(
        of_pairs("python-2l"),
        "analyses.attribute_nodes(model, *pairs, metric=metric)",
        "interp nodes",
    ),
    "prune": Example(
        of_pairs("python-2l"),
        "analyses.prune(\n    analyses.attribute_edges(model, *pairs, metric=metric).scores,\n"
        "    model,\n    *pairs,\n    metric=metric,\n)",
        "interp prune",
        "circuit_figure",
    ),
    "explain": Example(
        on("rasp-reverse", "rasp-reverse-pairs"),
        "analyses.explain(\n    model,\n"
        f"    {TEXTS},\n    {CORRUPT},\n"
        "    metric=logit_diff_of_prompts(model.to_single_token, prompts),\n)",
        "interp explain --model rasp-reverse",
    ),
    "direct_logit_attribution": Example(
        on("python-2l", "repeated"),
        "analyses.direct_logit_attribution(\n    model,\n"
        f"    {TEXTS},\n    target=[p.target for p in prompts],\n"
        '    distractor=[p.distractor for p in prompts],\n    by="head",\n)',
        "interp dla",
    ),
    "trace_paths": Example(
        on("python-2l", "python-2l-pairs"),
        "analyses.trace_paths(\n    model,\n    prompts[1].text,\n"
        "    target=prompts[1].target,\n    distractor=prompts[1].distractor,\n)",
        "interp trace",
    ),
    "attribution_graph": Example(
        on("python-4l", "python-4l-pairs"),
        "analyses.attribution_graph(model, prompts[0].text)",
    ),
    "scale_units": Example(
        on("python-4l", "python-4l-pairs"),
        "analyses.scale_units(\n    model,\n    prompts[0].text,\n"
        '    ["L3N219@27", "L3N1017@27"],\n    targets=prompts[0].target,\n)',
    ),
    "check_dictionaries": Example(
        'names = [f"python-4l/mlp-{layer}" for layer in range(4)]\n'
        "transcoders = [interp.dictionaries.load(name) for name in names]\n"
        'model = interp.with_dictionaries(interp.load("python-4l"), transcoders)\n'
        'prompts = interp.read_prompts("python-arguments")[:32]',
        f"analyses.check_dictionaries(model, {TEXTS})",
        "interp check-dictionaries --model python-4l --dictionary python-4l/mlp-0",
    ),
    "head_effects": Example(
        on("python-2l", "repeated"),
        f"analyses.head_effects(\n    model,\n    {TEXTS},\n"
        "    target=[p.target for p in prompts],\n"
        "    distractor=[p.distractor for p in prompts],\n)",
        "interp head-effects",
    ),
    "explain_scores": Example(
        on("python-2l", "repeated"),
        f"analyses.explain_scores(\n    model,\n    {TEXTS},\n    layer=1,\n    head=0,\n"
        '    query="all",\n    key="after same token",\n    check=3,\n)',
        "interp scores --layer 1 --query all --key after-same-token --check 3",
    ),
    "head_cell": Example(
        on("python-2l", "repeated"),
        "analyses.head_cell(model, prompts[0].text, layer=1, head=0)",
    ),
    "head_loadings": Example(
        on("python-2l", "repeated"),
        f"analyses.head_loadings(\n    model,\n    {TEXTS},\n"
        '    source="embed",\n    reader="L1H0.k",\n    source_pos=5,\n    pos=6,\n'
        "    other=-1,\n)",
    ),
    "logit_lens": Example(
        on("python-4l", "docstrings"), f"analyses.logit_lens(model, {TEXTS})", "interp lens"
    ),
    "scan_heads": Example(
        on("python-2l", "repeated"),
        f"analyses.scan_heads(model, {TEXTS}, shuffled=1)",
        "interp heads --shuffled 1",
    ),
    "top_texts": Example(
        on("python-2l", "repeated"),
        f'analyses.top_texts(model, {TEXTS}, of="L1H0")',
        "interp top-texts --of L1H0",
    ),
    "neurons": Example(
        on("python-4l", "docstrings"),
        f"analyses.neurons(model, {TEXTS}, layer=3, neurons=range(400, 432))",
        "interp neurons --model python-4l --layer 3 --neuron 411",
    ),
    "steer": Example(
        on("python-2l", "python-2l-pairs"),
        f"analyses.steer(\n    model,\n    {CORRUPT},\n    layer=1,\n"
        f"    contrast=({TEXTS}, {CORRUPT}),\n)",
        "interp steer",
    ),
    "train_lens": Example(
        on("python-2l", "repeated"),
        f"analyses.train_lens(model, {TEXTS}, steps=50)",
        "interp train-lens",
    ),
    "compare": Example(
        on("python-2l", "repeated"),
        f'analyses.compare("python-2l@400", model, {TEXTS})',
        "interp compare --other python-2l@400",
    ),
    "run_in_parts": Example(
        on("python-2l", "repeated")
        + "\n\n\ndef zeroed(model, texts):\n"
        + '    return analyses.ablate_heads(model, texts, method="zero")\n\n',
        f"analyses.run_in_parts(model, {TEXTS}, zeroed, size=8)",
        "interp ablate --method zero --per-prompt numbers",
    ),
    "permutation_covariance": Example(
        'model = interp.load("python-4l")',
        "analyses.permutation_covariance(model)",
        "interp covariance --model python-4l",
    ),
    "positions": Example(
        'model = interp.load("dates")',
        "analyses.positions(model)",
        "interp positions --model dates",
    ),
    "frequencies": Example(
        'model = interp.load("addition-mod-113")',
        'analyses.frequencies(model, "16 102 =")',
        "interp frequencies --model addition-mod-113",
    ),
    "probe": Example(
        on("python-4l", "python-brackets"),
        f"analyses.probe(model, {TEXTS}, [p.target for p in prompts])",
        "interp probe --model python-4l --prompts python-brackets",
    ),
    "erase": Example(
        on("python-4l", "python-brackets"),
        f"analyses.erase(model, {TEXTS}, [p.target for p in prompts])",
        "interp erase --model python-4l --prompts python-brackets --metric kl",
    ),
    "order_sensitivity": Example(
        on("induction-by-hand", "letters"),
        f"analyses.order_sensitivity(model, {TEXTS})",
        "interp order --model induction-by-hand",
    ),
    "training_history": Example(
        'name, history = "python-2l", interp.history("python-2l")',
        "analyses.training_history(name, history)",
    ),
}
"""The example of each analysis."""


def page(name: str, example: Example, folder: Path) -> str:
    """The page of an analysis; its figure is written into ``folder``."""
    ran = example.run()
    figure = getattr(ran.result, example.figure)()
    (folder / f"{name}.svg").write_text(figure_svg(figure), encoding="utf-8")
    title = without_markup(figure.layout.title.text or name)
    parts = [
        *asked(name, example),
        *method(name),
        "## Figure",
        f"![{title}]({FIGURES}/{name}.svg)",
        "## Summary",
        fenced(printed(ran.result), "text"),
        "## Table",
        table(ran.result.to_frame()),
        "## Cost",
        wrapped(cost(ran)),
        *options(name),
    ]
    return "\n\n".join(parts) + "\n"


def asked(name: str, example: Example) -> Iterator[str]:
    """The question and the call."""
    (group,) = (group for group, names in QUESTIONS.items() if name in names)
    yield f"# {name}"
    yield f"[Analyses](index.md#{anchor(group)}) › {group}"
    text = docstring_of(name)
    yield wrapped(f"**{question(text)}** {paragraphs(text)[0].text}")
    yield fenced(example.code, "python")
    if example.command:
        yield f"As a command: `{example.command}`"


def method(name: str) -> Iterator[str]:
    """The rest of the docstring: equations, limits, references; and where the code is."""
    yield "## Method"
    for paragraph in paragraphs(docstring_of(name))[1:]:
        text = paragraph.text
        yield fenced(text, "text") if paragraph.is_equation else wrapped(text)
    function = getattr(analyses, name)
    file = Path(sys.modules[function.__module__].__file__ or "").relative_to(ROOT)
    result = inspect.signature(function).return_annotation.__name__
    yield wrapped(
        f"The code is in `{file.as_posix()}`. The result is a "
        f"[{result}](../api/analyses.md#analyses.{result})."
    )


def printed(result: Result) -> str:
    """The first lines of a summary."""
    lines = result.summary().split("\n")
    return "\n".join([*lines[:LINES], *(["…"] if len(lines) > LINES else [])])


def table(frame: pd.DataFrame) -> str:
    """The first rows of a table."""
    count = f"`result.to_frame()` has {len(frame):,} rows"
    rest = ", of which these are the first:" if len(frame) > ROWS else ":"
    columns = [[cell(x, name) for x in frame[name].head(ROWS)] for name in map(str, frame)]
    rows = [*zip(*columns, strict=True)]
    return f"{count.replace(',', ' ')}{rest}\n\n{markdown_table([*frame.columns], rows)}"


def cell(value: object, column: str) -> str:
    """A value of a table, as Markdown; p-values magnify rounding, and have a digit less."""
    if value is None or value != value:  # noqa: PLR0124 - not a number
        return ""
    digits = 2 if column in {"p", "q"} else 3
    text = f"{value:.{digits}g}" if isinstance(value, float) else str(value)
    return re.sub(r"([\\`*_|<\[\]])", r"\\\1", text)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cost(ran: Ran) -> str:
    """What the example multiplies: the same on every machine."""
    if not ran.operations:
        return "This call multiplies no matrices."
    count = f"The matrix products of this call are {ran.operations / GIGA:.2f} GFLOP"
    if ran.forwards is None:
        return f"{count}."
    prompts = "its prompt" if ran.n_prompts == 1 else f"its {ran.n_prompts} prompts"
    return f"{count}, as many as those of {ran.forwards:.1f} forward passes of {prompts}."


def options(name: str) -> Iterator[str]:
    """The place where mkdocstrings writes the parameters."""
    function = getattr(analyses, name)
    yield "## Options"
    yield f"::: {function.__module__}.{name}\n    options: {{ {SETTINGS} }}"


def index(names: Sequence[str]) -> str:
    """The page that lists the analyses, each with its figure and one line."""
    parts = [HEAD.strip()]
    for group, members in QUESTIONS.items():
        rows = [
            [
                f"[![Figure of {name}]({FIGURES}/{name}.svg)]({name}.md)",
                f"[{name}]({name}.md)<br>{one_line(name)}",
            ]
            for name in members
            if name in names
        ]
        if rows:
            parts += [f"## {group}", markdown_table(["figure", "analysis"], rows)]
    return "\n\n".join(parts) + "\n"


def one_line(name: str) -> str:
    """What an analysis does, in the first line of its docstring."""
    return without_markup((inspect.getdoc(getattr(analyses, name)) or "").split("\n")[0])


def docstring_of(name: str) -> str:
    """The docstring of the module of an analysis."""
    return (sys.modules[module_of(getattr(analyses, name))].__doc__ or "").strip()


def anchor(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w]+", "-", heading.lower()).strip("-")


def without_markup(text: str) -> str:
    """A docstring's text as Markdown: no roles, single backticks."""
    return without_roles(text).replace("``", "`")


def wrapped(text: str) -> str:
    """A paragraph, wrapped into lines."""
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def fenced(text: str, language: str) -> str:
    """A block of code."""
    return f"```{language}\n{text}\n```"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.analyses_pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--docs", type=Path, required=True, help="the folder of the pages")
    docs: Path = parser.parse_args(arguments).docs
    (docs / FIGURES).mkdir(parents=True, exist_ok=True)
    pages = {name: page(name, example, docs / FIGURES) for name, example in EXAMPLES.items()}
    for name, text in {**pages, "index": index([*EXAMPLES])}.items():
        (docs / f"{name}.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
