"""``induction-by-hand``: an induction circuit with every weight set by hand.

No norms and no MLPs. The residual stream has four subspaces, each with one direction per value:

    token      the current token        written by the embedding
    previous   the previous token       written by L0H0
    answer     the predicted token      written by L1H0, read by the unembedding
    position   the current position     written by the position embedding

L0H0 attends from position i to i − 1 and copies token → previous. L1H0 attends from a token to the
positions whose *previous* is that token and copies token → answer. If there are several such
positions, it attends to the latest; if there is none, it attends to BOS, whose value is zero. All
other heads have zero weights. Elhage et al. 2021 found this circuit in trained models ("A
Mathematical Framework for Transformer Circuits").
"""

import string
from itertools import pairwise

import torch
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from interp.config import (
    NO_NORM,
    AttentionConfig,
    Config,
    PositionsConfig,
    StackConfig,
    TokensConfig,
)
from interp.text import Tokenizer
from interp.transformer import Transformer
from interp.zoo import Card, Circuit
from training.evaluations.induction import repeated_tokens
from training.evaluations.live_edges import Pairs, with_live_edges
from training.training_run import BuiltModel, TrainingRun, parameter_count

NAME = "induction-by-hand"
BOS = "<|bos|>"
LETTERS = string.ascii_letters + string.digits
VOCABULARY = [BOS, *LETTERS]
N_CTX, D_HEAD, N_HEADS = 64, 64, 4

TOKEN = slice(0, 63)
PREVIOUS = slice(63, 126)
ANSWER = slice(126, 189)
POSITION = slice(189, 253)

SHARP = 100.0
"""Score of a match, so large that the softmax is close to one-hot."""
REST = 80.0
"""Score of BOS for the induction head, below that of a match and above all other scores."""
LATER = 1.0
"""Added to the score per position, so that the latest match has the highest score."""
LOUD = 12.0
"""Logit of the answer; the other logits are near 0."""

CONFIG = Config(
    name=NAME,
    d_model=256,
    d_vocab=len(VOCABULARY),
    n_ctx=N_CTX,
    decoder=StackConfig(
        n_layers=2,
        attention=AttentionConfig(n_heads=N_HEADS, d_head=D_HEAD, scale=1.0, bias_o=False),
        norm=NO_NORM,
        positions=PositionsConfig(kind="learned"),
    ),
    tokens=TokensConfig(bos=0, prepend_bos=True),
)

CIRCUIT = Circuit(
    heads=("L0H0", "L1H0"),
    mlps=(),
    edges=(
        ("pos_embed", "L0H0.q"),
        ("pos_embed", "L0H0.k"),
        ("embed", "L0H0.v"),
        ("embed", "L1H0.q"),
        ("embed", "L1H0.k"),
        ("pos_embed", "L1H0.k"),
        ("L0H0", "L1H0.k"),
        ("embed", "L1H0.v"),
        ("L1H0", "logits"),
    ),
)


@torch.no_grad()
def transformer() -> Transformer:
    """The model with its weights set."""
    model = Transformer(CONFIG, Tokenizer(_letters(), bos=0))
    for weight in model.parameters():
        weight.zero_()
    _set_embeddings(model)
    _set_previous_token_head(model)
    _set_induction_head(model)
    return model.eval()


def _set_embeddings(model: Transformer) -> None:
    tokens, positions = torch.eye(len(VOCABULARY)), torch.eye(N_CTX)
    model.W_E[:, TOKEN] = tokens
    model.W_pos[:, POSITION] = positions
    model.W_U[ANSWER, :] = LOUD * tokens


def _set_previous_token_head(model: Transformer) -> None:
    """L0H0: the query of position i matches the key of position i − 1; copies token → previous."""
    attn, n = model.blocks[0].attn, len(VOCABULARY)
    attn.W_Q[0, POSITION] = SHARP * torch.eye(N_CTX)
    attn.W_K[0, POSITION] = torch.eye(N_CTX).roll(1, dims=1)
    attn.W_V[0, TOKEN, :n] = torch.eye(n)
    attn.W_O[0, :n, PREVIOUS] = torch.eye(n)


def _set_induction_head(model: Transformer) -> None:
    """L1H0: a token's query matches keys whose *previous* is that token; copies token → answer."""
    attn, n = model.blocks[1].attn, len(VOCABULARY)
    attn.W_Q[0, TOKEN, :n] = SHARP * torch.eye(n)
    attn.W_K[0, PREVIOUS, :n] = torch.eye(n)
    # In one more dimension of the head, the query is always 1: it adds REST for BOS, and LATER per
    # position.
    attn.b_Q[0, n] = 1.0
    attn.W_K[0, POSITION, n] = LATER * torch.arange(N_CTX)
    attn.W_K[0, 0, n] = REST
    attn.W_V[0, TOKEN, :n] = torch.eye(n)
    attn.W_V[0, 0, :] = 0.0
    attn.W_O[0, :n, ANSWER] = torch.eye(n)


def _letters() -> Backend:
    """One token per letter and digit; other characters can't be encoded."""
    vocabulary = {token: index for index, token in enumerate(VOCABULARY)}
    backend = Backend(models.WordLevel(vocabulary))
    backend.add_special_tokens([BOS])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    backend.decoder = decoders.Fuse()
    return backend


def accuracy(model: Transformer, rows: int = 512, half: int = 24, seed: int = 0) -> float:
    """Accuracy in the second copy of random sequences of distinct tokens.

    The correct prediction is the token that followed the current one in the first copy; the
    prediction at the last token of the second copy is not counted.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(rows, len(LETTERS), generator=generator).argsort(-1)[:, :half] + 1
    tokens = torch.cat([torch.zeros(rows, 1, dtype=torch.long), drawn, drawn], dim=1)
    with torch.no_grad():
        predicted = model(tokens).argmax(-1)
    return (predicted[:, half + 1 : -1] == tokens[:, half + 2 :]).double().mean().item()


def accuracy_latest(model: Transformer, rows: int = 512, half: int = 24, seed: int = 0) -> float:
    """:func:`accuracy` with tokens drawn with replacement.

    The correct prediction is the token that followed the latest earlier occurrence of the current
    one.
    """
    tokens = repeated_tokens(range(1, len(VOCABULARY)), rows, half, seed, bos=0)
    with torch.no_grad():
        predicted = model(tokens).argmax(-1)
    correct = total = 0
    for row, answers in zip(tokens.tolist(), predicted.tolist(), strict=True):
        for i in range(half + 1, len(row)):
            successors = [j for j in range(1, i + 1) if row[j - 1] == row[i]]
            correct, total = correct + (answers[i] == row[successors[-1]]), total + 1
    return correct / total


def pairs() -> Pairs:
    """Rows of repeated letters, each with the next row as its corrupted counterpart."""
    rows = repeated_tokens(range(1, len(VOCABULARY)), rows=13, half=8, seed=5, bos=0).tolist()
    return list(pairwise(rows))


def build(run: TrainingRun) -> BuiltModel:
    """Set the weights and measure the model; nothing is trained."""
    model = transformer()
    run.report(1, 1, 0.0)
    return BuiltModel(
        model,
        Card(
            name=NAME,
            summary="Two attention-only layers with an induction circuit set by hand.",
            mechanism=(
                "L0H0 copies the previous token into a subspace of its own; L1H0 attends to "
                "positions where that is the current token, and writes the token found there. The "
                "other six heads have zero weights."
            ),
            data="None. The vocabulary is letters and digits, one token each, and BOS.",
            recipe=f"`python -m training {NAME}` sets every weight; nothing is trained.",
            limits=(
                "It makes no prediction for a token that has not occurred before. Rows have at "
                f"most {N_CTX} tokens."
            ),
            prompts="letters",
            figures={
                "parameters": parameter_count(model),
                "accuracy on sequences of distinct tokens": accuracy(model),
                "accuracy on sequences drawn with replacement": accuracy_latest(model),
            },
            circuit=with_live_edges(CIRCUIT, model, pairs()),
            trained_tokens=tuple(range(1, len(VOCABULARY))),
        ),
    )
