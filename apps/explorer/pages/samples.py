"""Continuations of the prompt without edits, and why a token of one was written.

A click on a token asks the page Why about it: the prompt is extended by the tokens before it, and
it is the target.
"""

from dataclasses import asdict, replace

import interp
from analyses import Continuations, continuations
from analyses.results import Scale, counted, encoded, fixed, number
from apps.explorer.canvas import Pick, ViewData
from apps.explorer.default_views import with_prompt
from apps.explorer.page import JOBS
from apps.explorer.pages.view_inputs import inputs_of, text_of_token
from apps.explorer.questions import Question, question
from apps.explorer.view import View
from interp.errors import InterpError, InvalidInput
from interp.prompts import Prompt

LEAST_SCALE = 0.01
"""Least upper end of a colour scale, in nats: smaller numbers may be rounding errors."""
WRITTEN = "written"
"""The kind of a click on a token of a sample."""
SAMPLE = "sample_"
"""The start of the id of the view of a sample, before its number."""


def samples_question(view: View, model: interp.Transformer) -> Question:
    """A few continuations of the prompt.

    Raises:
        InvalidInput: the prompt fills the context.
    """
    return question(
        continuations,
        view.model,
        inputs_of(view, model).batch,
        new_tokens=new_tokens_of(view, model),
        samples=view.samples,
        temperature=view.temperature,
    )


def new_tokens_of(view: View, model: interp.Transformer) -> int:
    """The number of new tokens that the view requests, or that fit the context.

    Raises:
        InvalidInput: no new token fits the context.
    """
    room = model.config.n_ctx - len(_ids(model, decoder_text(view, model)))
    if room < 1:
        raise InvalidInput(
            f"The prompt fills the context of {model.config.n_ctx} tokens: it can't be continued."
        )
    return min(view.new_tokens, room)


def decoder_text(view: View, model: interp.Transformer) -> str:
    """The text that is continued: the prompt as the model reads it, or the decoder's prefix."""
    batch = inputs_of(view, model).batch
    texts = batch[1] if isinstance(batch, tuple) else batch
    return texts[0]


def _ids(model: interp.Transformer, text: str) -> list[int]:
    return model.to_tokens(text, stack=model.stacks[-1].name)[0].tolist()


def sample_views(result: Continuations) -> list[ViewData]:
    """A strip of tokens for each sample, on one scale of surprisal."""
    n = result.ended.shape[1]
    surprisal = result.surprisal[0]
    scale = asdict(Scale.from_zero(surprisal[surprisal.isfinite()], LEAST_SCALE))
    drawn: list[ViewData] = []
    for sample in range(n):
        end, loss = int(result.n_tokens[0, sample]), fixed(result.loss[0, sample], 3)
        name = (
            f"Sample {sample + 1} of {n}, temperature {number(result.temperature)}"
            if result.temperature
            else "Greedy continuation"
        )
        ended = " An end-of-text token ends the text." if result.ended[0, sample] else ""
        drawn.append(
            {
                "kind": "tokens",
                "id": f"{SAMPLE}{sample}",
                "title": f"{name}: surprisal of {counted(end, 'new token')}, mean {loss} nats",
                "note": f"Click a token to ask why it was written.{ended}",
                "tokens": result.labels_of(0, sample),
                "ids": result.new_ids[0, sample, :end].tolist(),
                "values": encoded(surprisal[sample, :end]),
                "unit": "nats",
                "scale": scale,
                "pick": WRITTEN,
            }
        )
    return drawn


def why_written(view: View, model: interp.Transformer, pick: Pick) -> View:
    """The page Why, about a token of a sample that was clicked.

    Raises:
        InvalidInput: no text has these tokens, so that a prompt can't end before this one; or the
            click was on the sample of another view, such as a pinned one.
    """
    result = JOBS.run(samples_question(view, model))
    sample, token = str(pick.get("view")).removeprefix(SAMPLE), pick["row"]
    if not isinstance(result, Continuations) or not sample.isdecimal():
        return view
    labels = result.labels_of(0, int(sample)) if int(sample) < result.ended.shape[1] else []
    if token >= len(labels) or pick.get("name", labels[token]) != labels[token]:
        raise InvalidInput("This token is of another sample than those of the current view.")
    ids = result.new_ids[0, int(sample)].tolist()
    text, target = _extended(view, model, ids[:token]), text_of_token(model, ids[token])
    if text is None or target is None:
        raise InvalidInput(
            f"Why {labels[token]!r} was written can't be asked here: a prompt is entered as text, "
            "and no text is read as exactly these tokens. In Python, analyses take token ids."
        )
    prompt = (
        Prompt(text, target=target)
        if len(model.stacks) == 1
        else Prompt(view.text, target=target, prefix=text)
    )
    asked = replace(with_prompt(view, prompt), page="why", prompts="")
    return replace(asked, component="", trail=())


def _extended(view: View, model: interp.Transformer, new: list[int]) -> str | None:
    """The text that is continued, with new tokens at its end; ``None`` if it has other tokens."""
    text = decoder_text(view, model)
    before = _ids(model, text)
    decoded, whole = (str(model.to_string(ids)) for ids in (before, [*before, *new]))
    extended = text + whole.removeprefix(decoded)
    try:
        return extended if _ids(model, extended) == [*before, *new] else None
    except InterpError:
        return None
