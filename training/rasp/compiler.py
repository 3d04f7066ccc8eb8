"""Compiles a program into a Transformer's weights: selects become heads, maps become MLPs.

    A = softmax(SHARP · match)    a head attends to the keys that match its query, and to BOS if no
                                  key matches (a Count always does: BOS then gets 1 / (1 + n))
    relu(x_u)                     1 where the value is u: a map of one operation
    relu(x_u + x_v − 1)           1 where the values are u and v: a map of two operations
    relu((x − a)/d) − relu((x − b)/d), d = b − a
                                  0 up to a and 1 from b on: a map of a number

There are no norms. MLPs write nothing at the position of BOS, so the key of BOS never matches.

Reference: Lindner et al. 2023, "Tracr: Compiled Transformers as a Laboratory for
Interpretability".
"""

import re
from collections.abc import Iterator
from itertools import pairwise, product

import torch
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend
from torch.nn import Module

from interp.config import (
    NO_NORM,
    AttentionConfig,
    Config,
    MLPConfig,
    PositionsConfig,
    StackConfig,
    TokensConfig,
)
from interp.errors import InvalidInput
from interp.model import MLP, Attention
from interp.text import Tokenizer
from interp.transformer import Transformer
from interp.zoo import Circuit
from training.rasp.plan import Gather, Plan, circuit_of, plan_of
from training.rasp.program import Aggregate, Count, Map, Operation, Program
from training.rasp.residual import Residual, words

BOS = "<|bos|>"
N_HEADS = 4
"""Minimum number of heads per layer; unused heads have zero weights."""
SHARP = 2000.0
"""Score of a match, so large that other keys get attention exactly 0, also in float64. Where no key
matches, BOS, with half this score, gets attention 1, and zero is written."""
LOUD = 12.0
"""Logit of the output value; the other logits are 0."""


def compile_program(program: Program) -> tuple[Transformer, Circuit]:
    """The Transformer that computes a program, and its circuit.

    Raises:
        InvalidInput: the program can't be compiled; the message gives the reason.
    """
    plan = plan_of(program)
    model = Transformer(_config(program, plan), _tokenizer(program, plan))
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        _set_ends(model, program, plan)
        for block, heads, maps in zip(model.blocks, plan.heads, plan.maps, strict=True):
            for head, operation in enumerate(heads):
                _set_head(block.attn, head, operation, plan.residual)
            _set_mlp(block.mlp, [n for each in maps for n in _neurons(each, plan.residual)])
    return model.eval(), circuit_of(program, plan)


def _vocabulary(program: Program, plan: Plan) -> list[str]:
    letters = [letter for tokens in plan.tokens for letter in tokens.alphabet]
    labels = [*letters, *words(program.output.domain)]
    if BOS in labels:
        raise InvalidInput(f"{program.name}: {BOS!r} is reserved and can't be a value.")
    return list(dict.fromkeys([BOS, *labels]))


def _config(program: Program, plan: Plan) -> Config:
    gathers = [operation for layer in plan.heads for operation in layer]
    keys = [len(operation.select.keys.domain) + 1 for operation in gathers]
    values = [len(o.domain) for o in gathers if isinstance(o, Aggregate)]
    neurons = [sum(len(list(_neurons(m, plan.residual))) for m in maps) for maps in plan.maps]
    heads = max(N_HEADS, *(len(layer) for layer in plan.heads))
    stack = StackConfig(
        n_layers=len(plan.heads),
        attention=AttentionConfig(heads, max([1, *keys, *values]), scale=1.0, bias_o=False),
        mlp=MLPConfig(max([1, *neurons]), "relu", bias_out=False),
        norm=NO_NORM,
        positions=PositionsConfig(kind="learned"),
    )
    return Config(
        name=program.name,
        d_model=plan.residual.width,
        d_vocab=len(_vocabulary(program, plan)),
        n_ctx=program.longest + 1,
        decoder=stack if program.causal else None,
        encoder=None if program.causal else stack,
        tokens=TokensConfig(bos=0, prepend_bos=True),
    )


def _tokenizer(program: Program, plan: Plan) -> Tokenizer:
    """One token per letter and per output value; other text can't be encoded.

    Text that consists of letters is encoded as letters, even where it is also an output value.
    """
    vocabulary = _vocabulary(program, plan)
    letters = [re.escape(letter) for tokens in plan.tokens for letter in tokens.alphabet]
    rows = re.compile(f"({'|'.join(letters)})+")
    others = [re.escape(word) for word in vocabulary if not rows.fullmatch(word)]
    longest_first = sorted(others, key=len, reverse=True) + letters
    backend = Backend(models.WordLevel({word: index for index, word in enumerate(vocabulary)}))
    backend.add_special_tokens([BOS])
    backend.pre_tokenizer = pre_tokenizers.Split(
        Regex("|".join([*longest_first, "."])), behavior="isolated"
    )
    backend.decoder = decoders.Fuse()
    return Tokenizer(backend, bos=0)


def _set_ends(model: Transformer, program: Program, plan: Plan) -> None:
    """Set the embeddings, and the unembedding of the output."""
    residual, vocabulary = plan.residual, _vocabulary(program, plan)
    model.W_E[0, residual.BOS] = 1.0
    for tokens in plan.tokens:
        for letter in tokens.alphabet:
            model.W_E[vocabulary.index(letter), residual.at(tokens, letter)] = 1.0
    for positions in plan.positions:
        model.W_pos[1:, residual.of(positions)] = torch.eye(program.longest)
    for value in program.output.domain:
        direction = residual.at(program.output, value)
        model.W_U[direction, vocabulary.index(str(value))] = LOUD


def _set_head(attn: Attention, head: int, operation: Gather, residual: Residual) -> None:
    """Set a head: score SHARP where key and query match; for BOS SHARP / 2, or SHARP in a Count."""
    select, n_keys = operation.select, len(operation.select.keys.domain)
    for (row, query), (column, key) in product(
        enumerate(select.queries.domain), enumerate(select.keys.domain)
    ):
        matches = SHARP if select.match(key, query) else 0.0
        attn.W_Q[head, residual.of(select.queries).start + row, column] = matches
    attn.W_K[head, residual.of(select.keys), :n_keys] = torch.eye(n_keys)
    attn.b_Q[head, n_keys] = 1.0
    counts = isinstance(operation, Count)
    attn.W_K[head, residual.BOS, n_keys] = SHARP if counts else SHARP / 2
    out = residual.of(operation)
    if isinstance(operation, Aggregate):
        size = len(operation.domain)
        attn.W_V[head, residual.of(operation.values), :size] = torch.eye(size)
        attn.W_O[head, :size, out] = torch.eye(size)
        return
    attn.W_O[head, 0, out] = 1.0
    if isinstance(operation, Count):
        attn.W_V[head, residual.BOS, 0] = 1.0
        return
    for value in operation.values.domain:
        attn.W_V[head, residual.at(operation.values, value), 0] = float(operation.of(value))


def _set_mlp(mlp: Module, neurons: "list[Neuron]") -> None:
    if not isinstance(mlp, MLP) or mlp.b_in is None:
        raise TypeError(f"A map compiles to an MLP with biases, not to a {type(mlp).__name__}.")
    for index, (reads, bias, writes) in enumerate(neurons):
        mlp.b_in[index] = bias
        for direction, weight in reads.items():
            mlp.W_in[direction, index] = weight
        for direction, weight in writes.items():
            mlp.W_out[index, direction] = weight


Neuron = tuple[dict[int, float], float, dict[int, float]]
"""Input weights by direction, bias, output weights by direction."""


def _neurons(operation: Map, residual: Residual) -> Iterator[Neuron]:
    """The neurons that compute a map."""
    if operation.of[0].codes is not None:
        yield from _steps(operation, operation.of[0], operation.of[0].codes, residual)
        return
    for values in product(*(operand.domain for operand in operation.of)):
        pairs = zip(operation.of, values, strict=True)
        reads = {residual.at(operand, value): 1.0 for operand, value in pairs}
        out = residual.at(operation, operation.fn(*values))
        yield reads, 1.0 - len(reads), {out: 1.0}


def _steps(
    operation: Map, source: Operation, codes: tuple[float, ...], residual: Residual
) -> Iterator[Neuron]:
    """A step function of a number: at each step it subtracts one value and adds the next."""
    number = residual.of(source).start
    ladder = sorted(
        (code, operation.fn(value)) for code, value in zip(codes, source.domain, strict=True)
    )
    yield {residual.BOS: -1.0}, 1.0, {residual.at(operation, ladder[0][1]): 1.0}
    for (low, before), (high, after) in pairwise(ladder):
        if before == after:
            continue
        rise = (high - low) / 2
        change = {residual.at(operation, after): 1.0, residual.at(operation, before): -1.0}
        for start, sign in ((low + rise / 2, 1.0), (low + 1.5 * rise, -1.0)):
            # No number exceeds 1, so the neuron is 0 at the position of BOS.
            reads = {number: 1 / rise, residual.BOS: -2 / rise}
            writes = {direction: sign * by for direction, by in change.items()}
            yield reads, -start / rise, writes
