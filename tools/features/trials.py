"""The features that are tried, and what every trial shares."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

FEATURES = {
    "pattern": "attention patterns of all heads, from one run",
    "fused": "… while attention stays fused (sdpa)",
    "zero": "one head set to zero",
    "edge": "one edge edited: one reader gets another value of one writer",
    "many": "many edits measured in one call",
    "misspelt": "a misspelt place is an error, edited or recorded",
    "left_padding": "left-padded rows have the logits that they have alone",
    "after_error": "a failing hook leaves nothing on the model",
    "safe_cache": "changing a tensor read from a cache does not change the cache",
    "threads": "two threads edit one model differently at once",
    "json": "an edit goes through JSON and back",
    "steering": "gradients reach a vector added to the stream",
    "generation": "edits apply while text is generated",
    "mamba": "a model that is no Transformer (Mamba)",
    "drawing": "draws patterns to point at",
    "offline_drawing": "… without asking another host",
    "alone": "runs where transformers is not installed",
    "known_circuits": "comes with models whose circuit is known",
}
"""By the name of the method that tries it."""

TOKENS = [[3, 1, 4, 1, 5, 9, 2, 6]]
PADDED = [0, 0, 0, 3, 1, 4, 1, 5]
"""Three columns of padding, then a prompt."""
CLOSE = 1e-5
"""Largest difference of logits in float32 that counts as none."""


class Lacks(Exception):
    """The library has no call for this; the text says what was looked for."""


@dataclass
class Library:
    """A library and its trials: methods that return whether the feature works.

    Attributes:
        package: its distribution.
        beside: distributions whose versions matter as well.
        from_version: the first version that the trials are written for.
        below: the first version that they are not written for.
    """

    package: ClassVar[str]
    beside: ClassVar[tuple[str, ...]] = ()
    from_version: ClassVar[str] = "0"
    below: ClassVar[str] = "9999"
    made: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def tokens(self) -> Tensor:
        """One prompt of eight tokens."""
        return torch.tensor(TOKENS)


TINY = {"vocab_size": 50, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}


def huggingface(attention: str = "eager", sizes: Mapping[str, Any] = TINY) -> Any:  # noqa: ANN401
    """A GPT-2 of ``transformers`` with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    fields = {**sizes, "bos_token_id": 0, "eos_token_id": 0, "attn_implementation": attention}
    return GPT2LMHeadModel(GPT2Config(**fields)).eval()


def mamba() -> Any:  # noqa: ANN401 - a class of transformers
    """A Mamba of ``transformers`` with two layers and random weights."""
    from transformers import MambaConfig, MambaForCausalLM

    torch.manual_seed(0)
    config = MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, state_size=4)
    return MambaForCausalLM(config).eval()


def is_pattern(pattern: Tensor) -> bool:
    """Whether it is ``[batch head query key]`` of two heads, rows summing to one."""
    width = len(TOKENS[0])
    return pattern.shape == (1, 2, width, width) and close(pattern.sum(-1), torch.ones(1))


def close(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors are equal within :data:`CLOSE`."""
    return bool((first - second).abs().max() < CLOSE)


def refuses(call: Callable[[], object]) -> bool:
    """Whether a call raises."""
    try:
        call()
    except Exception:
        return True
    return False


def tried(library: Library, feature: str) -> str:
    """``yes``, ``no``, why not, or ``not tried``."""
    trial = getattr(library, feature, None)
    if trial is None:
        return "not tried"
    try:
        return "yes" if trial() else "no"
    except Lacks as lack:
        return f"no: {lack}"
    except Exception as error:
        return f"no: raises {type(error).__name__}"


def imports_alone(module: str) -> bool:
    """Whether a module is imported in a process in which transformers can't be."""
    code = f"import sys; sys.modules['transformers'] = None; import {module}"
    return not subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True
    ).returncode
