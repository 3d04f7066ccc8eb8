"""What is a family of models? How its configuration reads, and where its weights go.

Each module of :mod:`interp.loading.families` defines one or a few that are alike, in a list named
``FAMILIES``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from interp.config import Config
from interp.loading.raw import Raw
from interp.loading.weight import Table


@dataclass(frozen=True)
class Family:
    """One family.

    Attributes:
        name: what people call it.
        model_types: what ``config.json`` calls it.
        config: our configuration, from theirs.
        weights: what each of our weights is made of.
        defaults: what their class takes where the file says nothing.
        names: patterns of weights' names, and what stands for them: prefixes that may be missing,
            and other spellings on disk or in a live model.
        ignored: patterns of names that are no weights of the model's function.
        embedding: name of the token embedding, to which the head may be tied.
        head: name of the unembedding.
        ties: whether the head is tied where the file says nothing.
    """

    name: str
    model_types: tuple[str, ...]
    config: Callable[[Raw], Config]
    weights: Callable[[Config, Raw], Table]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()
    embedding: str = ""
    head: str = "lm_head.weight"
    ties: bool = True

    def known_as(self, key: str) -> str | None:
        """The family's own name for a weight; ``None`` if it is ignored."""
        for pattern, name in self.names:
            key = re.sub(pattern, name, key)
        return None if any(re.search(pattern, key) for pattern in self.ignored) else key
