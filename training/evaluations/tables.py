"""The loss of a model on held-out text, and the losses of unigram and bigram tables as baselines.

A loss below that of the bigram table shows that a model uses more context than the current token.
"""

from math import log

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InvalidInput
from interp.metrics import next_token_losses
from interp.model import Batch
from interp.transformer import Transformer


def held_out_loss(
    model: Transformer, tokens: Int[Tensor, " token"], width: int = 128, rows: int = 64
) -> float:
    """Mean next-token loss in nats over consecutive windows of ``width`` tokens, BOS first.

    The token after BOS has no context and is not counted.
    """
    bos = model.config.tokens.bos or 0
    windows = tokens[: len(tokens) // (width - 1) * (width - 1)].view(-1, width - 1).long()
    windows = torch.cat([torch.full((len(windows), 1), bos), windows], dim=1)
    total, count = 0.0, 0
    with torch.no_grad():
        for chunk in windows.split(rows):
            losses, _ = next_token_losses(model(chunk), Batch(chunk))
            total, count = total + losses[:, 1:].sum().item(), count + losses[:, 1:].numel()
    return total / count


def bits_per_byte(model: Transformer, tokens: Int[Tensor, " token"]) -> float:
    """:func:`held_out_loss` in bits per byte of text, which is comparable between tokenizers.

    Raises:
        InvalidInput: the model has no tokenizer.
    """
    if model.tokenizer is None:
        raise InvalidInput("Bits per byte need a tokenizer, for the number of bytes of each token.")
    sizes = [len(model.tokenizer.token_bytes(t) or b"") for t in range(model.tokenizer.vocab_size)]
    bos = model.config.tokens.bos or 0
    sizes[bos] = 0  # BOS is not part of the text.
    count = torch.tensor(sizes)[tokens.long()].sum().item()
    return held_out_loss(model, tokens) * len(tokens) / count / log(2)


def unigram_loss(
    train: Int[Tensor, " token"], held_out: Int[Tensor, " held_out"], d_vocab: int
) -> float:
    """Loss in nats of the token frequencies in ``train``, with add-one smoothing."""
    counts = torch.bincount(train.long(), minlength=d_vocab).double() + 1
    return -(counts / counts.sum()).log()[held_out.long()].mean().item()


def bigram_loss(
    train: Int[Tensor, " token"], held_out: Int[Tensor, " held_out"], d_vocab: int
) -> float:
    """Loss in nats of a bigram table of ``train``, smoothed by its unigram frequencies.

    p(b | a) = (n(a, b) + m · p(b)) / (n(a) + m). Of a few values of m, the one with the lowest loss
    on ``held_out`` is taken, which favours the baseline.
    """
    first, second = train[:-1].long(), train[1:].long()
    pairs = torch.bincount(first * d_vocab + second, minlength=d_vocab**2).view(d_vocab, -1)
    unigram = torch.bincount(train.long(), minlength=d_vocab).double() + 1
    unigram /= unigram.sum()
    a, b = held_out[:-1].long(), held_out[1:].long()
    seen, total = pairs[a, b].double(), pairs.sum(1)[a].double()
    smoothed = ((seen + m * unigram[b]) / (total + m) for m in (0.3, 1.0, 3.0, 10.0, 30.0))
    return min(-p.log().mean().item() for p in smoothed)
