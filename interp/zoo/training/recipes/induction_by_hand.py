"""``induction-by-hand``: an induction circuit whose every weight is set, so that truth is known.

No norms, no MLPs; the residual stream is laid out in four parts:

    token      which token stands here                 written by the embedding
    previous   which token stands one before           written by L0H0
    answer     which token should come next            written by L1H0, read by the unembedding
    position   where we are                            written by the position embedding

L0H0 attends from position i to i − 1 and copies token → previous. L1H0 attends from a token to the
positions whose *previous* is that token and copies token → answer; of several it takes the latest,
and of none it rests on BOS and says nothing. All other heads have zero weights. The circuit is
the one that Elhage et al. 2021 found in trained models.
"""

import string

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
from interp.text.tokenizer import Tokenizer
from interp.transformer import Transformer
from interp.zoo.card import Card
from interp.zoo.circuit import Truth
from interp.zoo.training.evaluations.induction import repeated_tokens
from interp.zoo.training.training_run import Made, Workshop

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
"""Score of a match: large, so that the softmax all but picks."""
REST = 80.0
"""Score of BOS for the induction head: where it rests when nothing matches."""
LATER = 1.0
"""Added to the score per position, so that the latest match wins."""
LOUD = 12.0
"""How far the answer's logit stands above the others."""

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

TRUTH = Truth(
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
def build() -> Transformer:
    """The model, weight by weight."""
    model = Transformer(CONFIG, Tokenizer(_letters(), bos=0))
    for weight in model.parameters():
        weight.zero_()
    _set_embeddings(model)
    _set_previous_token_head(model)
    _set_induction_head(model)
    return model.eval()


def _set_embeddings(model: Transformer) -> None:
    tokens, places = torch.eye(len(VOCABULARY)), torch.eye(N_CTX)
    model.W_E[:, TOKEN] = tokens
    model.W_pos[:, POSITION] = places
    model.W_U[ANSWER, :] = LOUD * tokens


def _set_previous_token_head(model: Transformer) -> None:
    """L0H0: the query of position i is the key of position i − 1; token → previous."""
    attn, n = model.blocks[0].attn, len(VOCABULARY)
    attn.W_Q[0, POSITION] = SHARP * torch.eye(N_CTX)
    attn.W_K[0, POSITION] = torch.eye(N_CTX).roll(1, dims=1)
    attn.W_V[0, TOKEN, :n] = torch.eye(n)
    attn.W_O[0, :n, PREVIOUS] = torch.eye(n)


def _set_induction_head(model: Transformer) -> None:
    """L1H0: the query of a token is the key of where it was the previous one; token → answer."""
    attn, n = model.blocks[1].attn, len(VOCABULARY)
    attn.W_Q[0, TOKEN, :n] = SHARP * torch.eye(n)
    attn.W_K[0, PREVIOUS, :n] = torch.eye(n)
    # One more dimension of the head, whose query is always 1: rest on BOS, prefer the latest.
    attn.b_Q[0, n] = 1.0
    attn.W_K[0, POSITION, n] = LATER * torch.arange(N_CTX)
    attn.W_K[0, 0, n] = REST
    attn.W_V[0, TOKEN, :n] = torch.eye(n)
    attn.W_V[0, 0, :] = 0.0
    attn.W_O[0, :n, ANSWER] = torch.eye(n)


def _letters() -> Backend:
    """Letters and digits, one token each; nothing else can be written."""
    vocabulary = {token: index for index, token in enumerate(VOCABULARY)}
    backend = Backend(models.WordLevel(vocabulary))
    backend.add_special_tokens([BOS])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    backend.decoder = decoders.Fuse()
    return backend


def accuracy(model: Transformer, rows: int = 512, half: int = 24, seed: int = 0) -> float:
    """How often the next token of the second saying is the likeliest, on random sequences.

    A sequence of tokens that all differ is said twice; each token of the second saying but the
    last must be followed by its follower of the first.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(rows, len(LETTERS), generator=generator).argsort(-1)[:, :half] + 1
    tokens = torch.cat([torch.zeros(rows, 1, dtype=torch.long), drawn, drawn], dim=1)
    with torch.no_grad():
        said = model(tokens).argmax(-1)
    return (said[:, half + 1 : -1] == tokens[:, half + 2 :]).double().mean().item()


def accuracy_latest(model: Transformer, rows: int = 512, half: int = 24, seed: int = 0) -> float:
    """The same with tokens drawn anew each time: the follower of the latest occurrence is right."""
    tokens = repeated_tokens(range(1, len(VOCABULARY)), rows, half, seed, bos=0)
    with torch.no_grad():
        said = model(tokens).argmax(-1)
    right = total = 0
    for row, answers in zip(tokens.tolist(), said.tolist(), strict=True):
        for i in range(half + 1, len(row)):
            earlier = [j for j in range(1, i + 1) if row[j - 1] == row[i]]
            right, total = right + (answers[i] == row[earlier[-1]]), total + 1
    return right / total


def make(workshop: Workshop) -> Made:
    """Build the model and measure it; there is nothing to train."""
    model = build()
    workshop.report(1, 1, 0.0)
    return Made(
        model,
        Card(
            name=NAME,
            summary="Two attention-only layers with an induction circuit set by hand.",
            circuit=(
                "L0H0 copies the token before into a part of the stream of its own; L1H0 attends "
                "to where that is the present token and writes the token found there. The other "
                "six heads have zero weights."
            ),
            data="None: letters and digits, one token each, and BOS.",
            recipe=f"`interp train {NAME}` sets the weights as the recipe of that name spells out.",
            limits=f"It says nothing of a token that it has not yet seen; {N_CTX} tokens at most.",
            prompts="letters",
            figures={
                "parameters": sum(p.numel() for p in model.parameters()),
                "accuracy on sequences of different tokens": accuracy(model),
                "accuracy on tokens drawn anew": accuracy_latest(model),
            },
            truth=TRUTH,
        ),
    )
