"""A bundled tokenizer has the calls of one of ``transformers``, with the same results."""

import pytest
import torch

import interp
from interp import InterpError
from interp.compat import HookedTransformer

TEXTS = ["def f(x):\n    return x", " self.name =", "a"]


@pytest.fixture(scope="module")
def model():
    return HookedTransformer.from_pretrained("python-2l")


@pytest.fixture
def ours(model):
    model.tokenizer.padding_side = "right"
    return model.tokenizer


@pytest.fixture
def theirs(ours):
    transformers = pytest.importorskip("transformers")
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=ours.backend.backend)
    made.pad_token = made.eos_token = made.bos_token = ours.bos_token
    return made


@pytest.mark.parametrize("side", ["right", "left"])
def test_encodings_are_theirs(ours, theirs, side):
    ours.padding_side = theirs.padding_side = side
    a, b = (tokenizer(TEXTS, return_tensors="pt", padding=True) for tokenizer in (ours, theirs))
    assert torch.equal(a.input_ids, b.input_ids)
    assert torch.equal(a["attention_mask"], b["attention_mask"])
    assert not a.attention_mask.all()
    assert ours(TEXTS[0])["input_ids"] == theirs(TEXTS[0])["input_ids"]
    assert ours(TEXTS).attention_mask == theirs(TEXTS).attention_mask


def test_tokens_and_ids_are_theirs(ours, theirs):
    ids = ours.encode(TEXTS[0])
    assert ids == theirs.encode(TEXTS[0], add_special_tokens=False)
    assert torch.equal(ours.encode(TEXTS[0], return_tensors="pt"), torch.tensor([ids]))
    tokens = ours.convert_ids_to_tokens(ids)
    assert tokens == theirs.convert_ids_to_tokens(ids) == ours.tokenize(TEXTS[0])
    assert ours.convert_ids_to_tokens(ids[0]) == theirs.convert_ids_to_tokens(ids[0])
    assert ours.convert_tokens_to_ids(tokens) == ids
    assert ours.convert_tokens_to_ids(tokens[0]) == ids[0]
    assert ours.all_special_ids == theirs.all_special_ids
    assert ours.decode(ids) == theirs.decode(ids) == TEXTS[0]


def test_what_is_not_there_is_refused(ours):
    with pytest.raises(InterpError, match="no token"):
        ours.convert_tokens_to_ids("no such token")
    with pytest.raises(AttributeError, match="attention_mask"):
        _ = ours("a").no_such_value


def test_one_cached_position_keeps_its_axis(model):
    """As with TransformerLens; the queries of a pattern are sliced, its keys are not."""
    ids = interp.load("python-2l").to_tokens(TEXTS[0])
    _, whole = model.run_with_cache(ids)
    for part, index in ((-1, slice(-1, None)), (2, slice(2, 3)), ((1, 4), slice(1, 4))):
        _, cache = model.run_with_cache(ids, pos_slice=part)
        for name, stored in cache.items():
            axis = {"q": 1, "z": 1, "pattern": 2}.get(name.rpartition("hook_")[2])
            if axis is not None:
                expected = whole[name][(slice(None),) * axis + (index,)]
                assert torch.equal(stored, expected), name
