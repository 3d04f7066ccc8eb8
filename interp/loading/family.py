"""What is a family of models? How its configuration reads, and where its weights go.

Each module of :mod:`interp.loading.families` defines one or a few that are alike, in a list named
``FAMILIES``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from interp.config import Config
from interp.errors import ModelLoadError
from interp.loading.foreign_config import Raw
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
        aliases: other names of fields, and the one that they stand for.
        names: patterns of weights' names, and what stands for them: prefixes that may be missing,
            and other spellings on disk or in a live model.
        ignored: patterns of names that are no weights of the model's function.
        spare: patterns of names of weights that a model may leave unused: those of a second head.
        embedding: name of the (last stack's) token embedding, to which the head may be tied.
        copies: names of other stacks' token embeddings, which may be the same.
        shared: name of the matrix that stands for those of them that are missing.
        head: name of the unembedding.
        ties: whether the head is tied where the file says nothing.
    """

    name: str
    model_types: tuple[str, ...]
    config: Callable[[Raw], Config]
    weights: Callable[[Config, Raw], Table]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    names: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()
    embedding: str = ""
    copies: tuple[str, ...] = ()
    shared: str = ""
    head: str = "lm_head.weight"
    ties: bool = True

    def known_as(self, key: str) -> str | None:
        """The family's own name for a weight; ``None`` if it is ignored."""
        for pattern, name in self.names:
            key = re.sub(pattern, name, key)
        return None if any(re.search(pattern, key) for pattern in self.ignored) else key

    def may_leave(self, name: str) -> bool:
        """Whether a weight, by the family's own name, may be there and belong to no part."""
        return any(re.search(pattern, name) for pattern in self.spare)

    def fields_of(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a ``config.json`` under the family's own names.

        Raises:
            ModelLoadError: two names of one field that say different things.
        """
        named = {name: value for name, value in fields.items() if name not in self.aliases}
        for alias, name in self.aliases.items():
            value, other = fields.get(alias), named.get(name)
            if value is not None and other not in (None, value):
                raise ModelLoadError(
                    f"{self.name}: config.json says {name}={other!r} and {alias}={value!r}, which "
                    "are two names of one field."
                )
            named |= {} if value is None else {name: value}
        return named
