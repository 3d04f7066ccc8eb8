"""By which paths does the answer get its information? From the tokens to the logits, exactly.

    logit − b_U = Σ_u u_i·D = Σ_paths …        u_i: what an embedding, head or MLP writes at token i

With the patterns of heads, the divisors of norms and the gates of MLPs fixed at their values from
the run, a model is linear, and the logit (or the difference of two) is a sum over paths from the
tokens to the logits; no gradient is approximated. Nodes are writers at positions, edges what one
reads of another, and so at each node

    Σ of what it reads through values, or through neurons = what it contributes

biases included (:mod:`analyses.methods.frozen`; Elhage et al. 2021, "A Mathematical
Framework for Transformer Circuits"; the gates as in Jafari et al. 2025, "RelP"). Why a head attends
where it does is a second question: its pattern is not linear in scores. The gradient of its output
with respect to the scores is integrated from equal content to the scores of the run, after which
what its queries read, and what its keys read, each sum to what attention by content adds to
attention by position alone (Sundararajan et al. 2017). Each path has at most one such step.

Strong nodes are traced, last layer first; what is not listed is stated as the rest of each sum. The
control is the same for tokens drawn at random in place of target and distractor.

What the numbers can't show: a contribution is no effect of a removal, as gates, norms and patterns
then change, and later parts may make up for it. ``check`` removes the strongest nodes and edges
from the run, and measures what the answer loses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.attribution import (
    Agreement,
    cells_to_check,
)
from analyses.methods.finite import check_finite_weights
from analyses.methods.frozen import check_linear_once_frozen
from analyses.results import (
    Network,
    Node,
    Progress,
    Result,
    Tokens,
    counted,
    fixed,
    number,
    places_of,
    plotted,
    signed,
    token_ids,
)
from analyses.trace_paths.found import (
    LOGITS,
    Found,
    Names,
    PathNode,
    PromptTrace,
    Question,
    ReadSum,
    edge_name,
)
from analyses.trace_paths.removal import removal
from interp import Transformer, sweep
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least, within
from interp.io import as_progress, cancellable
from interp.metrics import Metric, Position, as_position, columns_read, logit, logit_diff
from interp.prompts import read_batches
from interp.sweeps import check_options

DRAWN = 30
"""The most edges that a figure draws at first."""
DRAWS = 8
"""Random answers of the control."""
PATHS = 20
"""The most single paths of a prompt."""
INPUT = "input"
"""What an MLP and the logits read."""
AFTER_CAP = "contributions are to logits before their soft-cap; removals are measured after it"


@dataclass(frozen=True, eq=False, repr=False)
class TracedPaths(Result):
    """The strong nodes, edges and paths by which the answer to each prompt is computed.

    Attributes:
        value: the logit of each prompt's target, or its difference from the distractor's, before
            any soft-cap.
        nodes: parts of the model at positions; see
            :class:`analyses.trace_paths.found.PathNode`.
        prompt: the prompt of each edge.
        edges: writer and reader of each edge, largest effect of a prompt first:
            ``("L0H0@3", "L1H0.k@5")``.
        effect: what each edge contributes to the answer, in logits.
        control: mean |effect| for tokens drawn at random in place of target and distractor.
        exact: what the answer loses if the edge is removed; NaN where that was not measured.
        path_prompt: the prompt of each path.
        paths: the edges of each path, that from its first node first.
        path_effect: what each path contributes, in logits.
        path_control: its control.
        readings: what each traced node reads in all; see
            :class:`analyses.trace_paths.found.ReadSum`.
        tokens: label of each token of each prompt.
        target: label of each prompt's target.
        distractor: label of each prompt's distractor; ``None`` if there is none.
        provenance: model, tokens and settings that the numbers depend on.
        notes: notes on how the numbers were computed.
    """

    effect_unit = "logits"

    value: Float[Tensor, " prompt"]
    nodes: tuple[PathNode, ...]
    prompt: Int[Tensor, " edge"]
    edges: tuple[Names, ...]
    effect: Float[Tensor, " edge"]
    control: Float[Tensor, " edge"]
    exact: Float[Tensor, " edge"]
    path_prompt: Int[Tensor, " path"]
    paths: tuple[tuple[Names, ...], ...]
    path_effect: Float[Tensor, " path"]
    path_control: Float[Tensor, " path"]
    readings: tuple[ReadSum, ...]
    tokens: tuple[tuple[str, ...], ...]
    target: tuple[str, ...]
    distractor: tuple[str, ...] | None
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """The largest difference between the sum of all direct terms and ``value``, in logits."""
        read = [each.effect for each in self.readings if each.name.startswith(LOGITS)]
        return float((self.value - torch.tensor(read, dtype=torch.float64)).abs().max())

    @property
    def agreement(self) -> Agreement:
        """How contributions agree with what the answer loses, over the removed nodes and edges."""
        both = [(node.effect, node.exact) for node in self.nodes]
        both += zip(self.effect.tolist(), self.exact.tolist(), strict=True)
        effect, exact = (
            torch.tensor(each, dtype=torch.float64) for each in zip(*both, strict=True)
        )
        return Agreement.of(effect, exact)

    def to_frame(self) -> pd.DataFrame:
        """One row per edge, largest contribution of each prompt first.

        Columns:
            prompt: the prompt.
            writer, reader, name: the edge; ``L1H0.k@5`` are keys that L1H0 reads for position 5.
            part: what a head reads: q, k or v; ``input`` for an MLP and the logits.
            pos, token: the position that is read, and its token.
            effect: what it contributes to the answer, in logits.
            control: mean |effect| for tokens drawn at random.
            exact: what the answer loses if it is removed; NaN if that was not measured.
        """
        writers, readers = ([edge[end] for edge in self.edges] for end in (0, 1))
        pos = [int(writer.rpartition("@")[2]) for writer in writers]
        prompts = self.prompt.tolist()
        return pd.DataFrame(
            {
                "prompt": prompts,
                "writer": writers,
                "reader": readers,
                "name": [edge_name(edge) for edge in self.edges],
                "part": [letter_of(reader) or INPUT for reader in readers],
                "pos": pos,
                "token": [self.tokens[n][at] for n, at in zip(prompts, pos, strict=True)],
                "effect": self.effect.numpy(),
                "control": self.control.numpy(),
                "exact": self.exact.numpy(),
            }
        )

    def to_node_frame(self) -> pd.DataFrame:
        """One row per node, largest contribution of each prompt first.

        Columns:
            prompt, name, kind, layer, head, pos, token: the node.
            effect, control, exact: as for an edge, through all nodes that were traced.
            is_traced: whether what it reads is listed.
        """
        columns = list(PathNode.__dataclass_fields__)
        rows = [[getattr(node, name) for name in columns] for node in self.nodes]
        frame = pd.DataFrame(rows, columns=pd.Index(columns))
        frame = frame.astype({"layer": "Int64", "head": "Int64"})
        order = frame.assign(size=-frame["effect"].abs()).sort_values(
            ["prompt", "size"], kind="stable"
        )
        return order.drop(columns="size").reset_index(drop=True)

    def to_path_frame(self) -> pd.DataFrame:
        """One row per path: prompt, rank, name, token (its first), effect, control."""
        prompts, effects = self.path_prompt.tolist(), self.path_effect
        ranks = [1 + prompts[:n].count(prompt) for n, prompt in enumerate(prompts)]
        return pd.DataFrame(
            {
                "prompt": prompts,
                "rank": ranks,
                "name": [path_name(path) for path in self.paths],
                "token": [self._first_token(n) for n in range(len(self.paths))],
                "effect": effects.numpy(),
                "control": self.path_control.numpy(),
            }
        )

    def to_reading_frame(self) -> pd.DataFrame:
        """One row per node and letter: prompt, name, effect = listed + bias + rest.

        The effect is the sum of all that is read by that letter. What an MLP, the values of a head
        or the logits read sums to what they contribute.
        """
        columns = ("prompt", "name", "effect", "listed", "bias", "rest")
        return pd.DataFrame({name: [getattr(x, name) for x in self.readings] for name in columns})

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """The tables of nodes, paths and sums."""
        return {
            "nodes": self.to_node_frame(),
            "paths": self.to_path_frame(),
            "readings": self.to_reading_frame(),
        }

    def drawing(self, prompt: int = 0) -> Network:
        """The graph of one prompt: tokens across, layers upwards; the strongest edges at first.

        Raises:
            InvalidInput: there is no such prompt.
        """
        prompt = within(0, len(self.value) - 1, prompt, "prompt")
        of_prompt = [node for node in self.nodes if node.prompt == prompt]
        layers = sorted({node.layer for node in of_prompt if node.layer is not None})
        rows = ["embed", *(f"L{n}{x}" for n in layers for x in ("", " MLP")), LOGITS]
        number_of = {node.name: n for n, node in enumerate(of_prompt)}
        read_as: dict[str, dict[tuple[int, int], float]] = {}
        sizes: list[float] = []
        for edge, effect in self._edges_of(prompt):
            letter = letter_of(edge[1])
            ends = number_of[edge[0]], number_of[edge[1].replace(f".{letter}@", "@")]
            read_as.setdefault(letter, {})[ends] = effect
            sizes.append(abs(effect))
        return Network(
            [
                Node(x.name, float(x.pos), float(rows.index(_row_of(x))), note=_note_of(x))
                for x in of_prompt
            ],
            read_as.pop("", {}),
            title=f"Paths to the {self._what(prompt)}",
            unit="logits",
            read_as=read_as,
            columns=[f"{n} {token}" for n, token in enumerate(self.tokens[prompt])],
            rows=rows,
            root=len(of_prompt) - 1,
            least=sorted(sizes, reverse=True)[:DRAWN][-1] if sizes else 0.0,
        )

    figure = plotted(drawing)

    def summary(self, top: int = 10) -> str:
        """The answer, its ``top`` strongest paths, and how far the numbers can be relied on."""
        top = at_least(1, top, "top")
        frame = self.to_path_frame()
        frame = frame.loc[frame["effect"].abs().sort_values(ascending=False, kind="stable").index]
        rows = frame.head(top).to_dict("records")
        places = places_of([row["effect"] for row in rows])
        several = len(self.value) > 1
        lines = [
            f"{signed(row['effect'], places)} logits  {row['token']}: {row['name']}"
            f"{' (prompt ' + str(row['prompt']) + ')' if several else ''}"
            f"  control {fixed(row['control'], places)}"
            for row in rows
        ]
        return "\n".join([*self.conclusion(), *lines, *self.notes])

    def conclusion(self) -> list[str]:
        """See :meth:`Result.conclusion`."""
        agreement, traced = self.agreement, sum(node.is_traced for node in self.nodes)
        lines = [
            self.headline(),
            f"direct terms sum to the answer within {self.error:.1e} logits; "
            f"{counted(traced, 'traced node')}; control: mean |contribution| to tokens drawn at "
            "random",
        ]
        if agreement.n:
            removed = f"removing {agreement.n} nodes and edges"
            lines.append(f"with what {removed} takes from the answer: {agreement}")
        if not agreement.is_good:
            lines.append(
                "WARNING: what the answer loses by removals differs from the contributions: later "
                "parts, norms or patterns change with it"
            )
        return lines

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        first = f"{self._what()} {number(self.value.mean(), sign=True)} on "
        first += counted(len(self.value), "prompt")
        if not self.paths:
            return f"{first}; no path was traced"
        strongest = int(self.path_effect.abs().argmax())
        numbers = [self.path_effect[strongest], self.path_control[strongest]]
        effect, control = (number(x, 3, sign=n == 0) for n, x in enumerate(numbers))
        return (
            f"{first}; strongest path {self._first_token(strongest)}: "
            f"{path_name(self.paths[strongest])} {effect} (control {control})"
        )

    # ---- parts of texts ----------------------------------------------------------------------

    def _what(self, prompt: int | None = None) -> str:
        """A description of what was traced."""
        targets, distractors = self.target, self.distractor
        if prompt is not None:
            targets = targets[prompt : prompt + 1]
            distractors = None if distractors is None else distractors[prompt : prompt + 1]
        first = f"logit of {targets[0] if len(set(targets)) == 1 else 'the target'}"
        if distractors is None:
            return first
        return f"{first} minus {distractors[0] if len(set(distractors)) == 1 else 'the distractor'}"

    def _first_token(self, path: int) -> str:
        writer, _ = self.paths[path][0]
        return self.tokens[int(self.path_prompt[path])][int(writer.rpartition("@")[2])]

    def _edges_of(self, prompt: int) -> list[tuple[Names, float]]:
        rows = (self.prompt == prompt).nonzero()[:, 0].tolist()
        return [(self.edges[row], float(self.effect[row])) for row in rows]


def letter_of(reader: str) -> str:
    """What a reader reads: ``k`` for ``L1H0.k@5``, ``""`` for ``L1MLP@5``."""
    return reader.partition("@")[0].partition(".")[2]


def path_name(path: Sequence[Names]) -> str:
    """The nodes of a path, each with the letter by which it reads the one before."""
    return " → ".join([path[0][0], *(reader for _, reader in path)])


def _row_of(node: PathNode) -> str:
    """The row of a node in the figure."""
    if node.layer is None:
        return LOGITS if node.kind == LOGITS else "embed"
    return f"L{node.layer} MLP" if node.kind == "mlp" else f"L{node.layer}"


def _note_of(node: PathNode) -> str:
    """The numbers of a node, in a line."""
    effect, control = number(node.effect, 3, sign=True), number(node.control, 3)
    text = f"contributes {effect} logits (control {control})"
    return (
        text
        if node.exact != node.exact
        else (f"{text}; without it, the answer loses {number(node.exact, 3, sign=True)}")
    )


def trace_paths(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    *,
    target: Tokens,
    distractor: Tokens | None = None,
    pos: Position = None,
    scores: bool = True,
    least: float = 0.1,
    most: int = 40,
    check: int | Sequence[str] = 16,
    seed: int = 0,
    memory: float | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> TracedPaths:
    """Trace a logit, or the difference of two, through heads and MLPs back to the tokens.

    Args:
        model: a model with one stack whose stream is a sum of what is written, and whose logits are
            linear in (the norm of) it. What a mixture of experts reads is not traced.
        prompts: texts, token ids, images or a batch.
        target: a token (its id or text), or one per prompt.
        distractor: likewise; its logit is subtracted.
        pos: the position whose logits are read, among the tokens of each prompt. ``None`` for the
            last, or in an encoder that of the prompt's mask token.
        scores: whether to trace what queries and keys read, once on each path.
        least: share of the largest direct term from which the contribution of a node is traced.
        most: the most nodes that are traced on each prompt; the share is raised until there are no
            more.
        check: number of nodes and edges of each prompt that are removed to measure what the answer
            loses: half of them those with the largest contributions, the others drawn from the
            rest; or their names, such as ``["L1H0@5", "L0H0@3 → L1H0.k@5"]``. Each costs up to a
            forward.
        seed: seed for these draws and the tokens of the control.
        memory: bytes that the forwards may take, as for :func:`interp.sweep`.
        progress: called with ``(removals done, removals in total)`` of a prompt.
        cancelled: called after each forward; if it returns True, removals that are left are not
            measured.

    Raises:
        InvalidInput: the model has two stacks, clips its queries, keys and values, or norms change
            its stream (post-norm); its logits are not linear in the stream, or one is NaN; targets
            are outside the vocabulary or not one per prompt; a prompt has no such position; no such
            node or edge; or ``least``, ``most`` or ``check`` out of range.
        InvalidTokens: a target's text is not one token; the message shows how it is split.
        Cancelled: ``cancelled`` returned True before all prompts were traced.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> analyses.trace_paths(model, "abcab", target="c", distractor="a", check=0)
        TracedPaths(logit of c minus a +12 on 1 prompt; strongest path b: embed@5 → L1H0.q@5 →
        logits@5 +28.4 (control 0.333))
    """
    check_finite_weights(model)
    check_linear_once_frozen(model, "trace_paths")
    check_options(model, memory, None)
    most, seed = at_least(1, most, "most"), as_seed(seed)
    is_number = isinstance(least, int | float) and not isinstance(least, bool)  # pyright: ignore[reportUnnecessaryIsInstance] - of users
    if not is_number or not 0 < least <= 1:
        raise InvalidInput(f"least={shorten(least)} should be a share above 0, up to 1.")
    if not isinstance(scores, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - of users
        raise InvalidInput(f"scores={shorten(scores)} should be True or False.")
    chosen = _checked_names(check)
    (batch,) = read_batches(model, prompts)
    column = columns_read(batch, as_position(pos))
    answers = {"target": target} | ({} if distractor is None else {"distractor": distractor})
    ids = torch.stack(
        [token_ids(model, tokens, len(column), name) for name, tokens in answers.items()]
    )
    traced: list[Found] = []
    tokens: list[tuple[str, ...]] = []
    missing = set(() if isinstance(chosen, int) else chosen)
    report = as_progress(progress, "removals")
    for n in range(len(column)):
        row = batch.rows(torch.tensor([n], device=batch.ids.device))
        asked = torch.cat([ids[:, [n]], _drawn(ids[:, n], model.config.n_logits, seed)], 1)
        with cancellable(cancelled):
            trace = PromptTrace(
                model, row, Question(n, column[[n]], asked),
                scores=scores, least=least, most=most, paths=PATHS,
            )  # fmt: skip
        cells = trace.cells()
        names = [*cells]
        if isinstance(chosen, int):
            sizes = torch.tensor([abs(effect) for _, effect in cells.values()])
            names = [names[cell] for cell in cells_to_check(sizes, chosen, seed).tolist()]
        else:
            names = [name for name in names if name in chosen]
            missing -= {*names}
        exact: dict[str, float] = {}
        if names:
            table = sweep(
                model,
                row,
                [removal(trace.frozen, cells[name][0]) for name in names],
                _metric(ids[:, n], trace.pos),
                memory=memory,
                progress=report,
                cancelled=cancelled,
            )
            losses = -table.effect[:, 0].double()
            exact = dict(zip(names, losses.tolist(), strict=True))
        traced.append(trace.found(exact))
        tokens.append(tuple(trace.tokens))
    if missing:
        raise InvalidInput(
            f"check={shorten([*missing])}: no prompt has such a node or edge among those that were "
            "traced; see to_node_frame() and to_frame() for their names, or lower least=."
        )
    labels = [tuple(model.label(token) for token in each) for each in ids.tolist()]
    return _of_prompts(
        traced,
        tokens=tuple(tokens),
        target=labels[0],
        distractor=None if distractor is None else labels[1],
        provenance=Provenance.of(model, batch, seed=seed),
        notes=() if model.config.logit_cap is None else (AFTER_CAP,),
    )


def _checked_names(check: object) -> int | tuple[str, ...]:
    """The number of nodes and edges to remove, or their names.

    Raises:
        InvalidInput: neither.
    """
    if isinstance(check, list | tuple) and all(isinstance(name, str) for name in check):  # pyright: ignore[reportUnknownVariableType]
        return tuple(map(str, check))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(check, list | tuple):
        raise InvalidInput(f"check={shorten(check)} should be names of nodes or edges.")
    return at_least(0, check, "check")


def _metric(ids: Int[Tensor, " token"], pos: int) -> Metric:
    """The answer of one prompt, which a removal changes."""
    target, *distractor = ids.tolist()
    return logit_diff(target, distractor[0], pos) if distractor else logit(target, pos)


def _drawn(ids: Int[Tensor, " token"], n_logits: int, seed: int) -> Int[Tensor, "token answer"]:
    """Random targets other than the target, and distractors other than these."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(1, max(n_logits, 2), (len(ids), DRAWS), generator=generator)
    return (ids[:1, None] + steps.to(ids.device).cumsum(0)) % n_logits


def _of_prompts(traced: Sequence[Found], **rest: Any) -> TracedPaths:  # noqa: ANN401 - fields
    """The traces of all prompts together."""
    edges, paths = ([len(getattr(each, name)) for each in traced] for name in ("edges", "paths"))
    effects = torch.cat([each.effects for each in traced]).cpu()
    path_effects = torch.cat([each.path_effects for each in traced]).cpu()
    numbers = torch.arange(len(traced))
    return TracedPaths(
        value=torch.cat([each.value for each in traced]).cpu(),
        nodes=tuple(node for each in traced for node in each.nodes),
        prompt=numbers.repeat_interleave(torch.tensor(edges)),
        edges=tuple(edge for each in traced for edge in each.edges),
        effect=effects[:, 0],
        control=effects[:, 1],
        exact=torch.cat([each.exact for each in traced]),
        path_prompt=numbers.repeat_interleave(torch.tensor(paths)),
        paths=tuple(path for each in traced for path in each.paths),
        path_effect=path_effects[:, 0],
        path_control=path_effects[:, 1],
        readings=tuple(reading for each in traced for reading in each.sums),
        **rest,
    )
