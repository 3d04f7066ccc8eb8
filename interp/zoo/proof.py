"""What shows that a bundled model holds what its card claims? Losses and head scores.

Previous-token score: mean attention to the token before. Induction score: mean attention, in the
second copy of a random sequence, to the token after the same token's first occurrence (Olsson
et al. 2022, "In-context Learning and Induction Heads").
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.metrics import next_token_losses
from interp.model.batch import Batch
from interp.run import run
from interp.transformer import Transformer


def held_out_loss(
    model: Transformer, tokens: Int[Tensor, " token"], width: int = 128, rows: int = 64
) -> float:
    """Mean next-token loss in nats over consecutive windows of ``width`` tokens, BOS in front."""
    bos = model.config.tokens.bos or 0
    windows = tokens[: len(tokens) // (width - 1) * (width - 1)].view(-1, width - 1).long()
    windows = torch.cat([torch.full((len(windows), 1), bos), windows], dim=1)
    total, count = 0.0, 0
    with torch.no_grad():
        for chunk in windows.split(rows):
            losses, _ = next_token_losses(model(chunk), Batch(chunk))
            total, count = total + losses[:, 1:].sum().item(), count + losses[:, 1:].numel()
    return total / count


def unigram_loss(
    train: Int[Tensor, " token"], held_out: Int[Tensor, " held_out"], d_vocab: int
) -> float:
    """Loss in nats of the frequencies in ``train``, one added to each count."""
    counts = torch.bincount(train.long(), minlength=d_vocab).double() + 1
    return -(counts / counts.sum()).log()[held_out.long()].mean().item()


def bigram_loss(
    train: Int[Tensor, " token"], held_out: Int[Tensor, " held_out"], d_vocab: int
) -> float:
    """Loss in nats of a bigram table of ``train``, backed by its unigram frequencies.

    p(b | a) = (n(a, b) + m · p(b)) / (n(a) + m), with the m among a few that suits ``held_out``
    best: the table is given every advantage.
    """
    first, second = train[:-1].long(), train[1:].long()
    pairs = torch.bincount(first * d_vocab + second, minlength=d_vocab**2).view(d_vocab, -1)
    unigram = torch.bincount(train.long(), minlength=d_vocab).double() + 1
    unigram /= unigram.sum()
    a, b = held_out[:-1].long(), held_out[1:].long()
    seen, total = pairs[a, b].double(), pairs.sum(1)[a].double()
    backed = ((seen + m * unigram[b]) / (total + m) for m in (0.3, 1.0, 3.0, 10.0, 30.0))
    return min(-p.log().mean().item() for p in backed)


def repeated_tokens(
    allowed: Sequence[int], rows: int, half: int, seed: int, bos: int
) -> Int[Tensor, "batch pos"]:
    """BOS, then random ``allowed`` tokens, twice: ``[rows, 1 + 2·half]``."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(allowed), (rows, half), generator=generator)
    tokens = torch.tensor(allowed)[drawn]
    return torch.cat([torch.full((rows, 1), bos), tokens, tokens], dim=1)


def head_name(scores: Float[Tensor, "layer head"]) -> str:
    """The head with the highest score, as ``L1H4``."""
    layer, head = divmod(int(scores.argmax()), scores.shape[1])
    return f"L{layer}H{head}"


def repeated_losses(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> tuple[float, float]:
    """Loss in nats on the first and on the second copy (whose first token can't be foreseen)."""
    half = (tokens.shape[1] - 1) // 2
    with torch.no_grad():
        losses, _ = next_token_losses(model(tokens), Batch(tokens))
    return losses[:, :half].mean().item(), losses[:, half + 1 :].mean().item()


def head_scores(
    model: Transformer, tokens: Int[Tensor, "batch pos"], back: int
) -> Float[Tensor, "layer head"]:
    """Mean attention from each position to the one ``back`` before it, where there is one."""
    cache = run(model, tokens, record="pattern").cache
    scores = [
        cache["pattern", layer].diagonal(-back, -2, -1).mean((0, -1))
        for layer in range(len(model.blocks))
    ]
    return torch.stack(scores)


def previous_token_scores(
    model: Transformer, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "layer head"]:
    """Mean attention to the token before."""
    return head_scores(model, tokens, back=1)


def induction_scores(
    model: Transformer, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "layer head"]:
    """Mean attention to the token after the earlier copy, on :func:`repeated_tokens`."""
    return head_scores(model, tokens, back=(tokens.shape[1] - 1) // 2 - 1)
