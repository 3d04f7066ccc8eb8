"""The page of analyses: the question, equation, code and result of each.

    make analyses    # docs/reference/analyses.md, docs/reference/figures/*.svg

Questions, equations and limits are those of the docstrings in ``analyses/``; the code of each
section is run unchanged, and its result draws the figure.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import analyses
import interp
from analyses.results import Result
from apps.method_text import method_text, paragraphs, question
from interp.metrics import logit_diff_of_prompts
from tools.figure_svg import figure_svg

FIGURES = "figures"
"""The folder of figures, next to the page."""
WIDTH = 100
LINES = 12
"""Number of lines of a summary on the page."""
HEAD = """# Analyses

Each analysis is a function of a model and prompts: texts, token ids padded with `interp.PAD`,
images or a batch of `model.batch`. Its result is a frozen dataclass of tensors, with `to_frame()`
(a tidy table), `figure()`, `summary()` (a few lines of text) and `payload()` (plain data). The code
of every section begins with

```python
import analyses
import interp
from interp.metrics import logit_diff_of_prompts
```

A command does the same and writes tables, a report and `run.json` into a folder;
`interp COMMAND --help` lists its options.

This page is written by `make analyses`.
"""
NAMES = {
    "analyses": analyses,
    "interp": interp,
    "logit_diff_of_prompts": logit_diff_of_prompts,
}
"""The names that the code of a section can use."""


@dataclass(frozen=True)
class Example:
    """The code of a section, and the equivalent command.

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
        """The code, which loads, calls the analysis, and prints the summary."""
        return "\n".join([self.first, f"result = {self.call}", "print(result.summary())"])

    def run(self) -> Result:
        """The result of the code."""
        names: dict[str, Any] = {**NAMES, "print": lambda _: None}
        exec(self.code, names)
        return names["result"]


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
    "head_effects": Example(
        on("python-2l", "repeated"),
        f"analyses.head_effects(\n    model,\n    {TEXTS},\n"
        "    target=[p.target for p in prompts],\n"
        "    distractor=[p.distractor for p in prompts],\n)",
        "interp head-effects",
    ),
    "logit_lens": Example(
        on("python-4l", "docstrings"), f"analyses.logit_lens(model, {TEXTS})", "interp lens"
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
"""The section of each analysis, in the order of the page."""


def section(name: str, example: Example, folder: Path) -> str:
    """The section of an analysis; its figure is written into ``folder``."""
    result = example.run()
    text = method_text(result)
    (folder / f"{name}.svg").write_text(
        figure_svg(getattr(result, example.figure)()), encoding="utf-8"
    )
    return "\n\n".join(
        [
            *described(name, text),
            fenced(example.code, "python"),
            *([f"As a command: `{example.command}`"] if example.command else []),
            fenced(printed(result), "text"),
            f"![{name}]({FIGURES}/{name}.svg)",
        ]
    )


def printed(result: Result) -> str:
    """The first lines of a summary."""
    lines = result.summary().split("\n")
    return "\n".join([*lines[:LINES], *(["…"] if len(lines) > LINES else [])])


def described(name: str, text: str) -> list[str]:
    """The heading, the question, and the rest of the docstring."""
    first, *rest = paragraphs(text)
    return [
        f"## {name}",
        wrapped(f"**{question(text)}** {first.text}"),
        *(
            fenced(paragraph.text, "text") if paragraph.is_equation else wrapped(paragraph.text)
            for paragraph in rest
        ),
    ]


def wrapped(text: str) -> str:
    """A paragraph, wrapped into lines."""
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def fenced(text: str, language: str) -> str:
    """A block of code."""
    return f"```{language}\n{text}\n```"


def page(folder: Path) -> str:
    """The whole page; its figures are written into ``folder``."""
    folder.mkdir(exist_ok=True)
    parts = [section(name, example, folder) for name, example in EXAMPLES.items()]
    return "\n\n".join([HEAD.strip(), *parts]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.analyses_page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--docs", type=Path, required=True, help="the page to write")
    docs = parser.parse_args(arguments).docs
    docs.write_text(page(docs.parent / FIGURES), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
