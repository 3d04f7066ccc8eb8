"""The whole model: x = W_E[ids]; x ← x + H(x), x ← x + MLP(x), …; logits = x·W_U.

Decoders, encoders and encoder–decoders are the same loop over stacks: each stack attends to the
output of the stack before it, if there is one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from interp.config import Config
from interp.errors import InvalidInput, InvalidTokens, NoSuchAttribute, shorten
from interp.io import Table
from interp.model.attention_pooler import pooler_of
from interp.model.batch import Batch, is_text
from interp.model.block import Block
from interp.model.context import Context
from interp.model.description import (
    STACKED,
    common_size,
    describe,
    layout_of,
    names_of,
    stacked,
)
from interp.model.linear import Linear
from interp.model.positions.embedding import PositionEmbedding
from interp.model.recipe import Layout
from interp.model.shapes import Logits, Stream, fixed_axes
from interp.model.stack import WHOLE, Span, Stack
from interp.model.tap import Tap, untouched
from interp.model.torch_hooks import refuse_hooks
from interp.model.unembedding import Unembedding
from interp.model.unembedding_kinds import exit_of
from interp.names import Names
from interp.points import TOKEN_AXES, Place


class Network(nn.Module):
    """A Transformer from token ids to logits; every tensor passes through a tap."""

    other_devices: tuple[torch.device, ...] = ()
    """Devices other than :attr:`device` that hold layers."""
    is_writer: bool = True
    """Whether this process writes files; of several that hold the model, one does."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self._stack_names = tuple(config.stacks)
        shared: nn.Parameter | None = None
        for name in config.stacks:
            stack = Stack(config, name, shared)
            self.add_module(name, stack)
            shared = stack.weight_e if config.shared else None
        self.unembed = exit_of(config, self.stacks[-1].weight_e)
        self.pooler = pooler_of(config)
        self.agreement: float | None = None
        """Largest relative difference from the live model that it was loaded from, if any."""
        self.kernel_choice: str | None = None
        """Why its kernel of products was chosen, if there was a choice."""
        self._structure: tuple[Layout, Names] | None = None
        self._axes: dict[Place, Mapping[str, int]] = {}
        self._hooks_searched: int | None = None
        """Number of hooks registered in the process when its parts were last searched for hooks."""
        stacks = config.stacks.values()
        self.most_heads = max(stack.attention.n_heads for stack in stacks)
        """Largest number of heads of a stack."""
        neurons = [0 if stack.mlp is None else stack.mlp.d_mlp for stack in stacks]
        self.widest = max(config.n_logits, self.most_heads * config.d_model, *neurons)
        """Largest number of elements per token of any tensor without a ``key`` axis."""

    def to_single_token(self, text: str) -> int:
        """The id of a text that is exactly one token; a network alone has no tokenizer.

        Raises:
            InvalidInput: always.
        """
        raise InvalidInput(f"{shorten(text)} is a text, and this network has no tokenizer.")

    # ---- the forward --------------------------------------------------------------------------

    def forward(self, *tokens: Any, mask: object = None) -> Logits:  # noqa: ANN401
        """Logits of token ids.

        Args:
            *tokens: token ids ``[batch pos]``, with ``interp.PAD`` at padding; for an
                encoder–decoder the source and the target.
            mask: ``[batch pos]``, nonzero at real tokens; for a (first) input that is padded with
                ids other than ``interp.PAD``.

        Returns:
            ``[batch pos vocab]``; meaningless at padding.

        Raises:
            InvalidTokens: an id is outside the vocabulary, a row exceeds the context, or there are
                no tokens.
            InvalidInput: parts of the model have PyTorch hooks (:mod:`interp.model.torch_hooks`).
        """
        return self.unembed(self.stream(self.check(*tokens, mask=mask)))

    def batch(
        self,
        tokens: Any,  # noqa: ANN401
        mask: object = None,
        *,
        types: object = None,
        stack: str | None = None,
    ) -> Batch:
        """The checked tokens of one stack. A :class:`Batch` is accepted wherever tokens are.

        Args:
            tokens: ids ``[batch pos]``, texts, or images; see :meth:`Batch.of` and
                :meth:`Batch.of_images`.
            mask: nonzero at real tokens; for tokens padded with ids other than ``PAD``.
            types: the type of each token, for a model with token types.
            stack: name of the stack that reads them; the last one by default.
        """
        read_by = self.stack(stack)
        if is_text(tokens):
            tokens = self.encode(tokens, read_by.name)
        batch = read_by.input.batch(tokens, mask, types, next(self.parameters()))
        mask_token = self.config.tokens.mask
        is_encoder = self.config.decoder is None
        return batch.with_mask_token(mask_token) if is_encoder and mask_token is not None else batch

    def encode(self, texts: object, stack: str) -> Tensor:  # noqa: ARG002
        """Token ids of texts for a stack; overridden by models with a tokenizer.

        Raises:
            InvalidTokens: always, as this model has no tokenizer.
        """
        raise InvalidTokens(
            f"This model has no tokenizer; give it token ids instead of {shorten(texts)}."
        )

    def check(self, *tokens: Any, mask: object = None) -> list[Batch]:  # noqa: ANN401
        """The checked tokens of each stack; see :meth:`Batch.of`.

        Every forward begins with this call, so it also refuses a model that has PyTorch hooks.
        """
        # While compiling, nothing is checked: the compiler traces hooks itself.
        if not torch.compiler.is_compiling() and self._hooks_searched != RemovableHandle.next_id:
            refuse_hooks(self)
            self._hooks_searched = RemovableHandle.next_id
        if len(tokens) != len(self.stacks):
            wanted = "source and target" if len(self.stacks) > 1 else "token ids"
            raise InvalidTokens(f"This model reads {wanted}; got {len(tokens)} inputs.")
        batches = [
            self.batch(ids, None if index else mask, stack=stack.name)
            for index, (ids, stack) in enumerate(zip(tokens, self.stacks, strict=True))
        ]
        if len({batch.ids.shape[0] for batch in batches}) > 1:
            rows = " and ".join(str(batch.ids.shape[0]) for batch in batches)
            raise InvalidTokens(f"Source and target must have the same number of rows; got {rows}.")
        return batches

    def batches(self, tokens: Any, mask: object = None) -> list[Batch]:  # noqa: ANN401
        """The checked tokens of each stack, given as one argument.

        Args:
            tokens: the input of ``model(...)``, for an encoder–decoder the tuple ``(source,
                target)``; or checked batches, one per stack, as :meth:`check` returns them.
            mask: as for ``model(...)``.

        Raises:
            InvalidTokens: as for :meth:`check`.
            InvalidInput: the model is an encoder–decoder and ``tokens`` is not a tuple of source
                and target.
        """
        several = isinstance(tokens, list | tuple) and len(tokens) == len(self.stacks)
        checked = several and all(isinstance(part, Batch) for part in tokens)
        is_pair = len(self.stacks) > 1
        if is_pair and not checked and not (several and isinstance(tokens, tuple)):
            raise InvalidInput(
                "This model reads two inputs: give both as the tuple (source, target)."
            )
        if is_pair or checked:
            return self.check(*tokens, mask=mask)
        return self.check(tokens, mask=mask)

    def stream(self, batches: Sequence[Batch], tap: Tap = untouched, span: Span = WHOLE) -> Stream:
        """The last stack's stream after ``span``, which is a part of that stack only."""
        *encoders, last = self.stacks
        *contexts, last_context = self.contexts(batches)
        encoder_output: Tensor | None = None
        for stack, batch, context in zip(encoders, batches, contexts, strict=False):
            encoder_output = stack(batch, context, tap.scoped(stack=stack.name, context=context))
        tap = tap.scoped(stack=last.name, context=last_context)
        return last(batches[-1], last_context.with_encoder(encoder_output), tap, span)

    def contexts(self, batches: Sequence[Batch]) -> list[Context]:
        """Positions and padding for each stack."""
        *sources, last = batches
        before = sources[-1].real if sources else None
        context = Context.of(last, encoder_real=before)
        return [*(Context.of(batch) for batch in sources), context]

    def __repr__(self) -> str:
        """Architecture and sizes; ``torch.nn.Module.__repr__(model)`` lists every module."""
        return self.description().to_text()

    def _repr_html_(self) -> str:
        return self.description().to_html()

    def description(self) -> Table:
        """Architecture, sizes, number of parameters, dtype and device."""
        return describe(self, self.config)

    # ---- parts and sizes ----------------------------------------------------------------------

    @property
    def stacks(self) -> list[Stack]:
        """The stacks in the order in which they run."""
        return [self.get_submodule(name) for name in self._stack_names]  # pyright: ignore[reportReturnType]

    def stack(self, name: str | None = None) -> Stack:
        """The stack of this name, or the last one.

        Raises:
            InvalidInput: the model has no stack of this name.
        """
        if name is not None and name not in self._stack_names:
            raise InvalidInput(
                f"stack={shorten(name)}: this model has {' and '.join(self._stack_names)}."
            )
        return self.stacks[-1 if name is None else self._stack_names.index(name)]

    @property
    def blocks(self) -> list[Block]:
        """The blocks of a model with a single stack.

        Raises:
            NoSuchAttribute: there are two stacks; use ``model.encoder.blocks`` or
                ``model.decoder.blocks``.
        """
        if len(self.stacks) > 1:
            raise NoSuchAttribute(
                "This model has two stacks: say model.encoder.blocks or model.decoder.blocks."
            )
        return [self.stacks[0].block(layer) for layer in range(len(self.stacks[0].blocks))]

    @property
    def n_layers(self) -> int:
        """Number of blocks.

        Raises (as all these sizes do):
            NoSuchAttribute: the stacks of an encoder–decoder, or the layers, differ in this size.
        """
        return common_size(self.config, "n_layers")

    @property
    def n_heads(self) -> int:
        """Number of (query) heads in a layer."""
        return common_size(self.config, "n_heads")

    @property
    def n_kv_heads(self) -> int:
        """Number of key/value heads in a layer."""
        return common_size(self.config, "n_kv_heads")

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""
        return self.config.d_model

    @property
    def d_head(self) -> int:
        """Dimension of a head."""
        return common_size(self.config, "d_head")

    @property
    def d_vocab(self) -> int:
        """Size of the vocabulary."""
        return common_size(self.config, "d_vocab")

    @property
    def n_ctx(self) -> int:
        """Maximum number of tokens in a row."""
        return self.config.n_ctx

    @property
    def needs_length(self) -> bool:
        """Whether activations at early tokens depend on the length of the whole text."""
        return any(
            stack.block(layer).attn.positions.needs_length
            for stack in self.stacks
            for layer in range(len(stack.blocks))
        )

    @property
    def device(self) -> torch.device:
        """The device of the weights; of tokens and logits, if layers lie on several devices."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return next(self.parameters()).dtype

    def weight_names(self) -> list[str]:
        """Names of the weights, each an attribute of one of the parts."""
        return [name for name, _ in self.named_parameters()]

    def add_parts(self, other: "Network") -> None:
        """Give a model of the same configuration the parts that it does not describe: none."""

    def require_whole(self, what: str) -> None:
        """Refuse ``what``, which needs all weights, if this process has only some of them."""

    def write_once(self, write: Callable[[], None]) -> None:
        """Call ``write``, once for all processes that hold the model, which return after it."""
        write()

    @property
    def products(self) -> str:
        """The kernel of products without gradients: ``default``, or ``packed (oneDNN)``."""
        parts = [part for part in self.modules() if isinstance(part, Linear)]
        return " and ".join(sorted({part.products for part in parts}))

    @property
    def W_E(self) -> Float[Tensor, "vocab d_model"]:
        """The (last stack's) token embedding.

        Raises:
            NoSuchAttribute: the model reads images.
        """
        weight = self.stacks[-1].weight_e
        if weight is None:
            raise NoSuchAttribute("This model reads images; it has no W_E.")
        return weight

    @property
    def W_U(self) -> Float[Tensor, "d_model vocab"]:
        """The unembedding, from the stream to the logits.

        Raises:
            NoSuchAttribute: the model has no logits.
        """
        if not isinstance(self.unembed, Unembedding):
            raise NoSuchAttribute("This model returns its last stream; it has no W_U.")
        return self.unembed.W_U

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """The (last stack's) position embedding.

        Raises:
            NoSuchAttribute: the model adds no position embedding.
        """
        entry = self.stacks[-1].entry
        if not isinstance(entry, PositionEmbedding):
            raise NoSuchAttribute("This model adds no position embedding; it has no W_pos.")
        return entry.table()

    # ---- places -------------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """Every place in the order of the forward, each with its recipe."""
        return self._places()[0]

    def fixed_axes(self, place: Place) -> Mapping[str, int]:
        """Size of each axis at a place that does not depend on the input, by name."""
        if place not in self._axes:
            sizes = dict(self.layout[place].sizes) if place in self.layout else {}
            self._axes[place] = {**fixed_axes(self.config, place), **sizes}
        return self._axes[place]

    def shape_at(self, batches: Sequence[Batch], place: Place) -> tuple[int, ...]:
        """The shape of the tensor at a place, in a forward of ``batches``."""
        number = -1 if place.stack is None else self._stack_names.index(place.stack)
        sizes = {
            **self.fixed_axes(place),
            "batch": len(batches[0].ids),
            **dict.fromkeys(TOKEN_AXES, batches[number].ids.shape[1]),
            "source": batches[0].ids.shape[1],
        }
        return tuple(sizes[axis] for axis in place.point.axes)

    @property
    def names(self) -> Names:
        """The places and their names."""
        return self._places()[1]

    def _places(self) -> tuple[Layout, Names]:
        """Layout and names, built once: they depend on the kinds of parts, not on the weights."""
        if self._structure is None:
            layout = layout_of(self.stacks, self.unembed)
            self._structure = layout, names_of(self.stacks, layout)
        return self._structure

    def __getstate__(self) -> dict[str, Any]:
        """The state without the structure, which is rebuilt: recipes can't be pickled."""
        return {**self.__dict__, "_structure": None, "_axes": {}, "_hooks_searched": None}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as nn.Module has it
        """Stacked weights over layers, e.g. ``model.W_Q [layer head d_model d_head]`` (a copy).

        Raises:
            NoSuchAttribute: there is no such attribute; a property that this model lacks gives
                its own reason.
        """
        if name in STACKED:
            return stacked(self.blocks, name)
        attribute = getattr(type(self), name, None)
        # Python also calls this after a property raised AttributeError: raise that error again.
        if isinstance(attribute, property):
            return attribute.__get__(self)
        return super().__getattr__(name)


def unembedding_of(model: Network) -> Unembedding:
    """The unembedding of a model.

    Raises:
        InvalidInput: the model has no logits.
    """
    if not isinstance(model.unembed, Unembedding):
        raise InvalidInput("This model has no logits: it returns its last stream.")
    return model.unembed


def as_network(model: object) -> Network:
    """``model``, if it is one.

    Raises:
        InvalidInput: it is something else, such as the name of a model.
    """
    if not isinstance(model, Network):
        raise InvalidInput(
            f"A model, as interp.load returns it, was expected; got {shorten(model)}."
        )
    return model
