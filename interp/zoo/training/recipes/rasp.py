"""``rasp-*``: four models that compute a program exactly, so that each circuit is known.

``rasp-fraction`` tells the share of "a" among the tokens so far, ``rasp-duplicates`` whether this
token has been there before: both are causal. ``rasp-reverse`` says the row backwards,
``rasp-histogram`` how often this token is in the row: both see the whole row.
"""

import random
from collections.abc import Callable
from functools import partial
from operator import eq

import torch
from jaxtyping import Int
from torch import Tensor

from interp.transformer import Transformer
from interp.zoo.card import Card
from interp.zoo.training.rasp.compiler import compile_program
from interp.zoo.training.rasp.program import (
    Aggregate,
    Count,
    Map,
    Positions,
    Program,
    Select,
    Share,
    Tokens,
    Value,
)
from interp.zoo.training.training_run import Made, Workshop

LONGEST = 10
ALPHABET = ("a", "b", "c", "d", "e")


def _is_a(token: Value) -> bool:
    return token == "a"


def _mark(count: Value) -> str:
    """A token that is selected by itself alone has not been there before."""
    return "new" if count in (0, 1) else "seen"


def _opposite(length: Value, place: Value) -> int:
    """The place as far from the end as this one is from the beginning; 0 beyond the end."""
    return max(0, int(length) + 1 - int(place))


def _same(value: Value) -> Value:
    return value


def _anything(key: Value, query: Value) -> bool:  # noqa: ARG001 - whatever they are
    return True


TOKENS, POSITIONS = Tokens(ALPHABET), Positions(LONGEST)
IS_A = Map(_is_a, (TOKENS,))
SHARE_OF_A = Share(Select(IS_A, TOKENS, _anything), IS_A, bool, LONGEST)
HOW_OFTEN = Count(Select(TOKENS, TOKENS, eq), LONGEST)
LENGTH = Map(_same, (Count(Select(TOKENS, TOKENS, _anything), LONGEST),))
OPPOSITE = Map(_opposite, (LENGTH, POSITIONS))
BACKWARDS = Aggregate(Select(POSITIONS, OPPOSITE, eq), TOKENS)

PROGRAMS = (
    Program("rasp-fraction", Map(_same, (SHARE_OF_A,)), causal=True, longest=LONGEST),
    Program("rasp-duplicates", Map(_mark, (HOW_OFTEN,)), causal=True, longest=LONGEST),
    Program("rasp-reverse", BACKWARDS, causal=False, longest=LONGEST),
    Program("rasp-histogram", Map(_same, (HOW_OFTEN,)), causal=False, longest=LONGEST),
)

SUMMARIES = {
    "rasp-fraction": 'The share of "a" among the tokens so far, set by hand.',
    "rasp-duplicates": "Whether a token has been there before, set by hand.",
    "rasp-reverse": "A row of letters backwards, set by hand.",
    "rasp-histogram": "How often a letter is in its row, set by hand.",
}


def make(program: Program, workshop: Workshop) -> Made:
    """Compile the program and hold the model against it; there is nothing to train."""
    model, truth = compile_program(program)
    wrong = mistakes(model, program, rows=10_000)
    workshop.report(1, 1, 0.0)
    return Made(
        model,
        Card(
            name=program.name,
            summary=SUMMARIES[program.name],
            circuit="Set by a compiler, so that it is known; all other heads have zero weights.",
            data=f"None: the letters {', '.join(ALPHABET)}, the values that it gives, and BOS.",
            recipe=f"`interp train {program.name}` compiles the program of that name.",
            limits=f"Rows of up to {LONGEST} letters, without padding inside.",
            prompts=program.name,
            metric="logit-diff",
            figures={
                "parameters": sum(p.numel() for p in model.parameters()),
                "rows compared with the program": 10_000,
                "rows with a difference": wrong,
            },
            truth=truth,
        ),
    )


def random_rows(rows: int, seed: int = 0) -> list[str]:
    """Random rows of letters, 1 to ``LONGEST`` long."""
    draw = random.Random(seed)
    return ["".join(draw.choices(ALPHABET, k=draw.randint(1, LONGEST))) for _ in range(rows)]


def answers(model: Transformer, texts: list[str]) -> list[list[str]]:
    """The likeliest token at each letter of each row, as text."""
    tokens: Int[Tensor, "batch pos"] = model.to_tokens(texts)
    with torch.no_grad():
        said = model(tokens).argmax(-1)
    names = [model.to_string(torch.tensor([token])) for token in range(model.config.d_vocab)]
    return [
        [str(names[token]) for token in row[1 : 1 + len(text)]]
        for row, text in zip(said.tolist(), texts, strict=True)
    ]


def mistakes(model: Transformer, program: Program, rows: int, seed: int = 0) -> int:
    """In how many random rows the model says anything but what the program says."""
    texts = random_rows(rows, seed)
    said = answers(model, texts)
    return sum(
        told != [str(value) for value in program(text)]
        for told, text in zip(said, texts, strict=True)
    )


RECIPES: dict[str, Callable[[Workshop], Made]] = {
    program.name: partial(make, program) for program in PROGRAMS
}
