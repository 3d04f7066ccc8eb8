"""The model of the public API: a :class:`Network` with a tokenizer and TransformerLens's calls."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.cache.cache import Cache
from interp.config import Config
from interp.edits import Edit, Hook
from interp.edits.edit import Apply
from interp.errors import InvalidInput, InvalidTokens, UnknownPlace
from interp.execution.generate import generate
from interp.execution.run import run, run_edited
from interp.metrics import Loss
from interp.model.batch import PAD
from interp.model.network import Network
from interp.names import Request
from interp.points import PlaceLike
from interp.text.tokenizer import Tokenizer
from interp.weights.processed import processed

HookFunction = Callable[[Tensor, Hook], Tensor | None]
HookName = PlaceLike | Callable[[str], bool]


class Transformer(Network):
    """A Transformer in residual-stream form: every activation can be read and edited.

    Args:
        config: its architecture.
        tokenizer: encodes and decodes text; without one, the model takes token ids only.
    """

    def __init__(self, config: Config, tokenizer: Tokenizer | None = None) -> None:
        if tokenizer is not None and tokenizer.vocab_size > config.d_vocab:
            raise InvalidInput(
                f"The tokenizer has {tokenizer.vocab_size} tokens, the model {config.d_vocab}."
            )
        super().__init__(config)
        self.tokenizer = tokenizer

    # ---- text ---------------------------------------------------------------------------------

    def to_tokens(
        self,
        texts: str | Sequence[str],
        *,
        prepend_bos: bool | None = None,
        padding_side: str = "right",
        stack: str | None = None,
    ) -> Int[Tensor, "batch pos"]:
        """Token ids of one or several texts.

        If ``config.tokens.prepend_bos``, every text is preceded by one BOS token (unless the text
        starts with it already). A text for the decoder of a pair is preceded by
        ``config.tokens.decoder_start`` and gets no EOS. The same holds wherever a text is accepted;
        token ids are never changed.

        Args:
            texts: a text or several.
            prepend_bos: overrides the configuration.
            padding_side: ``right`` or ``left``: where shorter texts are padded with ``interp.PAD``.
            stack: which stack of an encoder–decoder reads them; by default the first.

        Raises:
            InvalidTokens: a text without tokens, or no text.
        """
        several = [texts] if isinstance(texts, str) else list(texts)
        if padding_side not in ("left", "right"):
            raise InvalidInput(f"padding_side={padding_side!r} is neither left nor right.")
        names = list(self.config.stacks)
        if stack is not None and stack not in names:
            raise InvalidInput(f"stack={stack!r}: this model has {' and '.join(names)}.")
        is_target = stack is not None and stack != names[0]
        encoded = self._encoded_target if is_target else self._encoded_prompt
        rows = [encoded(text, prepend_bos) for text in several]
        if not rows:
            raise InvalidTokens("No text was given, so there is nothing to run the model on.")
        width = max(len(row) for row in rows)
        padded = [
            row + [PAD] * (width - len(row))
            if padding_side == "right"
            else [PAD] * (width - len(row)) + row
            for row in rows
        ]
        return torch.tensor(padded, device=self.device)

    def to_string(self, tokens: Int[Tensor, "*batch pos"]) -> str | list[str]:
        """The text of one row ``[pos]``, or of each row ``[batch pos]``, without padding."""
        if tokens.ndim == 1:
            return self._tokenizer().decode(tokens.tolist())
        return [self._tokenizer().decode(row) for row in tokens.tolist()]

    def to_labels(self, tokens: Int[Tensor, " pos"]) -> list[str]:
        """One label per token, in which spaces, newlines and parts of characters are visible."""
        if self.tokenizer is None:
            return [str(token) for token in tokens.tolist()]
        return self.tokenizer.display(tokens.tolist())

    def to_single_token(self, text: str) -> int:
        """The id of a text that is exactly one token.

        Raises:
            InvalidTokens: it is several, or none; the message lists them.
        """
        return self._tokenizer().single_token(text)

    def encode(self, texts: Any, stack: str) -> Int[Tensor, "batch pos"]:  # noqa: ANN401
        """Token ids of one or several texts for a stack; see :meth:`to_tokens`."""
        return self.to_tokens(texts, stack=stack)

    # ---- views of its weights -----------------------------------------------------------------

    def processed(
        self,
        *,
        fold_norms: bool = True,
        center_writing: bool = True,
        center_unembed: bool = True,
        fold_value_biases: bool = True,
    ) -> "Transformer":
        """A new model with the same function, whose weights are easier to interpret.

        It has the same logits, or the same log-probabilities if ``center_unembed``. Tied weights
        become separate.

        Args:
            fold_norms: gains and biases of the norms before sub-layers and the unembedding are
                multiplied into the matrices that read them, and become 1 and 0.
            center_writing: embeddings, W_O, b_O, W_out and b_out get mean zero over d_model.
            center_unembed: W_U and b_U get mean zero over the vocabulary.
            fold_value_biases: b_V becomes 0, and b_O its effect.

        Raises:
            InvalidInput: a step that would change what this model computes; pass ``False`` for it.
        """
        made = processed(
            self,
            norms=fold_norms,
            writing=center_writing,
            unembed=center_unembed,
            value_biases=fold_value_biases,
        )
        if not isinstance(made, Transformer):
            raise TypeError(f"A {type(made).__name__} is not a Transformer.")
        made.tokenizer, made.agreement = self.tokenizer, self.agreement
        return made

    def _encoded(self, text: str, prepend_bos: bool | None) -> list[int]:  # noqa: FBT001
        ids = self._tokenizer().encode(text)
        rule = self.config.tokens.prepend_bos if prepend_bos is None else prepend_bos
        bos = self.config.tokens.bos
        if rule and bos is None:
            raise InvalidInput("prepend_bos=True, but this model has no BOS token.")
        if not ids:
            raise InvalidTokens(f"The prompt {text!r} is empty: it has no token.")
        return [bos, *ids] if rule and bos is not None and ids[0] != bos else ids

    def _encoded_prompt(self, text: str, prepend_bos: bool | None) -> list[int]:  # noqa: FBT001
        ids = self._encoded(text, prepend_bos)
        eos = self.config.tokens.eos if self.config.tokens.append_eos else None
        return ids if eos is None or ids[-1] == eos else [*ids, eos]

    def _encoded_target(self, text: str, prepend_bos: bool | None) -> list[int]:  # noqa: FBT001
        ids, start = self._encoded(text, prepend_bos), self.config.tokens.decoder_start
        return ids if start is None or ids[0] == start else [start, *ids]

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InvalidInput("This model has no tokenizer; give it token ids instead of text.")
        return self.tokenizer

    # ---- TransformerLens's calls ---------------------------------------------------------------

    def run_with_cache(
        self,
        *tokens: Any,  # noqa: ANN401 - ids or texts
        names_filter: Request = "all",
        stop_at_layer: int | None = None,
        incl_bwd: bool = False,
        mask: object = None,
    ) -> tuple[Tensor, Cache]:
        """Logits (or the stream, if stopped) and a cache of ``names_filter``; see :func:`run`.

        Args:
            *tokens: as of ``model(...)``.
            names_filter: ``"all"``, a place, several, or a function of the hook name.
            stop_at_layer: end before this layer.
            incl_bwd: also the gradients of the next-token loss, as ``cache["z_grad", 0]``.
            mask: as of ``model(...)``.
        """
        record = "all" if names_filter is None else names_filter
        metric = Loss() if incl_bwd else None
        done = run(
            self,
            *tokens,
            record=record,
            stop_at_layer=stop_at_layer,
            gradients_of=metric,
            mask=mask,
        )
        output = done.stream if done.logits is None else done.logits
        if output is None:
            raise InvalidInput("The run has neither logits nor a stream.")
        return output, done.cache

    def run_with_hooks(
        self,
        *tokens: Any,  # noqa: ANN401 - ids or texts
        fwd_hooks: Sequence[tuple[HookName, HookFunction]] = (),
        mask: object = None,
    ) -> Float[Tensor, "batch pos vocab"]:
        """Logits of a forward in which each ``fn(tensor, hook)`` may change a tensor.

        A name may be a function of hook names, and then means every hook that it accepts. The
        forward continues with what ``fn`` returns; with ``None``, it continues with the tensor
        itself, including in-place changes. Gradients are recorded as in the caller's grad mode.

        Raises:
            UnknownPlace: a misspelt name, before the forward.
            HookFailed: ``fn`` raised; nothing stays attached to the model.
        """
        return run_edited(self, *tokens, edits=self._as_edits(fwd_hooks), mask=mask)

    def _as_edits(self, hooks: Sequence[tuple[HookName, HookFunction]]) -> list[Edit]:
        made: list[Edit] = []
        for name, fn in hooks:
            if callable(name):
                names = [hook for hook in self.names.hooks.values() if name(hook)]
                if not names:
                    raise UnknownPlace("The name filter of a hook accepts no place of this model.")
            else:
                names = [self.names.hooks[self.names.resolve(name)]]
            made += [
                Apply((hook,), fn=fn, hook=Hook(hook, self.names.resolve(hook))) for hook in names
            ]
        return made

    def generate(
        self,
        *tokens: Any,  # noqa: ANN401 - ids or texts
        max_new_tokens: int = 20,
        temperature: float = 0.0,
        top_k: int | None = None,
        seed: int = 0,
        edits: Sequence[Edit] = (),
        stop: int | str | Sequence[int | str] = (),
    ) -> Int[Tensor, "batch pos"]:
        """Continue each row; see :func:`interp.execution.generate.generate`.

        ``stop`` may also hold texts of a single token each, or be one token.
        """
        stops = [stop] if isinstance(stop, int | str) else stop
        ids = [self.to_single_token(one) if isinstance(one, str) else one for one in stops]
        return generate(
            self,
            *tokens,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            seed=seed,
            edits=edits,
            stop=ids,
        )
