"""The model of the public API: predictions, views of its weights, TransformerLens's methods."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.cache import Cache
from interp.edits import Apply, Edit, Hook
from interp.errors import InvalidInput, UnknownPlace, first_line, shorten
from interp.execution import generate, run, run_edited, with_start
from interp.integers import at_least
from interp.io import as_path
from interp.metrics import Position, as_position, batch_loss
from interp.names import Request
from interp.points import PlaceLike
from interp.transformer.predictions import Top, column_of_prompt, next_token_loss, top_of
from interp.transformer.text_network import TextNetwork

HookFunction = Callable[[Tensor, Hook], Tensor | None]
HookName = PlaceLike | Callable[[str], bool]


class Transformer(TextNetwork):
    """A Transformer in residual-stream form: every activation can be read and edited.

    Args:
        config: the architecture.
        tokenizer: encodes and decodes text; without one, the model only takes token ids.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> model.to_tokens("abcab")
        tensor([[0, 1, 2, 3, 1, 2]])
        >>> model.to_string(model.generate("abcab", max_new_tokens=4))
        ['<|bos|>abcabcabc']
    """

    def to(self, *args: Any, **kwargs: Any) -> "Transformer":  # noqa: ANN401 - as torch.nn.Module.to
        """Move the model to a device or dtype, as :meth:`torch.nn.Module.to` does.

        Raises:
            InvalidInput: the device does not exist.
        """
        try:
            return super().to(*args, **kwargs)
        except torch.OutOfMemoryError:
            raise
        except (AssertionError, RuntimeError) as error:
            raise InvalidInput(f"The model can't be moved: {first_line(error)}.") from error

    # ---- predictions ----------------------------------------------------------------------------

    def loss(
        self,
        *tokens: Any,  # noqa: ANN401 - ids or texts
        per_token: bool = False,
        keep_graph: bool = False,
        mask: object = None,
    ) -> Float[Tensor, ""] | Float[Tensor, "batch prediction"]:
        """Next-token cross-entropy in nats.

        Args:
            *tokens: as for ``model(...)``.
            per_token: whether to return the loss of each prediction ``[batch pos-1]`` (NaN at
                padding) instead of the mean over all predictions of the batch.
            keep_graph: whether the loss keeps its autograd graph, so that it can be differentiated
                with respect to the weights.
            mask: as for ``model(...)``.

        Raises:
            InvalidInput: the model predicts no next token, or every prompt is a single token, so
                that there is nothing to average.
        """
        batches = self.check(*tokens, mask=mask)
        with torch.set_grad_enabled(keep_graph):
            logits = self.unembed(self.stream(batches))
            return next_token_loss(self.config, logits, batches[-1], per_token=per_token)

    def top(
        self,
        prompt: Any,  # noqa: ANN401 - a text or ids, checked
        k: int = 10,
        *,
        answer: str | int | None = None,
        target: Any = None,  # noqa: ANN401 - likewise
        pos: Position = None,
    ) -> Top:
        """The most probable tokens after a prompt, as a table with ranks and probabilities.

        Args:
            prompt: one text, or one row of ids.
            k: number of tokens.
            answer: a token whose rank is also reported: a text that is exactly one token, or an id.
            target: the input of the decoder of an encoder–decoder; by default its start token.
            pos: the position whose prediction is read; by default the position of an encoder's
                mask token, if the prompt has one, else the last.

        Raises:
            InvalidInput: there are several prompts, or the model has no logits.
        """
        n, position = at_least(1, k, "k"), as_position(pos)
        if not self.config.unembeds:
            raise InvalidInput("This model has no logits: it predicts no token.")
        wanted = None if answer is None else self._token_id(answer, "answer")
        inputs = (prompt,) if target is None else (prompt, target)
        batches = self.check(*with_start(self, inputs))
        column = column_of_prompt(batches[-1], position)
        with torch.no_grad():
            logits = self.unembed(self.stream(batches))[0, column]
        return top_of(logits, n, wanted, self.label)

    # ---- saving ----------------------------------------------------------------------------------

    def save(self, folder: str | Path, dtype: torch.dtype | None = None) -> None:
        """Write the model to a folder, from which :func:`interp.load` loads the same model.

        Weights, tokenizer and configuration are bit-identical. The folder contains ``config.json``,
        ``model.safetensors``, ``tokenizer.json``, ``chat_templates.json`` if there are any, and a
        manifest; it is replaced atomically, and only if this package wrote all files in it.

        Args:
            folder: created if missing.
            dtype: dtype of the stored weights; ``None`` keeps that of the model. In either case the
                model is loaded in the dtype that it has now.

        Raises:
            InvalidInput: the folder has files that this package did not write.
            OutOfResources: the folder can't be written, or another process is writing it.
        """
        import_module("interp.saved").save_folder(self, as_path(folder), dtype)

    # ---- views of the weights -----------------------------------------------------------------

    def processed(
        self,
        *,
        fold_norms: bool = True,
        center_writing: bool = True,
        center_unembed: bool = True,
        fold_value_biases: bool = True,
    ) -> "Transformer":
        """A new model with the same function, whose weights are easier to interpret.

        It has the same logits, or the same log-probabilities if ``center_unembed`` is set. Tied
        weights are untied.

        Args:
            fold_norms: gains and biases of the norms before sub-layers and the unembedding are
                multiplied into the matrices that read them, and become 1 and 0.
            center_writing: embeddings, W_O, b_O, W_out and b_out get mean zero over d_model.
            center_unembed: W_U and b_U get mean zero over the vocabulary.
            fold_value_biases: b_V becomes 0, and its effect is added to b_O.

        Raises:
            InvalidInput: some steps would change what this model computes; the message names all of
                them, for which ``False`` must be passed.
        """
        made = import_module("interp.weights").processed(
            self,
            norms=fold_norms,
            writing=center_writing,
            unembed=center_unembed,
            value_biases=fold_value_biases,
        )
        made.tokenizer, made.agreement = self.tokenizer, self.agreement
        return made

    def without(self, *, mask: bool = False, positions: bool = False) -> "Transformer":
        """A view of the same weights without its mask, without positions, or both.

        Parameters are shared: training or moving one model trains or moves the other. With neither
        mask nor positions, tokens are a set: permuting them permutes the logits. A model without
        its mask predicts no next token (``config.is_causal`` is False), and so has no next-token
        loss. Removing a part that the model does not have is not an error.

        Args:
            mask: whether to remove masks, so that every query attends to every key, including later
                ones and those outside windows.
            positions: whether to remove positions: learned, sinusoidal, rotary or biases.

        Raises:
            InvalidInput: neither is to be removed, or weights are parametrized.
        """
        made = import_module("interp.weights").stripped(self, mask=mask, positions=positions)
        made.tokenizer = self.tokenizer
        return made

    # ---- TransformerLens's methods -------------------------------------------------------------

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
            *tokens: as for ``model(...)``.
            names_filter: ``"all"``, a place, several, or a function of the hook name.
            stop_at_layer: end before this layer.
            incl_bwd: whether to record gradients of the next-token loss, as ``cache["z_grad", 0]``.
                As in TransformerLens, the loss is the mean over all predictions of the batch, as in
                a training step; ``run(gradients_of=)`` gives gradients of a metric's sum over
                prompts.
            mask: as for ``model(...)``.
        """
        record = "all" if names_filter is None else names_filter
        done = run(
            self,
            *tokens,
            record=record,
            stop_at_layer=stop_at_layer,
            gradients_of=batch_loss if incl_bwd else None,
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

        A name may be a function of hook names, which selects every hook for which it is true. The
        forward continues with the result of ``fn``, or, if this is ``None``, with the tensor passed
        to it, including in-place changes. Gradients are recorded as in the caller's grad mode.

        Raises:
            UnknownPlace: a name is misspelt; raised before the forward.
            HookFailed: ``fn`` raised an error; nothing stays attached to the model.
        """
        return run_edited(self, *tokens, edits=self._as_edits(fwd_hooks), mask=mask)

    def _as_edits(self, hooks: object) -> list[Edit]:
        made: list[Edit] = []
        for name, fn in _pairs(hooks):
            if callable(name):
                names = [hook for hook in self.names.hooks.values() if name(hook)]
                if not names:
                    raise UnknownPlace("The name filter of a hook accepts no place of this model.")
            else:
                names = [self.names.hooks[self.names.resolve(name)]]
            made += [Apply((hook,), fn=fn) for hook in names]
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
        """Continue each row; see :func:`interp.execution.generate`.

        ``stop`` may also be a single token, and its elements may be texts of one token each.
        """
        stops = [stop] if isinstance(stop, int | str) else stop
        ids = [self.to_single_token(stop) if isinstance(stop, str) else stop for stop in stops]
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


def _pairs(hooks: Any) -> list[tuple[Any, HookFunction]]:  # noqa: ANN401 - checked here
    """Checked pairs of names and functions.

    Raises:
        InvalidInput: an element is not a pair of a name and a function.
    """
    pairs: list[tuple[Any, HookFunction]] = []
    for pair in hooks if isinstance(hooks, list | tuple) else [hooks]:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not callable(pair[1]):  # noqa: PLR2004
            raise InvalidInput(
                f"fwd_hooks= takes a list of pairs (name, function); got {shorten(pair)}."
            )
        name, function = pair
        pairs.append((name, function))  # pyright: ignore[reportArgumentType] - checked when called
    return pairs
