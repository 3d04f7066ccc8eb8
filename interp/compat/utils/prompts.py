"""``test_prompt``: the rank of an expected continuation."""
# ruff: noqa: PT028, T201 - flags, defaults and prints, as in TransformerLens

from typing import Any

import torch
from torch import Tensor


def test_prompt(
    prompt: str,
    answer: str | list[str],
    model: Any,
    prepend_space_to_answer: bool = True,
    print_details: bool = True,
    prepend_bos: bool | None = None,
    top_k: int = 10,
) -> None:
    """Print rank, logit and probability of an answer's tokens, and the most probable tokens.

    Args:
        prompt: the text before the answer.
        answer: the expected continuation, or several, of which only the first token is used.
        model: the model.
        prepend_space_to_answer: whether to prepend a space to answers without one.
        print_details: whether to print more than the ranks.
        prepend_bos: whether to prepend BOS; by default the setting of the model.
        top_k: number of most probable tokens to print.
    """
    texts = [answer] if isinstance(answer, str) else answer
    if prepend_space_to_answer:
        texts = [text if text.startswith(" ") else f" {text}" for text in texts]
    labels = [list(model.to_str_tokens(text, prepend_bos=False)) for text in texts]
    before = list(model.to_str_tokens(prompt, prepend_bos=prepend_bos))
    if print_details:
        print("Tokenized prompt:", before)
        plural = len(texts) > 1
        print(
            "Tokenized answers:" if plural else "Tokenized answer:", labels if plural else labels[0]
        )
    prompt_ids = model.to_tokens(prompt, prepend_bos=prepend_bos)
    answer_ids = model.to_tokens(texts, prepend_bos=False)
    if len(texts) > 1:
        answer_ids = answer_ids[:, :1]
    tokens = torch.cat([prompt_ids.repeat(len(texts), 1), answer_ids], dim=1)
    logits, ranks = model(tokens).detach(), list[list[tuple[str, int]]]()
    for offset in range(answer_ids.shape[1]):
        at = len(before) + offset
        here, targets = logits[:, at - 1], tokens[:, at].to(logits.device)
        order = here.argsort(dim=-1, descending=True, stable=True)
        of_targets = (order == targets[:, None]).int().argmax(-1).tolist()
        ranks.append(
            [
                (row_labels[offset], rank)
                for row_labels, rank in zip(labels, of_targets, strict=True)
            ]
        )
        if print_details:
            _print_targets(here, targets, ranks[-1])
            _print_top(model, here[0], order[0, :top_k])
    listed = ranks if len(texts) > 1 else [row[0] for row in ranks]
    print(f"Ranks of the answer tokens: {listed}")


# Otherwise pytest would collect it in modules that import it.
setattr(test_prompt, "__test__", False)  # noqa: B010 - functions have no such attribute


def _print_targets(logits: Tensor, targets: Tensor, ranks: list[tuple[str, int]]) -> None:
    """Rank, logit and probability of each answer's token; ``logits`` are ``[answer vocab]``."""
    print(f"Performance on answer token{'s' if len(ranks) > 1 else ''}:")
    probabilities = logits.softmax(-1)
    for row, ((label, rank), target) in enumerate(zip(ranks, targets.tolist(), strict=True)):
        numbers = _numbers(logits[row, target], probabilities[row, target])
        print(f"Rank: {rank: <8} {numbers} Token: |{label}|")


def _print_top(model: Any, logits: Tensor, top: Tensor) -> None:
    """The most probable tokens of one row."""
    probabilities = logits.softmax(-1)
    for rank, token in enumerate(top):
        numbers = _numbers(logits[token], probabilities[token])
        print(f"Top {rank}th token. {numbers} Token: |{model.to_string(token)}|")


def _numbers(logit: Tensor, probability: Tensor) -> str:
    return f"Logit: {logit.item():5.2f} Prob: {probability.item():6.2%}"
