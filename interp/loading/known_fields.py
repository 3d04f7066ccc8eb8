"""Fields of a ``config.json`` that are accepted.

A field is accepted if the family reads it, or if it affects the output of no model. Any other field
is refused, because it may describe a part that the family does not have. Null counts as missing.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from interp.errors import MAX_SHOWN, ModelLoadError, shorten
from interp.loading.family import EVERY_FAMILY, Family

PARTS = (
    "add_cross_attention attention_chunk_size cross_attention_hidden_size is_decoder "
    "is_encoder_decoder per_layer_config pruned_heads quantization_config tie_encoder_decoder"
)
"""Fields of parts that a model has only if its family reads the field; otherwise, only ``false``
and empty values are accepted. Here and below, names are separated by spaces."""

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


def check_known(family: Family, fields: Mapping[str, Any]) -> None:
    """Refuse fields that the family does not read and that may affect the output.

    Args:
        family: the family of the model.
        fields: its fields, with aliases replaced.

    Raises:
        ModelLoadError: there is such a field; the message has its name and the nearest known ones.
    """
    read = {*EVERY_FAMILY.split(), *family.defaults, *family.fields, *family.aliases.values()}
    _check_fields(family, fields, read, family.unread)


def check_around(family: Family, config_json: Mapping[str, Any]) -> None:
    """Refuse such fields outside of the part that is loaded.

    Args:
        family: the family of the model.
        config_json: the content of its ``config.json``.

    Raises:
        ModelLoadError: as for :func:`check_known`.
    """
    if family.part:
        _check_fields(family, config_json, {*EVERY_FAMILY.split(), family.part}, family.around)


def _check_fields(
    family: Family, fields: Mapping[str, Any], read: set[str], unread: tuple[str, ...]
) -> None:
    known, parts = read | IRRELEVANT | set(unread), PARTS.split()
    for name, value in fields.items():
        if value is None or name in known or (name in parts and not value):
            continue
        if name == "quantization_config":
            raise ModelLoadError(
                f"{family.name}: config.json has {name}={shorten(value)}: its weights are "
                f"quantised. {DEQUANTISE}"
            )
        if name in parts:
            raise _refusal(family, name, value, "a part that is not supported")
        near = get_close_matches(name[:MAX_SHOWN], [*read, *family.aliases], n=3, cutoff=0.5)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise _refusal(family, name, value, f"a field that is not known{hint}")


def _refusal(family: Family, name: str, value: object, reason: str) -> ModelLoadError:
    return ModelLoadError(
        f"{family.name}: config.json has {name[:MAX_SHOWN]}={shorten(value)}, {reason}. Remove it "
        "from config.json if the output does not depend on it."
    )
