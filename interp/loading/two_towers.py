"""Load models of two towers, of texts and of images, from folders and from live models.

Each tower is loaded as it would be from a checkpoint of its own (:mod:`interp.loading.assemble`):
with its fields of ``config.json``, and its weights of those in the folder.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import ModelLoadError
from interp.loading.agreement import check_agreement, expected_rounding
from interp.loading.assemble import assemble
from interp.loading.family import Family, TwoTowerFamily
from interp.loading.folder import check_whole, errors_of, generation_of, read_config, tokenizer_of
from interp.loading.foreign_config import ForeignConfig
from interp.loading.joined_towers import EmbeddingAt, TwoTowers
from interp.loading.known_fields import check_fields_beside_towers
from interp.loading.live import (
    device_of,
    fields_of,
    inputs_of,
    is_quantised,
    name_of,
    outputs_of,
    pooled_column,
)
from interp.loading.live import generation_of as live_generation_of
from interp.loading.registry import two_tower_family_of
from interp.loading.source import Source, StateDictSource, open_weights
from interp.loading.special_tokens import as_tokenizer, set_tokenizer
from interp.saved import CONFIG
from interp.text import Tokenizer
from interp.transformer import Transformer

OF_TEXT = re.compile(r"text_(model|projection)\.")
OF_IMAGE = re.compile(r"(vision_model|visual_projection)\.")
"""Matches the names of the weights of the image tower, as OF_TEXT those of the text tower."""
SCALE, BIAS = "logit_scale", "logit_bias"


def load_folder_of_towers(  # noqa: PLR0913 - the arguments of load_towers
    folder: Path,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    tokenizer: object = None,
    *,
    variant: str | None = None,
    allow_pickle: bool = False,
    strict: bool = False,
) -> TwoTowers:
    """Read a folder with both towers; the arguments are those of :func:`interp.load_towers`.

    Raises:
        ModelLoadError: as for :func:`interp.loading.load_folder`; the folder holds a model
            of another kind.
    """
    check_whole(folder)
    config_json = read_config(folder / CONFIG)
    with errors_of(folder):
        family = two_tower_family_of(config_json)
        tokenizer = tokenizer_of(folder, tokenizer)
        source = open_weights(folder, variant, allow_pickle=allow_pickle)
        parts = _parts(family, config_json, source, strict=strict)
        text = assemble(*parts.text, dtype, device, strict=strict)
        image = assemble(*parts.image, dtype, device, strict=strict)
        towers = named(parts.join(text, image), folder.resolve().name)
        _set_tokenizers(towers, parts, tokenizer, generation_of(folder))
    return towers


def load_live_towers(
    hf_model: Any,  # noqa: ANN401 - transformers is not imported here
    tokenizer: object = None,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    *,
    strict: bool = False,
) -> TwoTowers:
    """Convert a live model; the arguments are those of :func:`interp.load_towers`.

    Raises:
        ModelLoadError: as for :func:`interp.loading.live.load_live`; the model is of another kind.
    """
    config_json, weights = fields_of(hf_model), hf_model.state_dict()
    family = two_tower_family_of(config_json)
    if not is_quantised(family.text, weights):
        config_json.pop("quantization_config", None)
    device = device_of(weights) if device is None else device
    parts = _parts(family, config_json, StateDictSource(weights), strict=strict)
    text = assemble(*parts.text, dtype, device, strict=strict)
    image = assemble(*parts.image, dtype, device, strict=strict)
    towers = named(parts.join(text, image), name_of(hf_model, config_json))
    _set_tokenizers(towers, parts, as_tokenizer(tokenizer), live_generation_of(hf_model))
    _set_agreements(towers, hf_model)
    return towers


def named(towers: TwoTowers, name: str) -> TwoTowers:
    """Set ``config.name`` of both towers, and return them."""
    for tower, part in ((towers.text, "text"), (towers.image, "image")):
        tower.config = replace(tower.config, name=f"{name} ({part})")
    return towers


# ---- the parts of a checkpoint -------------------------------------------------------------------


class Tower(NamedTuple):
    """A tower of a checkpoint, as a checkpoint of its own."""

    family: Family
    config_json: Mapping[str, Any]
    source: Source


@dataclass(frozen=True)
class Parts:
    """The parts of a checkpoint of two towers.

    Attributes:
        name: the name of the family.
        text: the text tower.
        image: the image tower.
        logit_scale: as in :class:`interp.TwoTowers`, like the following.
        logit_bias: 0 if there is none.
        embedding_at: where the embedding of a text is read.
    """

    name: str
    text: Tower
    image: Tower
    logit_scale: float
    logit_bias: float
    embedding_at: EmbeddingAt

    def join(self, text: Transformer, image: Transformer) -> TwoTowers:
        """The loaded towers with what joins them.

        Raises:
            ModelLoadError: a tower has no embeddings, or they have different sizes.
        """
        widths = {
            "text": text.config.n_classes,
            "image": image.config.d_vocab if image.config.unembeds else image.config.d_model,
        }
        if image.pooler is None and not image.config.unembeds:
            widths["image"] = None
        lacking = next((part for part, width in widths.items() if width is None), None)
        if lacking is not None:
            raise ModelLoadError(
                f"{self.name}: the {lacking} tower has no embeddings, because it has neither a "
                "projection nor a pooler; load the model with transformers and pass its towers one "
                "by one, interp.load(hf_model.text_model) and interp.load(hf_model.vision_model)."
            )
        if len({*widths.values()}) > 1:
            raise ModelLoadError(
                f"{self.name}: embeddings of texts have {widths['text']} dimensions, those of "
                f"images {widths['image']}; they can't be compared."
            )
        return TwoTowers(text, image, self.logit_scale, self.logit_bias, self.embedding_at)


class PartOfSource:
    """The weights of a source whose names satisfy a condition.

    Args:
        source: the source.
        has: the condition.
    """

    def __init__(self, source: Source, has: Callable[[str], bool]) -> None:
        self._source = source
        self._keys = [key for key in source.keys() if has(key)]  # noqa: SIM118 - no dictionary

    def keys(self) -> list[str]:
        """The names of the tensors."""
        return self._keys

    def shape(self, key: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self._source.shape(key)

    def dtype(self, key: str) -> torch.dtype | None:
        """The dtype of a tensor; ``None`` if no model computes in it."""
        return self._source.dtype(key)

    def read(self, key: str) -> Tensor:
        """The tensor."""
        return self._source.read(key)


def _parts(
    family: TwoTowerFamily, config_json: Mapping[str, Any], source: Source, *, strict: bool
) -> Parts:
    """The towers of a checkpoint; the text tower has all weights that belong to no other part.

    So a weight that belongs to no part of the model is refused with the text tower.
    """
    check_fields_beside_towers(family, config_json, strict=strict)
    numbers = {SCALE, BIAS} if family.biased else {SCALE}
    text, image = family.text_fields(config_json), family.image_fields(config_json)
    for part, names in (("text", OF_TEXT), ("image", OF_IMAGE)):
        if not any(map(names.match, source.keys())):
            raise ModelLoadError(f"{family.name}: there are no weights of the {part} tower.")
    of_text = PartOfSource(source, lambda key: not OF_IMAGE.match(key) and key not in numbers)
    of_image = PartOfSource(source, lambda key: OF_IMAGE.match(key) is not None)
    return Parts(
        family.name,
        Tower(family.text, text, of_text),
        Tower(family.image, image, of_image),
        _scale(family, source),
        _number(family, source, BIAS) if family.biased else 0.0,
        family.embedding_at(ForeignConfig(family.text.name, text, family.text.defaults)),
    )


def _scale(family: TwoTowerFamily, source: Source) -> float:
    """The exponential of the stored scale."""
    exponent = _number(family, source, SCALE)
    try:
        return math.exp(exponent)
    except OverflowError as error:
        raise ModelLoadError(
            f"{family.name}: exp({SCALE}) is not a finite number for {SCALE}={exponent:g}."
        ) from error


def _number(family: TwoTowerFamily, source: Source, key: str) -> float:
    """The value of a weight that is a single number.

    Raises:
        ModelLoadError: it is missing, has several elements, or is not a finite number.
    """
    if key not in source.keys():  # noqa: SIM118 - a source is not a dictionary
        raise ModelLoadError(f"{family.name}: the weight {key} is missing.")
    if math.prod(source.shape(key)) != 1 or source.dtype(key) is None:
        raise ModelLoadError(
            f"{family.name}: {key} has the shape {source.shape(key)} and the dtype "
            f"{source.dtype(key)}; expected one number of floating point."
        )
    value = float(source.read(key).item())
    if not math.isfinite(value):
        raise ModelLoadError(f"{family.name}: {key} is not a finite number.")
    return value


def _set_tokenizers(
    towers: TwoTowers, parts: Parts, tokenizer: Tokenizer | None, generation: Mapping[str, Any]
) -> None:
    """Set the tokenizer of the text tower, and the special tokens of both."""
    set_tokenizer(towers.text, parts.text.config_json, tokenizer, generation)
    set_tokenizer(towers.image, parts.image.config_json, None)


# ---- comparison with a live model ----------------------------------------------------------------


@torch.no_grad()
def _set_agreements(towers: TwoTowers, hf_model: Any) -> None:  # noqa: ANN401 - of transformers
    """Set the agreement of each tower: the largest difference of the two models' embeddings.

    Raises:
        ModelLoadError: a difference is more than rounding.
    """
    (ids,), of_text = inputs_of(towers.text, None)
    (images,), of_image = inputs_of(towers.image, None)
    eos = towers.embedding_at
    if isinstance(eos, int) and eos < towers.text.config.d_vocab:
        ids[:, -1] = eos
    outputs = outputs_of(hf_model, of_text | of_image)
    pooler, stream = towers.image.pooler, towers.image(images)
    embedded = stream if pooler is None else pooler(stream)[:, None]
    for tower, vectors, name in (
        (towers.text, towers.text(ids), "text_embeds"),
        (towers.image, embedded, "image_embeds"),
    ):
        tower.agreement = _agreement(tower, vectors, outputs[name], type(hf_model).__name__)


def _agreement(
    tower: Transformer,
    vectors: Float[Tensor, "batch pos dim"],
    expected: Float[Tensor, "batch dim"],
    origin: str,
) -> float:
    """The largest difference of embeddings of length √dim, at the position that is nearest.

    Args:
        tower: the tower.
        vectors: its embeddings at every position.
        expected: those of the model that it was loaded from, of length 1.
        origin: the name of that model.
    """
    size = expected.shape[-1] ** 0.5
    vectors = size * vectors / vectors.norm(dim=-1, keepdim=True)
    expected = size * expected.to(vectors.device)
    return check_agreement(
        pooled_column(vectors, expected), expected, origin, expected_rounding(tower)
    )
