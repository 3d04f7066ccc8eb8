"""Text generation: one token at a time, with a KV cache.

Edits apply to every forward of the loop; the result is the same as running the whole text again for
each token. If running only the new token would differ (an edit reads other positions or counts them
from the end, or frequencies depend on the length of the text), the whole text is run for each
token.
"""

from collections.abc import Sequence
from numbers import Real
from operator import index

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.edits import Edit
from interp.errors import InvalidInput, InvalidTokens, NotANumber, shorten
from interp.execution.plan import plan_of_edits
from interp.execution.recorder import Recorder
from interp.integers import as_seed, at_least
from interp.io import check_cancelled
from interp.model import Batch, Context, KVCache, Network


def generate(  # noqa: PLR0913 - each is a setting of its own
    model: Network,
    *tokens: object,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int = 0,
    edits: Sequence[Edit] = (),
    stop: Sequence[int] = (),
) -> Int[Tensor, "batch pos"]:
    """Continue each row.

    Args:
        model: a model with a decoder.
        *tokens: ids ``[batch pos]``; for an encoder–decoder the source, and the target's
            first tokens if they are not ``config.tokens.decoder_start``. If the model has token
            types, new tokens have the type of the last one.
        max_new_tokens: maximum number of tokens to add.
        temperature: logits are divided by it before sampling; 0 takes the most probable token.
        top_k: sample from the k most probable tokens only.
        seed: seed of the sampling; the same seed gives the same text.
        edits: edits to apply in every forward.
        stop: ids of tokens that end a row, in addition to ``config.tokens.eos`` and
            ``config.tokens.stop``.

    Returns:
        ``[batch pos]``: the prompt (padded on the left) and the new tokens, with ``PAD`` after the
        token that ends a row.

    Raises:
        InvalidTokens: prompt and new tokens together exceed the context, or an id of ``stop`` is
            outside the vocabulary.
        InvalidInput: the model has no decoder, or a setting is out of range.
    """
    _check_numbers(max_new_tokens, temperature, top_k, seed)
    ends = end_tokens(model, stop)
    *sources, prompt = model.check(*with_start(model, tokens))
    batch = prompt.padded_left()
    check_can_continue(model, batch, max_new_tokens)
    recorder = Recorder(plan_of_edits(model, edits))
    generator = torch.Generator(model.device).manual_seed(index(seed))
    ended = torch.zeros(len(batch.ids), dtype=torch.bool, device=batch.ids.device)
    with torch.no_grad():
        next_logits = _NextLogits(model, sources, recorder, edits)
        for _ in range(max_new_tokens):
            new = sample(next_logits(batch), temperature, top_k, generator)
            check_cancelled()
            batch = _append(batch, new, ended)
            ended = ended | torch.isin(new, ends)
            if bool(ended.all()):
                break
    return batch.tokens


def sample(
    logits: Float[Tensor, "batch vocab"],
    temperature: float,
    top_k: int | None,
    generator: torch.Generator,
) -> Int[Tensor, " batch"]:
    """One token per row: the argmax at temperature 0, else drawn from softmax(logits / T)."""
    if bool(logits.isnan().any()):
        raise NotANumber("The logits are NaN, so no token can be sampled.")
    if temperature == 0:
        return logits.argmax(-1)
    if top_k is not None:
        least = logits.topk(min(top_k, logits.shape[-1]), dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    highest = logits.max(-1, keepdim=True).values
    probabilities = ((logits - highest).double() / temperature).softmax(-1)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)


class _NextLogits:
    """The logits at the last column of a growing batch."""

    def __init__(
        self, model: Network, sources: list[Batch], recorder: Recorder, edits: Sequence[Edit]
    ) -> None:
        self._model, self._recorder = model, recorder
        reusable = not model.needs_length and all(edit.pointwise for edit in edits)
        self._kv_cache = KVCache() if reusable else None
        self._n_cached = 0
        self._encoder_real = sources[-1].real if sources else None
        self._encoder_output = self._encode(sources)

    def _encode(self, sources: list[Batch]) -> Tensor | None:
        output: Tensor | None = None
        for stack, batch in zip(self._model.stacks, sources, strict=False):
            context = Context.of(batch)
            output = stack(batch, context, self._recorder.scoped(stack=stack.name, context=context))
        return output

    def __call__(self, batch: Batch) -> Float[Tensor, "batch vocab"]:
        stack = self._model.stacks[-1]
        context = Context.of(batch, self._n_cached, self._kv_cache, self._encoder_real)
        context = context.with_encoder(self._encoder_output)
        tap = self._recorder.scoped(stack=stack.name, context=context)
        stream = stack(batch, context, tap)
        if self._kv_cache is not None:
            self._n_cached = batch.ids.shape[1]
            stream = stream[:, -1:]
        logits = self._model.unembed(stream, tap)[:, -1]
        self._recorder.check_applied()
        return logits


def check_can_continue(model: Network, prompts: Batch, new_tokens: int) -> None:
    """Make sure that a model generates text, and has room for new tokens after each prompt.

    Raises:
        InvalidInput: it has no decoder.
        InvalidTokens: a prompt and the new tokens exceed the context.
    """
    if not model.config.unembeds or model.config.n_classes is not None:
        raise InvalidInput("This model has no unembedding and can't predict the next token.")
    if not model.config.is_causal:
        raise InvalidInput(
            "An encoder, or a decoder without its mask, attends in both directions and can't "
            "continue a text."
        )
    longest = int(prompts.is_real.sum(-1).max())
    if longest + new_tokens > model.config.n_ctx:
        raise InvalidTokens(
            f"A prompt of {longest} tokens and {new_tokens} new ones exceed the context of "
            f"{model.config.n_ctx}; ask for at most {model.config.n_ctx - longest}."
        )


def _check_numbers(
    max_new_tokens: object, temperature: object, top_k: object, seed: object
) -> None:
    counts = {"max_new_tokens": max_new_tokens} | ({} if top_k is None else {"top_k": top_k})
    for name, count in counts.items():
        at_least(1, count, name)
    as_seed(seed)
    check_temperature(temperature)


def check_temperature(temperature: object) -> None:
    """Make sure that tokens can be sampled at a temperature.

    Raises:
        InvalidInput: it is not a nonnegative number.
    """
    # `not >=` also refuses NaN; typeshed's Real has no comparisons.
    if not isinstance(temperature, Real) or not temperature >= 0:  # pyright: ignore[reportOperatorIssue]
        raise InvalidInput(
            f"temperature={shorten(temperature)} must be 0 (the most probable token) or more."
        )


def with_start(model: Network, tokens: tuple[object, ...]) -> tuple[object, ...]:
    """The inputs, with the decoder's start token as target if an encoder–decoder is given none."""
    if len(tokens) != 1 or len(model.stacks) == 1:
        return tokens
    start = model.config.tokens.decoder_start
    if start is None:
        raise InvalidInput(
            "Give the first tokens of the target: config.tokens.decoder_start is None."
        )
    source = model.batch(tokens[0], stack=model.stacks[0].name)
    return (*tokens, torch.full((source.ids.shape[0], 1), start))


def end_tokens(model: Network, stop: Sequence[int] = ()) -> Int[Tensor, " token"]:
    """The ids of all tokens that end a row: those of the configuration, and those of ``stop``.

    Raises:
        InvalidTokens: an id of ``stop`` is outside the vocabulary.
    """
    tokens, d_vocab = model.config.tokens, model.config.d_vocab
    for token in stop:
        if type(token) is not int or not 0 <= token < d_vocab:
            raise InvalidTokens(
                f"stop has {str(token)[:100]!r}; expected ids of tokens, 0..{d_vocab - 1}."
            )
    ends = [*stop, *tokens.stop, *([] if tokens.eos is None else [tokens.eos])]
    return torch.tensor(ends, dtype=torch.long, device=model.device)


def _append(batch: Batch, new: Tensor, ended: Tensor) -> Batch:
    ids = torch.cat([batch.ids, new.where(~ended, 0)[:, None]], dim=-1)
    real = torch.cat([batch.is_real, ~ended[:, None]], dim=-1)
    types = None if batch.types is None else torch.cat([batch.types, batch.types[:, -1:]], dim=-1)
    return Batch(ids, None if bool(real.all()) else real, types)
