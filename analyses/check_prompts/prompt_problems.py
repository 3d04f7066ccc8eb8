"""Problems of a prompt that keep a model from reading it: length, targets, corrupted text."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from analyses.methods.components import aligned_prompts
from interp.errors import InvalidInput, InvalidTokens, shorten
from interp.model import TokenInput
from interp.prompts import Prompt
from interp.transformer import TextNetwork

LENGTH = "length"
"""The field of a problem where texts differ in length but should not."""
SHOWN, MOST = 4, 16
"""Number of tokens shown in a message: of the differing part of a text, and of a whole text."""


class Problem(NamedTuple):
    """A problem of a prompt.

    Attributes:
        source: where the prompt was read.
        field: the field that has the problem; ``length`` if texts differ in length.
        problem: description of the problem.
    """

    source: str
    field: str
    problem: str


class LengthOf:
    """Checks the lengths of texts, and counts them.

    Attributes:
        context: length of the longest text that the model reads, in tokens.
        counts: number of texts of each length.
    """

    def __init__(self, model: TextNetwork, *, same: bool) -> None:
        self.model, self.same = model, same
        self.counts = Counter[int]()
        self.first: int | None = None
        read_by = model.stacks[0].input
        if not isinstance(read_by, TokenInput):
            raise InvalidInput("This model reads images, not prompts of text.")
        self.context = read_by.n_ctx

    def problems(self, prompt: Prompt) -> list[tuple[str, str]]:
        """The problems of a text's length: the field, and a description."""
        try:
            n = len(self.model.to_tokens(prompt.text)[0])
        except InvalidTokens as error:
            return [("text", str(error))]
        self.counts[n] += 1
        if n > self.context:
            return [("text", f"{n} tokens, over the model's context of {self.context}")]
        self.first = self.first or n
        if self.same and n != self.first:
            tokens = _first_labels(self.model.to_labels(prompt.text), MOST)
            return [(LENGTH, f"{n} tokens, the first prompt has {self.first}: {tokens}")]
        return []


def problems_of(model: TextNetwork, prompt: Prompt, length_of: LengthOf) -> list[Problem]:
    """All problems of a prompt."""
    problems: list[tuple[str, str | None]] = [*length_of.problems(prompt)]
    if not any(field == "text" for field, _ in problems):
        problems.append(_text_problem(model, prompt))
        problems.append(("corrupt", _alignment_problem(model, prompt)))
    if len(model.stacks) == 1 or prompt.prefix is not None:
        problems += [(field, _token_problem(model, getattr(prompt, field))) for field in TOKENS]
        if all(text is None for field, text in problems if field in TOKENS):
            problems.append(("distractor", _distractor_problem(model, prompt)))
    return [Problem(prompt.source, field, text) for field, text in problems if text is not None]


TOKENS = ("target", "distractor")
"""The fields that are single tokens."""


def _text_problem(model: TextNetwork, prompt: Prompt) -> tuple[str, str | None]:
    """The field and description of another problem of a text: of its decoder text or its masks."""
    paired = len(model.stacks) > 1
    try:
        text = prompt.text
        *_, last = model.batches(([text], [prompt.decoder_text]) if paired else text)
    except InvalidInput as error:
        return "prefix" if paired else "text", _without_source(error, prompt)
    if last.masked is not None and int(last.masked.sum()) > 1:
        n = int(last.masked.sum())
        return "text", f"{n} mask tokens; the prediction is read at a single one"
    return "text", None


def _alignment_problem(model: TextNetwork, prompt: Prompt) -> str | None:
    """Why the corrupted text is not aligned with the text; ``None`` if it is."""
    if prompt.corrupt is None:
        return None
    try:
        labels, corrupt_labels = model.to_labels(prompt.text), model.to_labels(prompt.corrupt)
        if len(labels) != len(corrupt_labels):
            pairs = enumerate(zip(labels, corrupt_labels, strict=False))
            shorter = min(len(labels), len(corrupt_labels))
            first = next(
                (i for i, (label, corrupt_label) in pairs if label != corrupt_label), shorter
            )
            return (
                f"{len(corrupt_labels)} tokens, the text has {len(labels)}; from position {first}: "
                f"{_first_labels(corrupt_labels[first:])} against {_first_labels(labels[first:])}"
            )
        aligned_prompts(model, [prompt])
    except InvalidInput as error:
        return _without_source(error, prompt)
    return None


def _token_problem(model: TextNetwork, text: str | None) -> str | None:
    """Why a text is not a single token; ``None`` if it is."""
    if text is None or model.tokenizer is None:
        return None
    try:
        ids = model.tokenizer.encode(text)
        if len(ids) != 1:
            pieces = model.tokenizer.display(ids)
            return f"{shorten(text)} splits into {len(ids)} tokens: {_first_labels(pieces)}"
        model.to_single_token(text)
    except InvalidTokens as error:
        return str(error)
    return None


def _distractor_problem(model: TextNetwork, prompt: Prompt) -> str | None:
    if prompt.target is None or prompt.distractor is None:
        return None
    if model.to_single_token(prompt.target) != model.to_single_token(prompt.distractor):
        return None
    return f"{shorten(prompt.distractor)} is the same token as the target"


def _first_labels(labels: Sequence[str], most: int = SHOWN) -> str:
    """The first ``most`` labels of tokens, as one text."""
    if not labels:
        return "nothing"
    return " ".join([*labels[:most], *(["…"] if len(labels) > most else [])])


def _without_source(error: InvalidInput, prompt: Prompt) -> str:
    return str(error).removeprefix(prompt.source).lstrip(": ")
