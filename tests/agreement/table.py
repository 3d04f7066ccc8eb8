"""The largest error of each family, as a table in text and in Markdown."""

from collections.abc import Mapping

import torch
import transformers

Errors = Mapping[str, Mapping[str, float]]

PREAMBLE = """# Models

The families of models that `interp.load` reads, each with its largest difference from Hugging Face
`transformers` over several small random models (float64, eager attention). A difference is relative
to the largest number compared, or to 1 if that is larger; the tests accept at most 1e-9.
*Activations* are those that both libraries have: residual stream, queries, keys, values, scores,
patterns, z, and the outputs of attention and MLP. nanoGPT checkpoints are compared with a module of
the same shape in `tests/loading`. CLIP and SigLIP with both towers, whose logits compare images
with texts, are read by `interp.load_towers`.

Falcon with ALiBi (the RW models) is compared with the fused attention of `transformers`, `"sdpa"`:
its explicit attention, `"eager"`, adds the biases of ALiBi twice. Phi-3.5-MoE is read up to the
length it was trained with before its context was extended: `transformers` ignores the factors of
longer texts (`long_factor`), which the model's own code applies.

`make models` writes this page, from the tests in `tests/agreement/`.
"""


def rows(worst: Errors) -> list[tuple[str, str, str, str, str]]:
    """A row for each family: its name, and its errors of logits, activations, padding, gradient."""
    table_rows = []
    for family, errors in sorted(worst.items()):
        rest = [e for what, e in errors.items() if what not in ("logits", "padding", "gradient")]
        cells = [errors.get("logits"), max(rest, default=None)]
        cells += [errors.get("padding"), errors.get("gradient")]
        table_rows.append((family, *(("–" if e is None else f"{e:.1e}") for e in cells)))
    return table_rows


def to_text(worst: Errors) -> str:
    """The table as text, for a terminal."""
    head = ("family", "logits", "activations", "padding", "gradient")
    lines = [head, *rows(worst)]
    width = max(len(line[0]) for line in lines)
    return "\n".join(f"{f:<{width}}" + "".join(f"{c:>13}" for c in cells) for f, *cells in lines)


def to_markdown(worst: Errors) -> str:
    """The page docs/reference/models.md."""
    head = "| family | logits | activations | padding | gradient |\n|---|---|---|---|---|"
    lines = ["| " + " | ".join(row) + " |" for row in rows(worst)]
    versions = f"Measured with transformers {transformers.__version__}, torch {torch.__version__}."
    return "\n".join([PREAMBLE, head, *lines, "", versions, ""])
