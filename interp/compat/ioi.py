"""Indirect object identification (Wang et al. 2022): prompts, and the accuracy of a model."""

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from interp.errors import InvalidInput


class IOIDataset(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Prompts of indirect object identification.

    Args:
        tokenizer: a tokenizer with ``encode`` and ``bos_token_id``.
        templates: texts with [A] (the indirect object), [B] (the subject) and nouns in brackets.
        names: names for [A] and [B].
        nouns: words for each noun in brackets.
        num_samples: number of prompts.
        symmetric: whether each prompt is followed by the one with its names exchanged.
        prepend_bos: whether BOS comes first.
        seed: the seed of the draws; by default, Python's global generator is used.
    """

    def __init__(
        self,
        tokenizer: Any,
        templates: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        nouns: dict[str, list[str]] | None = None,
        num_samples: int = 1000,
        symmetric: bool = False,
        prepend_bos: bool = True,
        seed: int | None = None,
    ) -> None:
        self.tokenizer, self.prepend_bos = tokenizer, prepend_bos
        self.random: Any = random if seed is None else random.Random(seed)
        self.templates = self.get_default_templates() if templates is None else templates
        self.names = self.get_default_names() if names is None else names
        self.nouns = self.get_default_nouns() if nouns is None else nouns
        draws = num_samples // 2 if symmetric else num_samples
        self.samples = [one for _ in range(draws) for one in self.get_sample(symmetric)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, idx: int) -> dict[str, Tensor]:
        """Token ids of ``prompt`` (the indirect object at its end), ``IO`` and ``S``."""
        sample = self.samples[idx]
        bos = [self.tokenizer.bos_token_id] if self.prepend_bos else []
        encoded = {key: self.tokenizer.encode(sample[key]) for key in ("text", "IO", "S")}
        return {
            "prompt": torch.tensor(bos + encoded["text"]),
            "IO": torch.tensor(encoded["IO"]),
            "S": torch.tensor(encoded["S"]),
        }

    def get_sample(self, symmetric: bool = False) -> list[dict[str, str]]:
        """A prompt; with ``symmetric`` also the one with its names exchanged."""
        template = self.random.choice(self.templates)
        for noun, words in self.nouns.items():
            template = template.replace(f"[{noun}]", self.random.choice(words))
        a, b = self.random.sample(list(self.names), 2)
        pairs = [(a, b), (b, a)] if symmetric else [(a, b)]
        return [
            {"text": template.replace("[A]", io).replace("[B]", s), "IO": f" {io}", "S": f" {s}"}
            for io, s in pairs
        ]

    @staticmethod
    def get_default_names() -> list[str]:
        """Two names."""
        return ["John", "Mary"]

    @staticmethod
    def get_default_templates() -> list[str]:
        """Two templates."""
        return [
            "[A] and [B] went to the [LOCATION] to buy [OBJECT]. [B] handed the [OBJECT] to [A]",
            "Then, [B] and [A] went to the [LOCATION]. [B] gave the [OBJECT] to [A]",
        ]

    @staticmethod
    def get_default_nouns() -> dict[str, list[str]]:
        """Places and objects."""
        return {"LOCATION": ["store", "market"], "OBJECT": ["milk", "eggs", "bread"]}


@torch.inference_mode()
def ioi_eval(
    model: Any,
    dataset: Any = None,
    batch_size: int = 8,
    num_samples: int = 1000,
    tokenizer: Any = None,
    symmetric: bool = False,
) -> dict[str, float]:
    """Mean logit difference of indirect object and subject, and how often it is positive.

    The difference is taken where the first token that differs between the names is predicted.
    """
    if dataset is None:
        own = model.tokenizer if tokenizer is None else tokenizer
        dataset = IOIDataset(own, num_samples=num_samples, symmetric=symmetric)
    differences: list[float] = []
    for start in range(0, len(dataset), batch_size):
        stop = min(start + batch_size, len(dataset))
        samples = [dataset[at] for at in range(start, stop)]
        prompts = [sample["prompt"] for sample in samples]
        padded = torch.nn.utils.rnn.pad_sequence(prompts, batch_first=True)
        logits = model(padded, return_type="logits")
        for row, sample in zip(logits, samples, strict=True):
            differences.append(_logit_difference(row, sample))
    return {
        "Logit Difference": sum(differences) / len(dataset),
        "Accuracy": sum(one > 0 for one in differences) / len(dataset),
    }


def _logit_difference(logits: Tensor, sample: dict[str, Tensor]) -> float:
    """The difference for one prompt, from its logits ``[pos vocab]``."""
    io, s = sample["IO"], sample["S"]
    n = min(len(io), len(s))
    differing = (io[:n] != s[:n]).nonzero()
    if not len(differing):
        raise InvalidInput(
            "The tokens of one name are a prefix of those of the other; use other names."
        )
    first = int(differing[0])
    here = logits[len(sample["prompt"]) - len(io) + first - 1]
    return (here[io[first]] - here[s[first]]).item()
