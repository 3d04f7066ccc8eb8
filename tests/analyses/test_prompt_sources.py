"""Every analysis of several prompts takes them from an iterator, a file or a dataset, too."""

from inspect import signature
from pathlib import Path

import pandas as pd
import pytest
import torch
from architectures import assert_identical, build, tokens_of
from declared import Declared, declarations
from permuted import tables_of

import interp
from analyses import ablate_heads, patch_activations
from interp import Transformer
from interp.errors import InvalidTokens
from interp.prompts import read_batches

PROMPTS = ("prompts", "texts", "clean", "corrupt")
"""Parameters that take several prompts."""


def prompts_of(declared: Declared) -> dict[str, torch.Tensor]:
    """The arguments of an analysis that are several prompts."""
    call = signature(declared.analysis).bind_partial(*declared.call.arguments).arguments
    return {
        name: value
        for name, value in call.items()
        if name in PROMPTS and torch.is_tensor(value) and len(value) > 1
    }


OF_SEVERAL = [declared for declared in declarations().values() if prompts_of(declared)]


@pytest.mark.parametrize("declared", OF_SEVERAL, ids=lambda declared: declared.name)
def test_an_iterator_gives_the_tables_of_a_list(declared):
    """Bit for bit; but for an analysis that keeps no numbers of the prompts of an iterator."""
    streams = {name: iter(value) for name, value in prompts_of(declared).items()}
    torch.manual_seed(0)
    expected = tables_of(declared.result_of_call())
    torch.manual_seed(0)
    result = declared.result_of_call(**streams)
    assert not any(any(True for _ in stream) for stream in streams.values())
    if declared.name == "attention_statistics":
        assert len(result.to_frame()) == len(expected["to_frame"])
        return
    tables = tables_of(result)
    assert list(tables) == list(expected)
    for name, table in expected.items():
        pd.testing.assert_frame_equal(tables[name], table, check_exact=True)


def test_several_analyses_of_each_kind_are_among_them():
    names = {declared.name for declared in OF_SEVERAL}
    assert {"ablate", "patch_activations", "logit_lens", "probe", "train_lens", "steer"} <= names
    assert len(names) > 20


@pytest.fixture(scope="module")
def model() -> Transformer:
    return interp.load("python-2l")


def test_a_file_gives_what_its_texts_give(model, tmp_path):
    texts = ["def f(x):\\n    return x", "class A(B):", "import torch"]
    file = tmp_path / "texts.jsonl"
    file.write_text("\n".join(f'{{"text": "{text}"}}' for text in texts), encoding="utf-8")
    texts = [text.replace("\\n", "\n") for text in texts]
    expected = ablate_heads(model, texts).to_frame()
    for source in (Path(file), iter(texts), (each.text for each in interp.iter_prompts(file))):
        pd.testing.assert_frame_equal(ablate_heads(model, source).to_frame(), expected)


def test_both_sides_of_a_pair_are_iterators(model):
    clean, corrupt = ["a b c", "a d b"], ["a c b", "a b d"]
    metric = interp.metrics.logit("a")
    expected = patch_activations(model, clean, corrupt, metric=metric).to_frame()
    result = patch_activations(model, iter(clean), iter(corrupt), metric=metric).to_frame()
    pd.testing.assert_frame_equal(result, expected)


def test_pairs_are_read_for_an_encoder_decoder():
    both = build("t5"), tokens_of("t5", batch=3, pos=5)
    model, (source, target) = both
    pairs = zip(source[:, None], target[:, None], strict=True)
    for batch, expected in zip(read_batches(model, pairs), model.batches(both[1]), strict=True):
        assert_identical(batch.ids, expected.ids)


def test_a_prompt_that_can_not_be_read_is_named(model):
    """One that is too long is refused: corpora are cut into parts, prompts are not."""
    for wrong, message in (
        (["a b", "a " * 999], "text 1: .*context"),
        (["a b", 3.5], "text 1: "),
        ([], "holds no text"),
    ):
        with pytest.raises(InvalidTokens if wrong else interp.InterpError, match=message):
            ablate_heads(model, iter(wrong))
