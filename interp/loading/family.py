"""A family of models: how its ``config.json`` and its weights are interpreted.

Each module of :mod:`interp.loading.families` defines one or several in a list ``FAMILIES``, and
families of two towers in a list ``TWO_TOWERS``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from interp.config import Config
from interp.errors import ModelLoadError, shorten
from interp.loading.foreign_config import ForeignConfig
from interp.loading.joined_towers import EmbeddingAt
from interp.loading.weight import Table

EVERY_FAMILY = (
    "architectures bos_token_id decoder_start_token_id eos_token_id id2label is_causal model_type "
    "num_labels pad_token_id tie_word_embeddings"
)
"""Fields that are read for every family, separated by spaces."""
OF_THE_WHOLE = ("architectures", "model_type", "tie_word_embeddings")
"""Those that describe the whole model; a value given for a part of it is ignored."""
PARTS_OF_TWO = ("text_config", "vision_config")
"""Objects in ``config.json`` with the fields of the towers of texts and of images."""


@dataclass(frozen=True)
class Family:
    """One family of models.

    Attributes:
        name: the name in tables and error messages, such as "GPT-2".
        model_types: values of ``model_type`` in ``config.json``.
        config: computes the :class:`Config` of a model.
        weights: computes the table of weights.
        defaults: values of the family's configuration class, for fields that are missing.
        fields: names of further fields that the family reads, which have no default.
        unread: names of fields that occur in files of this family and do not affect the output,
            in addition to those of :mod:`interp.loading.known_fields`.
        objects: objects in ``config.json`` of which entries are read, and the names of these
            entries; those of rotary positions have :data:`interp.loading.rotary.PARAMETERS`.
        aliases: alternative names of fields, and the name that each stands for.
        renames: pairs (pattern, replacement) that are applied in order to the names of weights, to
            remove optional prefixes and to replace the names of older files.
        ignored: patterns of names of tensors that do not affect the output, such as buffers.
        optional: patterns of names of weights that may be left unused, such as a second head's.
        embedding: name of the token embedding (of the last stack), which the head may be tied to.
        copies: names of the token embeddings of other stacks, which may be equal to ``embedding``.
        head: name of the unembedding.
        tables: names of all matrices that are the same if the head is tied, in families with
            ``copies``; the first one that is stored replaces those that are missing.
        shared: the name among ``tables`` that only replaces others: no part of the model reads it.
        tied: the default of ``tie_word_embeddings``.
        shares_layers: whether layers may share their weights, so that there may be more layers than
            weights; the family then bounds their number by itself.
        always_tied: whether the head is always tied, regardless of that field.
        pooled: whether the pooled output of a live model of ``transformers`` is compared, because
            its last hidden state is not the last stream of this toolkit.
        compared_attention: the implementation of attention with which a live model of
            ``transformers`` is compared; empty for the one that it has.
        part: name of the object in ``config.json`` with the fields of the part that is loaded, such
            as ``text_config``; empty if ``config.json`` itself has them.
        around: names of fields outside that object that do not affect the output.
        left_out: patterns of names of weights that belong to other parts, and a description of
            each part. These weights are not read, and a warning names the part.
    """

    name: str
    model_types: tuple[str, ...]
    config: Callable[[ForeignConfig], Config]
    weights: Callable[[Config, ForeignConfig], Table]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    objects: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    renames: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    embedding: str = ""
    copies: tuple[str, ...] = ()
    head: str = "lm_head.weight"
    tables: tuple[str, ...] = ()
    shared: str = ""
    tied: bool = True
    shares_layers: bool = False
    always_tied: bool = False
    pooled: bool = False
    compared_attention: str = ""
    part: str = ""
    around: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    def canonical_name(self, key: str) -> str | None:
        """The name of a weight after ``renames``; ``None`` if it is ignored or left out."""
        name, ignored = self._renamed(key), (*self.ignored, *self.left_out)
        return None if any(re.search(pattern, name) for pattern in ignored) else name

    def part_left_out(self, key: str) -> str | None:
        """The part that a weight belongs to, if the part is left out."""
        name = self._renamed(key)
        parts = (part for pattern, part in self.left_out.items() if re.search(pattern, name))
        return next(parts, None)

    def _renamed(self, key: str) -> str:
        for pattern, replacement in self.renames:
            key = re.sub(pattern, replacement, key)
        return key

    def is_optional(self, name: str) -> bool:
        """Whether a weight may be left unused."""
        return any(re.search(pattern, name) for pattern in self.optional)

    def is_tied(self, fields: ForeignConfig) -> bool:
        """Whether the head is tied to the embedding if no weights of a head are stored."""
        return self.always_tied or fields.get("tie_word_embeddings", self.tied)

    def canonical_fields(self, config_json: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a ``config.json``, with aliases replaced by the names they stand for.

        Raises:
            ModelLoadError: a field is given under two names with different values, or the object
                of the ``part`` is missing.
        """
        config_json = self.fields_of_part(config_json)
        canonical = {name: value for name, value in config_json.items() if name not in self.aliases}
        for alias, name in self.aliases.items():
            value, other = config_json.get(alias), canonical.get(name)
            if value is not None and other not in (None, value):
                raise ModelLoadError(
                    f"{self.name}: config.json has {name}={other!r} and {alias}={value!r}, which "
                    "are two names of one field; remove one of them."
                )
            canonical |= {} if value is None else {name: value}
        return canonical

    def fields_of_part(self, config_json: Mapping[str, Any]) -> Mapping[str, Any]:
        """The fields of the ``part``; those of :data:`EVERY_FAMILY` may be given outside of it.

        Raises:
            ModelLoadError: the object of the ``part`` is missing.
        """
        if not self.part:
            return config_json
        section = config_json.get(self.part)
        if not isinstance(section, Mapping):
            raise ModelLoadError(
                f"{self.name}: config.json has {self.part}={shorten(section)}; expected an object."
            )
        section = {name: value for name, value in section.items() if name not in OF_THE_WHOLE}
        beside = {name: config_json.get(name) for name in EVERY_FAMILY.split()}
        return section | {name: value for name, value in beside.items() if value is not None}


@dataclass(frozen=True)
class TwoTowerFamily:
    """A family of models of two towers, for texts and for images, in one checkpoint.

    ``text_config`` and ``vision_config`` in ``config.json`` hold what the ``config.json`` of each
    tower alone does, and the weights have the names that they have there.

    Attributes:
        name: the name in error messages, such as "CLIP".
        model_type: the value of ``model_type`` in ``config.json``.
        text: the family of the text tower.
        image: the family of the image tower.
        embedding_at: where the embedding of a text is, by the fields of the text tower.
        biased: whether there is a ``logit_bias``.
        shared: fields beside the towers' objects that both towers read instead of their own, with
            the defaults of the family's configuration class.
        overridden: whether ``text_config_dict`` and ``vision_config_dict``, where they are given,
            override ``text_config`` and ``vision_config``: their fields, and their defaults for
            fields that they lack.
        unread: names of fields beside the towers' objects that do not affect the output.
    """

    name: str
    model_type: str
    text: Family
    image: Family
    embedding_at: Callable[[ForeignConfig], EmbeddingAt]
    biased: bool = False
    shared: Mapping[str, Any] = field(default_factory=dict)
    overridden: bool = False
    unread: tuple[str, ...] = ()

    @property
    def fields(self) -> frozenset[str]:
        """The names of the fields that are read, apart from those of every family."""
        overriding = (f"{name}_dict" for name in PARTS_OF_TWO) if self.overridden else ()
        return frozenset((*PARTS_OF_TWO, *overriding, *self.shared))

    def text_fields(self, config_json: Mapping[str, Any]) -> dict[str, Any]:
        """The content of a ``config.json`` of the text tower alone.

        Raises:
            ModelLoadError: the objects with its fields are no objects.
        """
        return self._fields_of_tower(self.text, PARTS_OF_TWO[0], config_json)

    def image_fields(self, config_json: Mapping[str, Any]) -> dict[str, Any]:
        """The content of a ``config.json`` of the image tower alone.

        Raises:
            ModelLoadError: the objects with its fields are no objects.
        """
        return self._fields_of_tower(self.image, PARTS_OF_TWO[1], config_json)

    def _fields_of_tower(
        self, tower: Family, part: str, config_json: Mapping[str, Any]
    ) -> dict[str, Any]:
        fields = {**self._object(config_json, part)}
        if self.overridden and config_json.get(f"{part}_dict") is not None:
            fields |= {**tower.defaults, **self._object(config_json, f"{part}_dict")}
        fields |= {name: config_json.get(name, value) for name, value in self.shared.items()}
        fields = {name: value for name, value in fields.items() if name not in OF_THE_WHOLE}
        return {**fields, "model_type": tower.model_types[0]}

    def _object(self, config_json: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """An object in ``config.json``; null counts as an empty one."""
        value = config_json.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise ModelLoadError(
                f"{self.name}: config.json has {name}={shorten(value)}; expected an object."
            )
        return value or {}
