"""Accuracy of next-token predictions on prompts with single-token targets."""

from collections.abc import Sequence

import torch

from interp.errors import InvalidInput, InvalidTokens
from interp.prompts import Prompt
from interp.transformer import Transformer


def single_token_prompts(model: Transformer, prompts: Sequence[Prompt]) -> list[Prompt]:
    """The prompts whose target and distractor are single tokens of this model's vocabulary."""

    def is_token(text: str | None) -> bool:
        try:
            return text is None or model.to_single_token(text) >= 0
        except InvalidTokens:
            return False

    return [p for p in prompts if is_token(p.target) and is_token(p.distractor)]


def accuracy(model: Transformer, prompts: Sequence[Prompt], rows: int = 64) -> float:
    """The share of prompts whose target is the most likely next token.

    Raises:
        InvalidInput: a prompt has no target, or its target is not a single token; the message names
            the prompt or the target.
    """
    parts = (prompts[i : i + rows] for i in range(0, len(prompts), rows))
    return sum(_correct(model, part) for part in parts) / len(prompts)


def preference(model: Transformer, prompts: Sequence[Prompt]) -> float:
    """The share of prompts whose target is more likely than their distractor.

    Raises:
        InvalidInput: a prompt lacks a target or a distractor, or either is not a single token.
    """
    logits = _last_logits(model, prompts)
    target, distractor = (
        torch.tensor([_token(model, prompt, field) for prompt in prompts])[:, None]
        for field in ("target", "distractor")
    )
    return (logits.gather(1, target) > logits.gather(1, distractor)).double().mean().item()


def _correct(model: Transformer, prompts: Sequence[Prompt]) -> int:
    targets = torch.tensor([_token(model, prompt, "target") for prompt in prompts])
    return int((_last_logits(model, prompts).argmax(-1) == targets).sum())


def _last_logits(model: Transformer, prompts: Sequence[Prompt]) -> torch.Tensor:
    tokens = model.to_tokens([prompt.text for prompt in prompts], padding_side="left")
    with torch.no_grad():
        return model(tokens)[:, -1]


def _token(model: Transformer, prompt: Prompt, field: str) -> int:
    text = getattr(prompt, field)
    if text is None:
        raise InvalidInput(f"{prompt.source}: the prompt has no {field!r}; give a single token.")
    return model.to_single_token(text)
