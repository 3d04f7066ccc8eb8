"""Whatever a field of a configuration is changed to, ours computes what theirs does, or refuses it.

The fields and their values are generated from the classes of configurations (see
:mod:`agreement.perturbed`). So fields that later versions of ``transformers`` add are tried too,
and fields that ours ignores are shown to have no effect.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields as fields_of
from itertools import cycle

import pytest
import torch
from agreement.comparing import BOUND, beside, called, inputs_of, off, pair_of
from agreement.exact import exact, randomised
from agreement.perturbed import UNKNOWN, Fields, changed, drawn, each_alone
from agreement.small import FAR, FULL, LINEAR, LLAMA3, SLIDING, Case
from agreement.test_families import CASES, FIRST
from torch import Tensor, nn
from transformers import PreTrainedConfig

from interp import InterpError, Transformer
from interp.errors import IgnoredFieldsWarning
from interp.loading.assemble import assemble
from interp.loading.foreign_config import ForeignConfig
from interp.loading.known_fields import IRRELEVANT
from interp.loading.registry import families, family_of
from interp.loading.source import StateDictSource
from interp.loading.transformers_fields import read_fields

pytestmark = pytest.mark.agreement
MAX_WEIGHTS = 10**6
"""Larger models are not tried."""
STRAY = (
    *("_model_name_or_path", "_num_labels", "activation_function", "bias", "causal_mask"),
    *("do_blenderbot_90_layernorm", "dual_chunk_attention_config", "export_model_type", "fc_type"),
    *("ffn_config", "full_attn_mod", "interpolate_antialias", "interpolate_factor"),
    *("interpolate_offset", "is_llama_config", "layer_norm_epsilon", "learned_embeddings"),
    *("lm_head_bias", "model_file", "model_max_length", "n_special", "neftune_noise_alpha"),
    *("norm_eps", "predict_special_tokens", "rope_interleaved", "rope_pct"),
    *("rotary_scaling_factor", "scale", "scale_attn_weights", "sentence_transformers"),
    *("sliding_window_size", "transformers.js_config", "unsloth_fixed", "unsloth_version"),
    *("use_norm_bias", "window_size", UNKNOWN),
)
"""Fields of published files that few types of models read, or none."""
AGREED, THEIRS, OURS = "agreed", "refused by theirs", "refused by ours"
EVERY = [pytest.param(*case.values, id=case.id, marks=pytest.mark.slow) for case in CASES]
ONE_EACH = [pytest.param(*case.values, id=case.id) for case in FIRST]
OTHERS = [case for case in EVERY if case.id not in {param.id for param in FIRST}]


def outcome(case: Case, fields: Fields) -> str:
    """What a configuration leads to: an agreement, a refusal, or a fault, in words."""
    try:
        with exact(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            theirs = case.of(fields)
            if sum(weight.numel() for weight in theirs.parameters()) > MAX_WEIGHTS:
                return THEIRS
            theirs, complete = randomised(theirs), theirs.config.to_dict()
    except Exception:
        return THEIRS
    identity = {"model_type": case.config.model_type, "architectures": [type(theirs).__name__]}
    outcomes = [
        of_json(theirs, {**config_fields, **identity}) for config_fields in (fields, complete)
    ]
    return next((end for end in outcomes if end.startswith("fault")), outcomes[0])


def of_json(theirs: nn.Module, fields: Fields) -> str:
    """The outcome for theirs and for ours, which has these fields in ``config.json``."""
    left = {name: value for name, value in fields.items() if name != "attn_implementation"}
    config_json = json.loads(json.dumps(left))
    try:
        with exact():
            weights = StateDictSource(theirs.state_dict())
            ours = assemble(family_of(config_json), config_json, weights)
        inputs = inputs_for(ours, getattr(theirs.config, "pad_token_id", None))
    except InterpError:
        return OURS
    except Exception as error:
        return f"fault: ours raised {error!r}"
    with torch.no_grad():
        try:
            out = called(theirs, inputs, return_dict=True)
            out.keys()  # which a tuple lacks: some give it out whatever is asked for
        except Exception:
            return THEIRS
        output, expected = beside(out, ours, inputs)
    if not expected.isfinite().all():
        return THEIRS
    if output.shape != expected.shape:
        return f"fault: {tuple(output.shape)} against {tuple(expected.shape)}"
    error = off(output, expected) if output.isfinite().all() else torch.nan
    return AGREED if error <= BOUND else f"fault: off by {error:.2g}"


def inputs_for(ours: Transformer, pad: int | None) -> list[Tensor]:
    """Random inputs without the padding token, whose positions theirs counts differently."""
    inputs = inputs_of(ours, pos=min(11, ours.config.n_ctx))
    if pad is None or inputs[0].is_floating_point():
        return inputs
    return [ids.where(ids != pad, max(0, pad - 1) if pad else 1) for ids in inputs]


def faults(case: Case, changes: Iterable[Fields]) -> tuple[dict[str, str], Counter[str]]:
    """The changes that lead to a fault, and the number of changes by outcome."""
    faulty: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for change in changes:
        end = outcome(case, changed(case.fields, change))
        counts[end.partition(":")[0]] += 1
        if end.startswith("fault"):
            faulty[str(change)] = end
    return faulty, counts


@pytest.mark.parametrize(("family", "name"), ONE_EACH)
def test_a_changed_field_is_followed_or_refused(family, name):
    case = family.cases[name]
    faulty, counts = faults(case, [*drawn(case, 4), *drawn(case, 2, together=2)])
    assert not faulty, counts


@pytest.mark.parametrize(("family", "name"), OTHERS)
def test_a_changed_field_of_other_cases_is_followed_or_refused(family, name):
    case = family.cases[name]
    faulty, counts = faults(case, [*drawn(case, 1), *drawn(case, 1, together=2)])
    assert not faulty, counts


@pytest.mark.nightly
@pytest.mark.parametrize(("family", "name"), EVERY)
def test_every_changed_field_is_followed_or_refused(family, name):
    """Some of them are followed."""
    case = family.cases[name]
    faulty, counts = faults(case, [*each_alone(case), *drawn(case, 400, together=2)])
    assert not faulty, counts
    assert counts[AGREED] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), ONE_EACH)
def test_a_field_that_is_listed_as_irrelevant_changes_nothing(family, name):
    """Unless theirs refuses it. Each of three values is given to a third of the fields.

    Each family tests a third, in turn, of the fields that no family reads. All fields are changed
    together, except those with which theirs can't be built.
    """
    case, turn = family.cases[name], [param.values[0] for param in FIRST].index(family)
    loader = families()[case.config.model_type]
    unread = set(loader.around if loader.part else loader.unread)
    ignored = sorted(unread | {*sorted(IRRELEVANT)[turn % 3 :: 3]})
    set_to = dict(zip(ignored, cycle([True, 3, "other"]), strict=False))
    outcomes = ends(
        case, {field: value for field, value in set_to.items() if can_build(case, field, value)}
    )
    assert {field: end for field, end in outcomes.items() if end not in (AGREED, THEIRS)} == {}
    assert Counter(outcomes.values())[AGREED] > len(set_to) / 2


def can_build(case: Case, name: str, value: object) -> bool:
    try:
        case.of({**case.fields, name: value})
    except Exception:
        return False
    return True


def ends(case: Case, changes: Fields) -> dict[str, str]:
    """The outcome of each change: made all together, then by halves if they do not agree."""
    end = outcome(case, {**case.fields, **changes})
    if end == AGREED or len(changes) == 1:
        return dict.fromkeys(changes, end)
    half, both = len(changes) // 2, list(changes.items())
    return ends(case, dict(both[:half])) | ends(case, dict(both[half:]))


@pytest.mark.parametrize(("family", "name"), FIRST)
def test_fields_that_theirs_does_not_read_are_ignored(family, name):
    """All together, as published files have them, with one warning for each model."""
    case = family.cases[name]
    theirs = read_fields(case.config.model_type)
    stray = dict(zip(STRAY, cycle([True, 3, 0.5, "other"]), strict=False))
    stray = {field: value for field, value in stray.items() if field not in theirs | IRRELEVANT}
    loader = family_of({"model_type": case.config.model_type})
    published = {*loader.fields, *loader.defaults, *loader.aliases}  # read where theirs does not
    stray = {field: value for field, value in stray.items() if field not in published}
    assert len(stray) > len(STRAY) - 8
    with pytest.warns(IgnoredFieldsWarning) as caught:
        assert outcome(case, {**case.fields, **stray}) == AGREED
    named = [warning for warning in caught if warning.category is IgnoredFieldsWarning]
    assert len(named) == 2  # one for the fields that are given, one for all of theirs
    assert outcome(case, {**case.fields, UNKNOWN: None}) == AGREED


@pytest.mark.parametrize(("family", "name"), FIRST)
def test_every_field_that_theirs_reads_is_in_the_table(family, name, monkeypatch):
    """What its class declares, and what is read while a model is built and called."""
    case, seen = family.cases[name], set[tuple[str, str]]()
    read = PreTrainedConfig.__getattribute__

    def noting(config: PreTrainedConfig, field: str) -> object:
        seen.add((type(config).model_type, field))
        return read(config, field)

    ours = pair_of(family, name)[1]
    monkeypatch.setattr(PreTrainedConfig, "__getattribute__", noting)
    with exact(), torch.no_grad():
        called(case().double().eval(), inputs_of(ours))
    kind = case.config.model_type
    declared = {field.name for field in fields_of(case.config)} | {*case.config.attribute_map}
    methods = {*dir(PreTrainedConfig), "__deepcopy__", "__setstate__"}
    accessed = {field for of, field in seen if of == kind and field not in methods}
    assert len(accessed) > 10
    assert (declared | accessed) - read_fields(kind) - IRRELEVANT == set()


def first_of(family: str) -> Case:
    return next(
        candidate.cases[name]
        for candidate, name in (case.values for case in FIRST)
        if candidate.name == family
    )


@pytest.mark.parametrize(
    ("family", "fields", "end"),
    [
        ("Llama", {"is_causal": None}, OURS),
        ("Gemma", {"hidden_act": "gelu_python"}, AGREED),
        ("Gemma", {"hidden_act": "gelu"}, AGREED),
        ("T5", {"scale_decoder_outputs": None}, AGREED),
        # Names that some types of models have and others ignore.
        ("GPT-2", {"scale_attn_weights": False}, AGREED),
        ("GPT-J", {"scale_attn_weights": False}, AGREED),
        ("ModernBERT", {"norm_eps": 0.1}, AGREED),
        ("Llama", {"norm_eps": 0.1}, AGREED),
        ("OPT", {"activation_function": "gelu"}, AGREED),
        ("BERT", {"activation_function": "relu"}, AGREED),
        ("BERT", {"is_decoder": True}, OURS),
        ("Llama", {"is_decoder": True}, AGREED),
        ("Llama", {"add_cross_attention": True}, AGREED),
        # Names that theirs reads, and that ours does not support.
        ("Llama", {"sliding_window": 4}, OURS),
        ("GPT-2", {"is_encoder_decoder": True}, OURS),
        ("Llama", {"pruned_heads": {"0": [1]}}, OURS),
        ("Llama", {"rope_scaling": {**LINEAR, "mrope_section": [1, 1, 1]}}, OURS),
        ("Llama", {"rope_scaling": {**LINEAR, "finetuned": True}}, AGREED),
        (
            "Gemma 3 (text)",
            {
                "original_max_position_embeddings": 8,
                "rope_parameters": {
                    FULL: {**LLAMA3, **FAR, "original_max_position_embeddings": 32},
                    SLIDING: FAR,
                },
            },
            AGREED,
        ),
    ],
)
def test_fields_that_theirs_reads_in_another_way_than_most(family, fields, end):
    case = first_of(family)
    assert outcome(case, {**case.fields, **fields}) == end


def test_a_field_that_ours_ignores_is_found(monkeypatch):
    """The converse."""
    case = first_of("Llama")
    change = {"rms_norm_eps": 0.5}
    assert faults(case, [change])[0] == {}
    monkeypatch.setattr(ForeignConfig, "number", lambda *_: 1e-6)
    assert list(faults(case, [change])[0]) == [str(change)]
