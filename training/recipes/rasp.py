"""``rasp-*``: four models compiled from programs, so that each circuit is known.

rasp-fraction     the share of "a" among the tokens so far        causal
rasp-duplicates   whether the current token occurred before       causal
rasp-reverse      the row in reverse order                        bidirectional
rasp-histogram    how often the current token occurs in the row   bidirectional
"""

import random
from collections.abc import Callable
from functools import partial
from operator import eq

import torch
from jaxtyping import Int
from torch import Tensor

from interp.transformer import Transformer
from interp.zoo import Card
from training.evaluations.live_edges import pairs_of, with_live_edges
from training.rasp.compiler import compile_program
from training.rasp.program import (
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
from training.training_run import BuiltModel, TrainingRun, parameter_count

LONGEST = 10
ALPHABET = ("a", "b", "c", "d", "e")


def _is_a(token: Value) -> bool:
    return token == "a"


def _mark(count: Value) -> str:
    """``seen`` if a token occurred before: it then selects other positions than its own."""
    return "new" if count in (0, 1) else "seen"


def _opposite(length: Value, position: Value) -> int:
    """The position as far from the end as this one is from the beginning; 0 beyond the end."""
    return max(0, int(length) + 1 - int(position))


def _same(value: Value) -> Value:
    return value


def _anything(key: Value, query: Value) -> bool:  # noqa: ARG001 - matches every pair
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
    "rasp-fraction": 'The share of "a" among the letters so far, compiled from a program.',
    "rasp-duplicates": "Whether a letter occurred before, compiled from a program.",
    "rasp-reverse": "A row of letters in reverse order, compiled from a program.",
    "rasp-histogram": "How often a letter occurs in its row, compiled from a program.",
}


def build(program: Program, run: TrainingRun) -> BuiltModel:
    """Compile the program and compare the model with it; nothing is trained."""
    model, circuit = compile_program(program)
    differing = mistakes(model, program, rows=10_000)
    run.report(1, 1, 0.0)
    pairs = f"{program.name}-pairs"
    return BuiltModel(
        model,
        Card(
            name=program.name,
            summary=SUMMARIES[program.name],
            mechanism=(
                "The weights are set by a compiler, so the circuit is known. Heads outside the "
                "circuit have zero weights."
            ),
            data=(
                f"None. The vocabulary is the letters {', '.join(ALPHABET)}, the output values, "
                "and BOS."
            ),
            recipe=f"`python -m training {program.name}` compiles the program of that name.",
            limits=f"It reads rows of at most {LONGEST} letters, without padding between them.",
            prompts=program.name,
            metric="logit-diff",
            figures={
                "parameters": parameter_count(model),
                "rows compared with the program": 10_000,
                "rows that differ": differing,
            },
            circuit=with_live_edges(circuit, model, pairs_of(model, pairs)),
            pairs=pairs,
            trained_tokens=tuple(map(model.to_single_token, ALPHABET)),
        ),
    )


def random_rows(rows: int, seed: int = 0) -> list[str]:
    """Random rows of 1 to ``LONGEST`` letters."""
    draw = random.Random(seed)
    return ["".join(draw.choices(ALPHABET, k=draw.randint(1, LONGEST))) for _ in range(rows)]


def answers(model: Transformer, texts: list[str]) -> list[list[str]]:
    """The most likely token at each letter of each row, as text."""
    tokens: Int[Tensor, "batch pos"] = model.to_tokens(texts)
    with torch.no_grad():
        predicted = model(tokens).argmax(-1)
    names = [model.to_string(torch.tensor([token])) for token in range(model.config.d_vocab)]
    return [
        [str(names[token]) for token in row[1 : 1 + len(text)]]
        for row, text in zip(predicted.tolist(), texts, strict=True)
    ]


def mistakes(model: Transformer, program: Program, rows: int, seed: int = 0) -> int:
    """The number of random rows on which model and program differ."""
    texts = random_rows(rows, seed)
    return sum(
        row != [str(value) for value in program(text)]
        for row, text in zip(answers(model, texts), texts, strict=True)
    )


RECIPES: dict[str, Callable[[TrainingRun], BuiltModel]] = {
    program.name: partial(build, program) for program in PROGRAMS
}
