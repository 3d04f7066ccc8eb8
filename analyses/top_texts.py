"""Where in a corpus is a head, a neuron or a stream at its largest? Its top cells, and all values.

    head, attention    A_ij             for each query i and each key j that it sees
    head, write        ‖z_i W_O‖        for each token i
    neuron             post_i[n]        for each token i
    place              ‖x_i‖            for each token i

(Top activating texts: Karpathy et al. 2015, "Visualizing and Understanding Recurrent Networks";
Bills et al. 2023, "Language Models Can Explain Neurons in Language Models".) Texts are read one
after another, so that a corpus may be larger than memory.

The largest values are extremes: quantiles of all cells are reported beside them, without which they
may suggest a rule that holds for one cell in a million (Bolukbasi et al. 2021, "An Interpretability
Illusion for BERT"). The control for each is the value of the same cell when the other tokens of its
text are in random order: what remains is due to the tokens of the cell, not to their context. That
a value is large does not show that the model uses it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log10
from typing import Any

import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.corpus import (
    Settings,
    Snippet,
    measure_of,
    shuffled_values,
    snippets,
    stream_corpus,
    strips,
)
from analyses.methods.finite import check_finite_weights
from analyses.results import Curve, Curves, Drawing, Progress, Result, number, plotted, token_strips
from interp import Transformer
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.points import PlaceLike

ENDS = ("highest", "lowest")
LEVELS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999)
"""The shares of cells at which quantiles are reported."""
DRAWS = 4
"""Random orders of the other tokens."""


@dataclass(frozen=True, eq=False, repr=False)
class TopTexts(Result):
    """The cells of a corpus with the largest (or least) values, and the distribution of all values.

    Attributes:
        of: what was measured: ``L0H1``, ``L0N12``, ``resid_post 1``.
        by: ``attention`` (0 to 1), ``write``, ``activation`` or ``norm``.
        end: ``highest`` or ``lowest``.
        value: value of each cell, largest first (for ``lowest``, least first).
        control: the same with the other tokens of its text in random order, mean over four orders;
            NaN for images.
        text: index of its text in the corpus, from 0.
        pos: position of its token; for attention, of the query.
        key: for attention, position of the key; else -1.
        sources: where its text was read: ``file:line``.
        strips: values along its text (for attention, those of the query's keys); NaN after its end.
        snippets: tokens around each cell.
        levels: shares of cells.
        quantiles: the values that these shares of cells do not exceed, to a relative accuracy of
            2.2 %.
        mean: mean over all cells.
        bucket_values: values in steps of 4 %.
        bucket_shares: the share of cells in each step.
        n_cells: number of cells.
        n_texts: number of texts.
        n_tokens: number of tokens.
        bos: whether cells at BOS are counted.
        provenance: model, tokens and settings that the numbers depend on.
        notes: notes on how the numbers were computed.
    """

    of: str
    by: str
    end: str
    value: Float[Tensor, " cell"]
    control: Float[Tensor, " cell"]
    text: Int[Tensor, " cell"]
    pos: Int[Tensor, " cell"]
    key: Int[Tensor, " cell"]
    sources: tuple[str, ...]
    strips: Float[Tensor, "cell token"]
    snippets: tuple[Snippet, ...]
    levels: tuple[float, ...]
    quantiles: Float[Tensor, " level"]
    mean: float
    bucket_values: Float[Tensor, " bucket"]
    bucket_shares: Float[Tensor, " bucket"]
    n_cells: int
    n_texts: int
    n_tokens: int
    bos: bool
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """One row per cell.

        Columns:
            rank: from 1.
            text, source: index of its text, and where that was read.
            pos, token: its token; for attention, that of the query.
            key, key_token: for attention, the token of the key.
            value, control: as in the attributes.
            context: the tokens around it: «its token», or for attention «the key» and ‹the query›.
        """
        columns: dict[str, object] = {
            "rank": range(1, len(self.value) + 1),
            "text": self.text,
            "source": self.sources,
            "pos": self.pos,
            "token": [snippet.token for snippet in self.snippets],
        }
        if self._is_attention:
            columns |= {
                "key": self.key,
                "key_token": [snippet.key_token for snippet in self.snippets],
            }
        columns |= {
            "value": self.value,
            "control": self.control,
            "context": [snippet.marked for snippet in self.snippets],
        }
        return pd.DataFrame(columns)

    def to_quantile_frame(self) -> pd.DataFrame:
        """One row per share of cells (``level``), and the ``value`` that it does not exceed."""
        return pd.DataFrame({"level": self.levels, "value": self.quantiles})

    def drawing(self) -> Drawing:
        """A strip of tokens for each cell, coloured by the values along its text."""
        of_query = " of the query to each token" if self._is_attention else ""
        cells = f"the {len(self.value)} {self.end} of {self.n_cells} cells"
        return token_strips(
            [
                snippet.values(strip)
                for snippet, strip in zip(self.snippets, self.strips, strict=True)
            ],
            [snippet.labels for snippet in self.snippets],
            title=f"{self._what}{of_query}: {cells}",
            rows=[f"text {n}" for n in self.text.tolist()],
            unit=self.by,
            diverging=self.by == "activation",
            top=1.0 if self._is_attention else None,
        )

    def distribution_drawing(self) -> Drawing:
        """The share of cells that have at least each value, and the values of the top cells."""
        share = self.bucket_shares.flip(0).cumsum(0).flip(0).clamp(max=1)
        curve = Curve("all cells", self.bucket_values.tolist(), [log10(x) for x in share])
        return Curves(
            {"share of cells with at least this value": [curve]},
            title=f"{self._what}: all {self.n_cells} cells; dotted, the {self.end}",
            axis=self.by,
            units=["log10"],
            marked=self.value.tolist(),
        )

    distribution_figure = plotted(distribution_drawing)

    def summary(self) -> str:
        """The largest value beside the quantiles, and the cells with their contexts."""
        rows = zip(
            self.value.tolist(),
            self.control.tolist(),
            self.text.tolist(),
            self.snippets,
            strict=True,
        )
        lines = [
            f"{number(value, 4)} (control {number(control, 3)})  text {text}: {snippet.marked}"
            for value, control, text, snippet in rows
        ]
        control = "control: the value with the other tokens of the text in random order"
        contexts = len({snippet.marked for snippet in self.snippets})
        repeated = [f"the corpus repeats itself: these are {contexts} different contexts"]
        repetition = repeated if contexts < len(lines) else []
        return "\n".join([self.headline(), *lines, control, *repetition, *self.notes])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        median, far = (self.quantiles[self.levels.index(level)] for level in (0.5, 0.99))
        return (
            f"{self._what} on {self.n_texts} texts, {self.n_tokens} tokens: {self.end} "
            f"{number(self.value[0], 3)} at {self._where(0)} (control "
            f"{number(self.control[0], 3)}); of "
            f"{self.n_cells} cells the median is {number(median, 3)}, 99 % are at most "
            f"{number(far, 3)}"
        )

    def _where(self, row: int) -> str:
        snippet = self.snippets[row]
        return (
            f"‹{snippet.token}› → «{snippet.key_token}»"
            if self._is_attention
            else f"«{snippet.token}»"
        )

    @property
    def _is_attention(self) -> bool:
        return self.by == "attention"

    @property
    def _what(self) -> str:
        return f"{self.of} {self.by}"


def top_texts(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    texts: Any,  # noqa: ANN401 - what interp.prompts.pools_of reads
    *,
    of: PlaceLike,
    by: str | None = None,
    top: int = 10,
    end: str = "highest",
    bos: bool = False,
    seed: int = 0,
    rows: int = 64,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> TopTexts:
    """Find where in a corpus a head attends or writes most, or a neuron or place is largest.

    Padding has no cells. Of equal values, those that come first are reported. A query that sees a
    single key is left out: its attention is 1 in any model.

    Args:
        model: the model.
        texts: the path of a file with one text per line, or one JSON object with a ``text`` per
            line (``.jsonl``); an iterator of texts, or of rows of token ids, which is read once; or
            all at once: texts, token ids padded with ``interp.PAD``, images, a batch, or
            ``(source, target)`` for an encoder–decoder (in a file, ``text`` and ``target``). A text
            longer than the context is cut into several. Or an ``interp.Harvest`` of this model,
            whose texts are run again.
        of: the name of a head, neuron or sub-layer (``L1H3``, ``L0N12``, ``L0MLP``; in an
            encoder–decoder ``cross.L0H1``, ``encoder.L0N3``), or a place, as ``("resid_post", 1)``.
        by: for a head, ``attention`` (the default) or ``write``.
        top: number of cells to report.
        end: ``highest`` or ``lowest``.
        bos: whether cells at BOS (for attention, with it as key) count: many heads attend to it
            where they have nothing to attend to, and streams are often largest there.
        seed: seed for the random orders.
        rows: texts per forward; the result does not depend on it.
        progress: called after each forward with the amount read and the total: bytes of a file,
            else texts (for an iterator, the same number twice).
        cancelled: called after each forward; if it returns True, the result covers what was read.

    Returns:
        The top cells with their contexts, and the distribution of all.

    Raises:
        InvalidInput: an empty corpus, one without a cell, a line that can't be read (the message
            has its number), activations that are not finite, or settings out of range.
        UnknownPlace: the model has nothing of this name.

    Examples:
        >>> texts = ["def f(self): return self", "class A(object): pass"]
        >>> analyses.top_texts(interp.load("python-2l"), texts, of="L1H4")
        TopTexts(L1H4 attention on 2 texts, 20 tokens: highest 0.767 at ‹bject› → «(» (control
        0.215); of 91 cells the median is 0.0432, 99 % are at most 0.767)
    """
    check_finite_weights(model)
    if end not in ENDS:
        raise InvalidInput(f"end={shorten(end)} is not one of {', '.join(ENDS)}.")
    top, rows, seed = at_least(1, top, "top"), at_least(1, rows, "rows"), as_seed(seed)
    measure = measure_of(model, of, by)
    settings = Settings(top, rows, lowest=end == "lowest", bos=bos)
    corpus = stream_corpus(model, texts, measure, settings, progress=progress, cancelled=cancelled)
    control = shuffled_values(measure, corpus, ranks=top, draws=DRAWS, rows=rows, seed=seed)
    bucket_values, counts = corpus.distribution.histogram(0)
    is_attention = measure.key_stack is not None
    return TopTexts(
        of=measure.name,
        by=measure.by,
        end=end,
        value=corpus.value[0],
        control=control[0],
        text=corpus.text[0],
        pos=corpus.pos[0],
        key=corpus.key[0] if is_attention else corpus.key[0] - 1,
        sources=tuple(corpus.sources[n] for n in corpus.text[0].tolist()),
        strips=strips(measure, corpus, rows)[0],
        snippets=snippets(model, measure, corpus)[0],
        levels=LEVELS,
        quantiles=corpus.distribution.quantiles(LEVELS)[0].cpu(),
        mean=corpus.distribution.mean[0].item(),
        bucket_values=bucket_values.cpu(),
        bucket_shares=(counts / corpus.distribution.n).cpu(),
        n_cells=corpus.distribution.n,
        n_texts=corpus.n_texts,
        n_tokens=corpus.n_tokens,
        bos=bos,
        provenance=replace(Provenance.of(model, seed=seed), tokens=corpus.sha256),
        notes=corpus.notes,
    )
