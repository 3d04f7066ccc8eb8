"""Names of models are those of TransformerLens, and lead to the same repositories."""

import pytest

from interp import InterpError
from interp.compat import HookedTransformer
from interp.compat.model_names import hub_name
from interp.compat.published import (
    get_checkpoint_labels,
    get_official_model_name,
    source_of,
)

NOT_HERE = (
    *("hubert", "wav2vec2", "w2v2", "medgemma"),  # of sounds, or of images as well
    *("olmoe", "gpt-oss"),  # architectures of which the façade has not every part
    *("qwen-", "santacoder"),  # code of their own
    *("llama-7b", "llama-13b", "llama-30b", "llama-65b"),  # not on the hub under these names
    *("olmo-3", "apertus"),  # architectures without a field in a configuration of version 3
)
"""Beginnings of names that are not known here."""


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("gpt2-small", "openai-community/gpt2"),
        ("gpt2", "openai-community/gpt2"),
        ("GPT-Neo-125M", "EleutherAI/gpt-neo-125M"),
        ("pythia-70m-deduped-v0", "EleutherAI/pythia-70m-deduped-v0"),
        ("pythia-125m", "EleutherAI/pythia-160m"),
        ("Llama-2-7b", "meta-llama/Llama-2-7b-hf"),
        ("tiny-stories-1L-21M", "roneneldan/TinyStories-1Layer-21M"),
    ],
)
def test_a_name_leads_to_its_repository(name, repository):
    assert hub_name(name) == repository
    assert source_of(name) == f"hub:{repository}"
    assert source_of(f"{name}@main") == f"hub:{repository}@main"


def test_other_names_are_left_alone():
    assert hub_name("no-such-model") is None
    assert source_of("no-such-model") == "no-such-model"
    assert source_of("someone/model") == "hub:someone/model"
    assert source_of("python-2l@2000") == "python-2l@2000"


@pytest.mark.parametrize("name", ["solu-2l", "gelu-1l", "attn-only-2l", "NeelNanda/SoLU_1L_v9_old"])
def test_files_of_transformerlens_itself_are_refused(name):
    with pytest.raises(InterpError, match="load_state_dict"):
        HookedTransformer.from_pretrained(name)


def same(repository):
    """Without the organisations that the hub added later, and without capitals."""
    return repository.removeprefix("openai-community/").removeprefix("distilbert/").lower()


@pytest.mark.slow
def test_every_name_of_theirs_is_known_or_refused():
    models = pytest.importorskip("transformer_lens.supported_models")
    wrong = {}
    for repository, aliases in models.MODEL_ALIASES.items():
        for alias in aliases:
            try:
                name = hub_name(alias)
            except InterpError:
                continue
            if name is None:
                wrong |= {} if alias.lower().startswith(NOT_HERE) else {alias: None}
            elif same(name) != same(repository):
                wrong[alias] = name
    assert not wrong


@pytest.mark.slow
def test_official_names_and_checkpoints_are_theirs():
    theirs = pytest.importorskip("transformer_lens.loading_from_pretrained")
    wrong = {}
    for alias, name in theirs.make_model_alias_map().items():
        try:
            official = get_official_model_name(alias)
        except InterpError as error:
            official = str(error)
        short = name.rpartition("/")[2].lower()
        if official != name and not ("state dict" in official or short.startswith(NOT_HERE)):
            wrong[alias] = official
    assert not wrong
    for name in ("pythia-70m", "pythia-70m-v0", "stanford-gpt2-small-a"):
        assert get_checkpoint_labels(name) == theirs.get_checkpoint_labels(name)
    for name in ("gpt2", "no-such-model"):
        for labels in (get_checkpoint_labels, theirs.get_checkpoint_labels):
            with pytest.raises(ValueError, match=name):
                labels(name)
