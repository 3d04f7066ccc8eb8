"""The whole model: x = W_E[ids]; x ← x + H(x), x ← x + MLP(x), …; logits = x·W_U.

Decoders, encoders and encoder–decoders are one loop over stacks: each attends to the output of the
one before it, if there is one.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.config import Config
from interp.errors import InvalidInput, InvalidTokens
from interp.model.batch import Batch
from interp.model.block import Block
from interp.model.context import Context
from interp.model.embeddings import PositionEmbedding
from interp.model.linear import Linear
from interp.model.recipe import Layout, Recipe
from interp.model.shapes import Logits, Stream
from interp.model.stack import WHOLE, Span, Stack
from interp.model.tap import Tap, untouched
from interp.model.torch_hooks import refuse_hooks
from interp.model.unembedding import Pooler, Unembedding, exit_of
from interp.names import Names
from interp.points import Place


class Network(nn.Module):
    """A Transformer from token ids to logits; every tensor passes a tap."""

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
        self.pooler = Pooler(config.d_model) if config.pooler else None
        self.agreement: float | None = None
        """Largest relative difference from the live model that it was loaded from, if any."""
        self._structure: tuple[Layout, Names] | None = None

    # ---- the forward --------------------------------------------------------------------------

    def forward(self, *tokens: Any, mask: object = None) -> Logits:  # noqa: ANN401
        """Logits of token ids.

        Args:
            *tokens: ids ``[batch pos]``, ``interp.PAD`` where padded; for an encoder–decoder the
                source and the target.
            mask: ``[batch pos]``, nonzero at real tokens, if the (first) tokens are padded with
                other ids than ``interp.PAD``.

        Returns:
            ``[batch pos vocab]``; meaningless at padding.

        Raises:
            InvalidTokens: ids outside the vocabulary, over the context, or none.
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
        """The tokens of one stack, checked; a batch is accepted wherever tokens are.

        Args:
            tokens: ids ``[batch pos]``, texts, or images; see :meth:`Batch.of` and
                :meth:`Batch.of_images`.
            mask: nonzero at real tokens, if they are padded with other ids than ``PAD``.
            types: the type of each token, for a model that has them.
            stack: which stack reads them; the last by default.
        """
        read_by = self.stack(stack)
        if is_text(tokens):
            tokens = self.encode(tokens, read_by.name)
        return read_by.input.batch(tokens, mask, types, next(self.parameters()))

    def encode(self, texts: object, stack: str) -> Tensor:  # noqa: ARG002
        """Token ids of texts for a stack: a model without a tokenizer has none.

        Raises:
            InvalidTokens: always.
        """
        raise InvalidTokens(f"This model has no tokenizer; give it token ids instead of {texts!r}.")

    def check(self, *tokens: Any, mask: object = None) -> list[Batch]:  # noqa: ANN401
        """The tokens of each stack, checked; see :meth:`Batch.of`.

        Every forward begins with it, so it also refuses a model that has PyTorch hooks.
        """
        refuse_hooks(self)
        if len(tokens) != len(self.stacks):
            wanted = "source and target" if len(self.stacks) > 1 else "token ids"
            raise InvalidTokens(f"This model reads {wanted}; got {len(tokens)} inputs.")
        batches = [
            self.batch(ids, None if index else mask, stack=stack.name)
            for index, (ids, stack) in enumerate(zip(tokens, self.stacks, strict=True))
        ]
        if len({batch.ids.shape[0] for batch in batches}) > 1:
            rows = " and ".join(str(batch.ids.shape[0]) for batch in batches)
            raise InvalidTokens(f"Source and target must have as many rows; got {rows}.")
        return batches

    def stream(self, batches: Sequence[Batch], tap: Tap = untouched, span: Span = WHOLE) -> Stream:
        """The last stack's stream after ``span``, which is a part of that stack alone."""
        *encoders, last = self.stacks
        *contexts, own = self.contexts(batches)
        encoder_output: Tensor | None = None
        for stack, batch, context in zip(encoders, batches, contexts, strict=False):
            encoder_output = stack(batch, context, tap.scoped(stack=stack.name, context=context))
        tap = tap.scoped(stack=last.name, context=own)
        return last(batches[-1], own.with_encoder(encoder_output), tap, span)

    def contexts(self, batches: Sequence[Batch]) -> list[Context]:
        """Positions and padding of each stack."""
        *sources, last = batches
        before = sources[-1].real if sources else None
        own = Context.of(last, encoder_real=before)
        return [*(Context.of(batch) for batch in sources), own]

    # ---- what there is ------------------------------------------------------------------------

    @property
    def stacks(self) -> list[Stack]:
        """Its stacks in the order in which they run."""
        return [self.get_submodule(name) for name in self._stack_names]  # pyright: ignore[reportReturnType]

    def stack(self, name: str | None = None) -> Stack:
        """One stack: by its name, or the last."""
        return self.stacks[-1] if name is None else getattr(self, name)

    @property
    def blocks(self) -> list[Block]:
        """The blocks of a model with a single stack.

        Raises:
            InvalidInput: there are two; say ``model.encoder.blocks`` or ``model.decoder.blocks``.
        """
        if len(self.stacks) > 1:
            raise InvalidInput(
                "This model has two stacks: say model.encoder.blocks or model.decoder.blocks."
            )
        return [self.stacks[0].block(layer) for layer in range(len(self.stacks[0].blocks))]

    @property
    def needs_length(self) -> bool:
        """Whether what is computed at early tokens depends on the length of their text."""
        return any(
            stack.block(layer).attn.positions.needs_length
            for stack in self.stacks
            for layer in range(len(stack.blocks))
        )

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its weights."""
        return next(self.parameters()).dtype

    @property
    def products(self) -> str:
        """The kernel of its products with weights where no gradient is wanted.

        ``default``, or ``packed (oneDNN)`` after :func:`interp.packed`.
        """
        parts = [part for part in self.modules() if isinstance(part, Linear)]
        return " and ".join(sorted({part.products for part in parts}))

    @property
    def W_E(self) -> Float[Tensor, "vocab d_model"]:
        """The (last stack's) token embedding.

        Raises:
            InvalidInput: it reads images.
        """
        weight = self.stacks[-1].weight_e
        if weight is None:
            raise InvalidInput("This model reads images; it has no W_E.")
        return weight

    @property
    def W_U(self) -> Float[Tensor, "d_model vocab"]:
        """The unembedding, from the stream to the logits.

        Raises:
            InvalidInput: it has no logits.
        """
        if not isinstance(self.unembed, Unembedding):
            raise InvalidInput("This model returns its last stream; it has no W_U.")
        return self.unembed.W_U

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """The (last stack's) position embedding.

        Raises:
            InvalidInput: it adds no position embedding.
        """
        entry = self.stacks[-1].entry
        if not isinstance(entry, PositionEmbedding):
            raise InvalidInput("This model adds no position embedding; it has no W_pos.")
        return entry.table()

    # ---- its places ---------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """Every place in the order of the forward, each with its recipe."""
        return self._places()[0]

    @property
    def names(self) -> Names:
        """Its places and their names."""
        return self._places()[1]

    def _places(self) -> tuple[Layout, Names]:
        """Layout and names, built once: they depend on the kinds of parts, not on weights."""
        if self._structure is None:
            layout = self._layout()
            layers = {stack.name: len(stack.blocks) for stack in self.stacks}
            hooks = {place: hook_name(place, recipe) for place, recipe in layout.items()}
            self._structure = layout, Names(hooks, layers)
        return self._structure

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles rebuild the structure: recipes are functions."""
        return {**self.__dict__, "_structure": None}

    def _layout(self) -> Layout:
        places: Layout = {}
        for stack in self.stacks:
            places |= {self._place(place, stack): r for place, r in stack.layout().items()}
        return places | self.unembed.layout()

    def _place(self, place: Place, stack: Stack) -> Place:
        name = stack.name if len(self.stacks) > 1 else None
        return Place(place.point, place.layer, place.norm, name)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as nn.Module has it
        """Stacked weights over layers, e.g. ``model.W_Q [layer head d_model d_head]`` (a copy)."""
        if name in STACKED:
            weights = [getattr(getattr(block, STACKED[name]), name) for block in self.blocks]
            if any(weight is None for weight in weights):
                raise InvalidInput(f"This model has no {name}.")
            if len({weight.shape for weight in weights}) > 1:
                raise InvalidInput(f"Layers differ in the shape of {name}; read them one by one.")
            return torch.stack(weights)
        return super().__getattr__(name)


STACKED = {
    **dict.fromkeys(("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"), "attn"),
    **dict.fromkeys(("W_in", "W_gate", "W_out", "b_in", "b_out"), "mlp"),
}


def hook_name(place: Place, recipe: Recipe) -> str:
    """The TransformerLens name of a place; in a pair, the stack's name replaces ``blocks``."""
    own = recipe.hook or place.point.value.hook
    if place.layer is None:
        return f"{place.stack}.{own}" if place.stack else own
    norm = f"{place.norm}." if place.norm else ""
    return f"{place.stack or 'blocks'}.{place.layer}.{norm}{own}"


def is_text(tokens: object) -> bool:
    """Whether tokens are given as a text or a sequence of texts."""
    several = isinstance(tokens, list | tuple) and bool(tokens)
    return isinstance(tokens, str) or (several and isinstance(tokens[0], str))  # pyright: ignore
