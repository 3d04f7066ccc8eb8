"""Fields of a ``config.json``: which are read, refused or ignored.

A field that the family reads has its effect, and a field that affects the output of no model is
accepted. Any other field is refused if ``transformers`` may read it in a model of this type: it may
describe a part that the family does not have. A field that ``transformers`` does not read has no
effect there either: it is ignored, with a warning. Null counts as missing.
"""

import warnings
from collections.abc import Mapping, Set
from difflib import get_close_matches
from typing import Any

from interp.errors import MAX_SHOWN, IgnoredFieldsWarning, ModelLoadError, shorten
from interp.loading.family import EVERY_FAMILY, Family, TwoTowerFamily
from interp.loading.rotary import PARAMETERS
from interp.loading.transformers_fields import read_fields

STORED = "pruned_heads quantization_config tie_encoder_decoder"
"""Fields that say which weights are stored, and in which form, even where only earlier versions of
``transformers`` read them. Here and below, names are separated by spaces."""
PARTS = (
    "add_cross_attention attention_chunk_size cross_attention_hidden_size is_decoder "
    f"is_encoder_decoder per_layer_config {STORED}"
)
"""Fields of parts that a model has only if its family reads the field; otherwise, ``false`` and
empty values have no effect."""

TRAINING = (
    "activation_dropout attention_dropout attention_probs_dropout_prob attn_pdrop classif_dropout "
    "classifier_dropout decoder_layerdrop dropout dropout_rate embd_pdrop embed_dropout "
    "encoder_layerdrop gradient_checkpointing hidden_dropout hidden_dropout_prob init_std "
    "initializer_factor initializer_range layerdrop qa_dropout resid_dropout resid_pdrop "
    "router_aux_loss_coef router_jitter_noise seq_classif_dropout summary_first_dropout"
)
GENERATION = (
    "bad_words_ids begin_suppress_tokens cache_implementation diversity_penalty do_sample "
    "early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty "
    "force_bos_token_to_be_generated forced_bos_token_id forced_eos_token_id length_penalty "
    "max_length min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences "
    "output_scores remove_invalid_values repetition_penalty return_dict_in_generate "
    "suppress_tokens temperature top_k top_p typical_p use_cache"
)
OUTPUTS = (
    "output_attentions output_hidden_states output_past output_router_logits return_dict "
    "summary_activation summary_proj_to_labels summary_type summary_use_proj tie_last_hidden_states"
)
"""Outputs besides the logits, and heads, which are refused because of their weights."""
ARITHMETIC = (
    "_attn_implementation _attn_implementation_autoset _experts_implementation attn_implementation "
    "attention_softmax_in_fp32 bias_dropout_fusion chunk_size_feed_forward dtype "
    "experts_implementation masked_softmax_fusion reorder_and_upcast_attn "
    "scale_attention_softmax_in_fp32 tf_legacy_loss torch_dtype torchscript use_bfloat16"
)
"""Choices between implementations of the same computation."""
DESCRIPTION = (
    "_commit_hash _name_or_path auto_map custom_pipelines finetuning_task label2id name "
    "name_or_path prefix problem_type processor_class sep_token_id task_specific_params "
    "tokenizer_class transformers_version trust_remote_code unk_token_id"
)
IRRELEVANT = frozenset(" ".join((TRAINING, GENERATION, OUTPUTS, ARITHMETIC, DESCRIPTION)).split())
"""Fields that do not affect the logits of any model."""


DEQUANTISE = (
    "Load it with transformers in full precision (for MXFP4, AutoModelForCausalLM.from_pretrained("
    "NAME, quantization_config=Mxfp4Config(dequantize=True), dtype=torch.bfloat16)) and pass that "
    "model: interp.load(hf_model)."
)
"""What to do with a model whose weights are quantised."""
ROTARY = dict.fromkeys(("rope_parameters", "rope_scaling"), PARAMETERS)
"""Objects with the parameters of rotary positions, or with an object of them per layer type."""
MAX_NAMED = 20
"""Number of ignored fields that a warning names."""
MISSPELT = 0.8
"""Similarity, from 0 to 1, of names of which one may be a misspelling of the other."""


def used_fields(
    family: Family, config_json: Mapping[str, Any], *, strict: bool = False
) -> dict[str, Any]:
    """The fields of a ``config.json``, aliases replaced, without those that are ignored.

    Args:
        family: the family of the model.
        config_json: the content of its ``config.json``.
        strict: whether a field that would be ignored is refused.

    Raises:
        ModelLoadError: a field may affect the output, and the family does not read it.
    """
    theirs = read_fields(config_json.get("model_type"))
    sorted_fields = _SortedFields(family.name, theirs, {*family.aliases})
    every, canonical = {*EVERY_FAMILY.split()}, family.canonical_fields(config_json)
    if family.part:
        sorted_fields.used(config_json, {*every, family.part}, IRRELEVANT | {*family.around})
    read = {*every, *family.defaults, *family.fields, *family.aliases.values()}
    fields = sorted_fields.used(canonical, read, IRRELEVANT | {*family.unread})
    for name, keys in (ROTARY | dict(family.objects)).items():
        if isinstance(fields.get(name), Mapping):
            fields[name] = sorted_fields.used_of_object(name, fields[name], {*keys})
    if sorted_fields.ignored:
        _report(family.name, sorted_fields.ignored, {*read, *family.aliases}, strict=strict)
    return fields


def check_fields_beside_towers(
    family: TwoTowerFamily, config_json: Mapping[str, Any], *, strict: bool = False
) -> None:
    """Check the fields of a ``config.json`` that are outside the objects of its two towers.

    Args:
        family: the family of the model.
        config_json: the content of its ``config.json``.
        strict: whether a field that would be ignored is refused.

    Raises:
        ModelLoadError: a field may affect the output, and the family does not read it.
    """
    sorted_fields = _SortedFields(family.name, read_fields(family.text.model_types[0]))
    read = {*EVERY_FAMILY.split(), *family.fields}
    sorted_fields.used(config_json, read, IRRELEVANT | {*family.unread})
    if sorted_fields.ignored:
        _report(family.name, sorted_fields.ignored, read, strict=strict)


class _SortedFields:
    """Sorts fields into those that are used and those that are ignored, and refuses the others.

    Args:
        family: the name of the family of the model.
        theirs: names that ``transformers`` may read; ``None`` if it has no models of the type.
        aliases: alternative names of fields that the family reads.

    Attributes:
        ignored: names of the fields that are ignored.
    """

    def __init__(
        self, family: str, theirs: frozenset[str] | None, aliases: Set[str] = frozenset()
    ) -> None:
        self.family, self.theirs, self.aliases = family, theirs, aliases
        self.ignored: list[str] = []

    def used(
        self,
        entries: Mapping[str, Any],
        read: set[str],
        unread: Set[str],
        prefix: str = "",
    ) -> dict[str, Any]:
        """The fields that are not ignored.

        Args:
            entries: the fields, or the entries of an object among them.
            read: names that the family reads.
            unread: names that affect no output.
            prefix: precedes the names in messages.
        """
        used: dict[str, Any] = {}
        for name, value in entries.items():
            is_absent = value is None or (not value and name in PARTS.split())
            if is_absent or name in read or name in unread:
                used[name] = value
            elif self.theirs is None or name in self.theirs or name in STORED.split():
                raise self._refusal(f"{prefix}{name}", value, read)
            else:
                self.ignored.append(f"{prefix}{name}")
        return used

    def used_of_object(
        self, name: str, entries: Mapping[str, Any], keys: set[str]
    ) -> dict[str, Any]:
        """The entries of an object that are not ignored; also of objects by layer type in it."""
        field_names = IRRELEVANT | keys
        by_type = {
            key: self.used(value, keys, IRRELEVANT, f"{name}.{key}.")
            for key, value in entries.items()
            if isinstance(value, Mapping) and key not in field_names
        }
        flat = {key: value for key, value in entries.items() if key not in by_type}
        return self.used(flat, keys, IRRELEVANT, f"{name}.") | by_type

    def _refusal(self, name: str, value: object, read: set[str]) -> ModelLoadError:
        family = self.family
        if name == "quantization_config":
            return ModelLoadError(
                f"{family}: config.json has {name}={shorten(value)}: its weights are quantised. "
                f"{DEQUANTISE}"
            )
        if name in PARTS.split():
            reason = "a part that is not supported"
        elif self.theirs is None:
            near = get_close_matches(name[:MAX_SHOWN], [*read, *self.aliases], n=3)
            reason = "a field that is not known" + (f"; nearest: {', '.join(near)}" if near else "")
        else:
            reason = "which transformers reads for models of this type and this package does not"
        return ModelLoadError(
            f"{family}: config.json has {name[:MAX_SHOWN]}={shorten(value)}, {reason}. Remove it "
            "from config.json if the output does not depend on it."
        )


def _report(family: str, ignored: list[str], read: set[str], *, strict: bool) -> None:
    """Name the ignored fields in a warning, or in an error.

    Args:
        family: the name of the family of the model.
        ignored: their names.
        read: names that the family reads.
        strict: whether they are refused.
    """
    named = [_with_nearest(name, read) for name in ignored[:MAX_NAMED]]
    more = len(ignored) - len(named)
    names = ", ".join(named) + (f" and {more} more" if more else "")
    if strict:
        raise ModelLoadError(
            f"{family}: config.json has fields that no part of the model reads, which "
            f"strict=True refuses: {names}. Remove them from config.json."
        )
    warnings.warn(
        f"{family}: fields of config.json are ignored, because transformers does not read "
        f"them for models of this type: {names}. (strict=True refuses them.)",
        IgnoredFieldsWarning,
        stacklevel=6,  # the caller of interp.load
    )


def _with_nearest(name: str, read: set[str]) -> str:
    """The name, and the field that it may be a misspelling of."""
    near = get_close_matches(name[:MAX_SHOWN], sorted(read), n=1, cutoff=MISSPELT)
    return name[:MAX_SHOWN] + (f" (did you mean {near[0]}?)" if near else "")
