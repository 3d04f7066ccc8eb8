"""Permute heads, neurons, vocabulary and prompts of a model, and the names in its results.

The order of these does not matter: the permuted model computes the same function. With grouped
heads, the groups and the heads within each group are permuted.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd
import torch
from architectures import D_VOCAB, build, build_new, padded
from torch import Tensor

from analyses.methods.symmetries.orders import other_order
from analyses.permutation_covariance.parts import (
    head_orders,
    reorder_heads,
    reorder_neurons,
    reorder_vocabulary,
)
from analyses.results import Result
from interp import PAD, Transformer, metrics
from interp.metrics import Metric
from interp.model.mlp import MLP

COMPONENT = re.compile(r"L\d+(H|KV|N)\d+")
TOKEN_COLUMNS = (
    *("token", "query_token", "key_token", "source_token", "output_token", "top_token"),
    *("target", "distractor"),
)
"""Columns of a frame that hold the label of a token."""
TEXT_COLUMNS = (
    *("context", "promoted_tokens", "suppressed_tokens"),
    *("plain_text", "steered_text", "steered_control_text", "written_text"),
)
"""Columns of a frame that hold several labels of tokens."""
PROMPT_COLUMNS = ("prompt", "text")
"""Columns of a frame that hold the number of a prompt."""
INDEX_COLUMNS = ("head", "neuron")
"""Columns of a frame that hold an index in a layer."""
TOGETHER = " + "
"""Separates the names of a pair, whose order does not matter."""
ENDS = ("first", "second")
"""Columns that repeat the two names of a pair."""
ENCODERS = ("bert",)
NORMALIZING_THE_STREAM = ("bert",)
"""Architectures of cases that have no edges."""
Rows = dict[tuple[object, ...], list[float]]
"""The numbers of each row of a table, by its labels."""
Frames = dict[str, pd.DataFrame]
"""Tables by name."""


@dataclass(frozen=True, eq=False)
class Case:
    """The inputs of analyses.

    Attributes:
        model: the model.
        clean: prompts of several lengths, padded.
        corrupt: prompts of the same lengths.
        target: a token for each prompt.
        distractor: another token for each prompt.
        some: the tokens of a class.
    """

    model: Transformer
    clean: Tensor
    corrupt: Tensor
    target: tuple[int, ...]
    distractor: tuple[int, ...]
    some: tuple[int, ...] = (1, 4, 9)

    @property
    def metric(self) -> Metric:
        """The difference of two logits at the last token."""
        return metrics.logit_diff(self.target, self.distractor)

    @property
    def is_long(self) -> Tensor:
        """A label of prompts that does not depend on their order, nor on that of tokens."""
        return (self.clean != PAD).sum(-1) > 4


def case_of(architecture: str) -> Case:
    """A model and six prompts, enough for intervals."""
    generator = torch.Generator().manual_seed(3)
    lengths = (4, 6, 5, 3, 6, 5)

    def drawn(*shape: int) -> Tensor:
        return torch.randint(D_VOCAB, shape, generator=generator)

    clean, corrupt = (padded([drawn(n) for n in lengths], "left") for _ in range(2))
    target = drawn(len(lengths))
    distractor = (target + 1 + torch.arange(len(lengths))) % D_VOCAB
    answers = (tuple(ids.tolist()) for ids in (target, distractor))
    return Case(build(architecture), clean, corrupt, *answers)


@dataclass(frozen=True, eq=False)
class Permutation:
    """New orders. ``order[new] = old`` for each.

    Attributes:
        heads: new order of the heads of each layer.
        kv_heads: likewise of key/value heads; the same as of heads, if each head has its own.
        neurons: of each layer with an MLP, except mixtures of experts.
        vocabulary: of token ids.
        prompts: of the batch.
    """

    heads: tuple[Tensor, ...]
    kv_heads: tuple[Tensor, ...]
    neurons: dict[int, Tensor]
    vocabulary: Tensor
    prompts: Tensor

    @classmethod
    def drawn(cls, case: Case, seed: int) -> "Permutation":
        """Random orders, each different from the given one."""
        generator = torch.Generator().manual_seed(seed)
        blocks = list(case.model.blocks)
        heads, kv_heads = zip(
            *(head_orders(block.attn, generator) for block in blocks), strict=True
        )
        neurons = {
            layer: other_order(len(block.mlp.W_out), generator)
            for layer, block in enumerate(blocks)
            if isinstance(block.mlp, MLP)
        }
        vocabulary, prompts = (other_order(n, generator) for n in (D_VOCAB, len(case.clean)))
        return cls(heads, kv_heads, neurons, vocabulary, prompts)

    # ---- what is asked -----------------------------------------------------------------------

    def of_case(self, case: Case) -> Case:
        """The same inputs in the new order."""

        def of_prompts(ids: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(self._tokens(torch.tensor(ids))[self.prompts].tolist())

        return Case(
            self._model(case.model),
            self._tokens(case.clean)[self.prompts],
            self._tokens(case.corrupt)[self.prompts],
            of_prompts(case.target),
            of_prompts(case.distractor),
            tuple(self._tokens(torch.tensor(case.some)).tolist()),
        )

    def _model(self, model: Transformer) -> Transformer:
        new = build_new(model.config)
        new.load_state_dict(model.state_dict())
        for layer, block in enumerate(new.blocks):
            reorder_heads(block.attn, self.heads[layer], self.kv_heads[layer])
            if layer in self.neurons:
                reorder_neurons(block.mlp, self.neurons[layer])
        reorder_vocabulary(new, {new.stacks[0].name: self.vocabulary})
        return new

    def _tokens(self, ids: Tensor) -> Tensor:
        """The new ids of tokens; padding is unchanged."""
        return self.vocabulary.argsort()[ids].where(ids != PAD, PAD)

    # ---- what is answered --------------------------------------------------------------------

    def name(self, text: str) -> str:
        """A text with the new names of its heads and neurons."""
        return COMPONENT.sub(lambda match: self._names.get(match[0], match[0]), text)

    def label(self, column: str, row: Mapping[Any, Any]) -> object:
        """The new label of a row of a frame in one column."""
        value = row[column]
        if column in TOKEN_COLUMNS and isinstance(value, str) and value.isdigit():
            return str(int(self._tokens(torch.tensor(int(value)))))
        if column in TEXT_COLUMNS:
            ids = (int(digits) for digits in re.findall(r"\d+", str(value)))
            return tuple(int(self._tokens(torch.tensor(token))) for token in ids)
        if isinstance(value, str):
            return TOGETHER.join(sorted(map(self.name, value.split(TOGETHER))))
        if column in PROMPT_COLUMNS:
            return int(self.prompts.argsort()[int(value)])
        if column in INDEX_COLUMNS and not pd.isna(value):
            component = COMPONENT.search(str(row.get("name")))
            before = f"L{row['layer']}{component[1] if component else 'H'}"
            return int(self.name(f"{before}{value}").removeprefix(before))
        return None if pd.isna(value) else value

    @cached_property
    def _names(self) -> dict[str, str]:
        """The new name of each component, by its old one."""
        orders = [
            *((f"L{layer}H", order) for layer, order in enumerate(self.heads)),
            *((f"L{layer}KV", order) for layer, order in enumerate(self.kv_heads)),
            *((f"L{layer}N", order) for layer, order in self.neurons.items()),
        ]
        pairs = ((letter, enumerate(order.tolist())) for letter, order in orders)
        return {f"{name}{old}": f"{name}{new}" for name, order in pairs for new, old in order}

    @property
    def nothing(self) -> "Permutation":
        """The permutation that changes no order."""

        def unpermuted(order: Tensor) -> Tensor:
            return torch.arange(len(order))

        return Permutation(
            tuple(map(unpermuted, self.heads)),
            tuple(map(unpermuted, self.kv_heads)),
            {layer: unpermuted(order) for layer, order in self.neurons.items()},
            unpermuted(self.vocabulary),
            unpermuted(self.prompts),
        )

    def without(self, *orders: str) -> "Permutation":
        """The same permutation, without changing the given orders."""
        return replace(self, **{name: getattr(self.nothing, name) for name in orders})


def tables_of(result: Result | Frames) -> Frames:
    """All tables of a result, by name."""
    if isinstance(result, dict):
        return result
    methods = [name for name in dir(result) if name.endswith("_frame") and name[0] != "_"]
    return {name: getattr(result, name)() for name in methods}


def of_each_head(ask: Callable[..., Any], **settings: object) -> Callable[[Case], Frames]:
    """All tables of every head of layer 1, concatenated."""

    def frames(case: Case) -> Frames:
        heads = range(case.model.blocks[1].attn.n_heads)
        results = [ask(case.model, 1, head, top=4, **settings) for head in heads]
        named = [
            {kind: frame.assign(name=result.name) for kind, frame in tables_of(result).items()}
            for result in results
        ]
        return {kind: pd.concat([tables[kind] for tables in named]) for kind in named[0]}

    return frames


def labelled(frame: pd.DataFrame, permutation: Permutation) -> Rows:
    """The numbers of each row of a frame, by its labels in the new order.

    Numbers are the columns of floats, but for levels; the other columns are labels.
    """
    numbers = [str(name) for name in frame.select_dtypes("float") if name != "level"]
    labels = [str(name) for name in frame if name not in (*numbers, *ENDS)]
    rows: Rows = {
        tuple((name, permutation.label(name, row)) for name in labels): [row[n] for n in numbers]
        for row in frame.to_dict("records")
    }
    assert len(rows) == len(frame), f"rows of equal labels: {labels}"
    return rows
