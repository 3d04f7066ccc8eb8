"""The functions of ``utils``: what they promise, and that TransformerLens gives the same."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from interp.compat import utils
from interp.compat.factored_matrix import FactoredMatrix
from interp.errors import InvalidInput

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def theirs():
    pytest.importorskip("transformer_lens")
    import transformer_lens.utilities as module  # noqa: PLC0415

    return module


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_every_public_name_of_transformer_lens_is_there_or_has_a_replacement(theirs):
    modules = {name for name in vars(theirs) if hasattr(vars(theirs)[name], "__path__")}
    public = {
        name
        for name, value in vars(theirs).items()
        if not name.startswith("_") and type(value).__name__ != "module"
    }
    missing = public - set(utils.__all__) - modules
    assert "get_dataset" in missing
    for name in missing:
        with pytest.raises(ImportError, match="; use "):
            exec(f"from interp.compat.utils import {name}")
    with pytest.raises(ImportError, match=r"get_dataset: .*use datasets\.load_dataset"):
        exec("from interp.compat.utils import get_dataset")
    with pytest.raises(AttributeError, match="no such name"):
        _ = utils.get_datasets


NAMES = [
    ("embed",), ("k6",), ("scale4ln1",), ("pre5",), ("resid_pre", 2), ("k", 6, "a"), ("pattern", 0),
    ("normalized", 27, "ln2"), ("normalized",), ("scale",), ("mlp_pre", 3), ("attn_logits", 1),
    ("hook_embed",), ("blocks.0.hook_resid_pre",), ("query", 1), ("attn_out", 3), ("mlp_out", 3),
    ("resid_pre", 1, "block"), ("rot_q", 1), ("pos_embed",), ("attn5",), ("resid_post", -1),
]  # fmt: skip


def test_names_of_hook_points():
    assert utils.get_act_name("k", 6, "a") == "blocks.6.attn.hook_k"
    assert utils.get_act_name("scale4ln1") == "blocks.4.ln1.hook_scale"
    assert utils.get_act_name("normalized") == "ln_final.hook_normalized"
    assert utils.get_act_name("resid_pre", 0) == "blocks.0.hook_resid_pre"


@pytest.mark.parametrize("arguments", NAMES, ids=str)
def test_names_are_those_of_transformer_lens(theirs, arguments):
    assert utils.get_act_name(*arguments) == theirs.get_act_name(*arguments)


def tokenizer(bos=1, pad=0, side="left"):
    return SimpleNamespace(bos_token_id=bos, pad_token_id=pad, padding_side=side)


TOKENS = torch.tensor([[0, 0, 1, 5, 0, 7], [1, 4, 5, 6, 7, 8]])


def test_an_attention_mask_is_of_padding_at_its_side_alone():
    assert utils.get_attention_mask(tokenizer(), TOKENS, prepend_bos=True).tolist() == [
        [0, 0, 1, 1, 1, 1],
        [1] * 6,
    ]
    right = utils.get_attention_mask(tokenizer(side="right"), TOKENS, prepend_bos=True)
    assert right.bool().all()
    same = utils.get_attention_mask(tokenizer(bos=0), TOKENS, prepend_bos=True)
    assert same[0].tolist() == [0, 1, 1, 1, 1, 1]
    assert utils.get_attention_mask(None, TOKENS, prepend_bos=True).all()


def calls():
    """Calls of both libraries with equal arguments, by their name."""
    logits, tokens = drawn(2, 5, 11), torch.tensor([[1, 2, 3, 4, 5], [9, 8, 7, 7, 7]])
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]])
    x = drawn(2, 3, 4)
    return {
        "lm_cross_entropy_loss": [(logits, tokens), (logits, tokens, mask),
                                  (logits, tokens, mask.bool(), True),
                                  (logits, tokens, None, True)],
        "lm_accuracy": [(logits, tokens), (logits, tokens, True)],
        "gelu_new": [(x,)], "gelu_fast": [(x,)], "solu": [(x,)],
        "remove_batch_dim": [(x,), (x[:1],)], "get_corner": [(x,), (x, 1)],
        "is_square": [(x,), (x[0],), (x[0, :, :3],)],
        "is_lower_triangular": [(x[0, :, :3],), (x[0, :, :3].tril(),), (x[0],)],
        "get_attention_mask": [(tokenizer(bos, pad, side), TOKENS, prepend)
                               for bos in (0, 1) for pad in (0, 8) for side in ("left", "right")
                               for prepend in (True, False)],
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(calls()))
def test_functions_give_what_transformer_lens_gives(theirs, name):
    for arguments in calls()[name]:
        computed, expected = (getattr(module, name)(*arguments) for module in (utils, theirs))
        assert type(computed) is type(expected)
        if isinstance(computed, torch.Tensor):
            assert_close(computed, expected, rtol=1e-6, atol=1e-6)
        else:
            assert computed == expected


@pytest.mark.parametrize("x", [3, 2.5, "a", [1, 2], (1, 2), np.ones(2)], ids=repr)
def test_to_numpy_takes_what_is_no_tensor(x):
    assert np.array_equal(utils.to_numpy(x), np.array(x))


def test_to_numpy_takes_parameters_and_bfloat16_and_refuses_the_rest():
    assert utils.to_numpy(torch.nn.Parameter(torch.ones(2))).tolist() == [1, 1]
    assert utils.to_numpy(torch.ones(2, dtype=torch.bfloat16)).dtype == np.float32
    with pytest.raises(InvalidInput, match="to_numpy"):
        utils.to_numpy({1: 2})


SLICES = [None, 2, -1, (3,), (1, 4), (0, 5, 2), [1, 3], np.array([0, 2]), torch.tensor([4, 0]),
          slice(1, 3)]  # fmt: skip


@pytest.mark.parametrize("index", SLICES, ids=repr)
def test_slices_are_those_of_transformer_lens(theirs, index):
    ours, other, x = utils.Slice(index), theirs.Slice(index), drawn(5, 5)
    assert repr(ours) == repr(other)
    assert ours.apply(x, dim=-1).equal(other.apply(x, dim=-1))
    assert np.array_equal(ours.indices(5), other.indices(5))
    unwrapped = utils.Slice.unwrap(index).apply(x)
    assert unwrapped.equal(theirs.Slice.unwrap(index).apply(x))


def test_an_integer_drops_the_axis_unless_it_is_unwrapped():
    assert utils.Slice(2).apply(drawn(5, 3)).shape == (3,)
    assert utils.Slice.unwrap(2).apply(drawn(5, 3)).shape == (1, 3)
    with pytest.raises(InvalidInput, match="max_ctx"):
        utils.Slice((1, 3)).indices()
    with pytest.raises(InvalidInput, match="slice is"):
        utils.Slice("a")


SAMPLINGS = [{}, {"top_k": 3}, {"top_k": 99}, {"top_p": 0.6}, {"top_p": 1e-9}, {"temperature": 0.0},
             {"temperature": 0.3, "freq_penalty": 1.5}, {"repetition_penalty": 1.7},
             {"repetition_penalty": 1.7, "temperature": 0.0}]  # fmt: skip


@pytest.mark.parametrize("options", SAMPLINGS, ids=str)
def test_samples_are_those_of_transformer_lens_from_the_same_seed(theirs, options):
    logits, tokens = drawn(64, 12), torch.randint(12, (64, 6))
    for seed in range(5):
        torch.manual_seed(seed)
        samples = utils.sample_logits(logits.clone(), tokens=tokens, **options)
        torch.manual_seed(seed)
        assert samples.equal(theirs.sample_logits(logits.clone(), tokens=tokens, **options))


def test_samples_are_among_the_most_probable():
    logits = drawn(200, 12)
    top = logits.topk(2).indices
    assert (utils.sample_logits(logits, top_k=2)[:, None] == top).any(-1).all()
    assert (utils.sample_logits(logits, top_p=1e-9) == top[:, 0]).all()
    assert not (utils.sample_logits(logits) == top[:, 0]).all()
    for options in ({"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}, {"freq_penalty": 1.0}):
        with pytest.raises(InvalidInput):
            utils.sample_logits(logits, **options)


@pytest.mark.parametrize("broadcast", [True, False])
def test_composition_scores(theirs, broadcast):
    left = FactoredMatrix(drawn(3, 6, 2), drawn(3, 2, 5, seed=1))
    right = FactoredMatrix(drawn(3, 5, 2, seed=2), drawn(3, 2, 6, seed=3))
    scores = utils.composition_scores(left, right, broadcast)
    a, b = (left.AB[:, None], right.AB) if broadcast else (left.AB, right.AB)
    norm = torch.linalg.matrix_norm
    assert_close(scores, norm(a @ b) / norm(a) / norm(b))
    from transformer_lens import FactoredMatrix as Theirs  # noqa: PLC0415

    other = (Theirs(*left.pair), Theirs(*right.pair))
    assert_close(scores, theirs.composition_scores(*other, broadcast))


class Words:
    """Words as ids: BOS 0, EOS 1, padding 2."""

    eos_token, eos_token_id, bos_token_id, pad_token, pad_token_id = "e", 1, 0, None, 2

    def __call__(self, texts, add_special_tokens=True, verbose=True):
        return {"input_ids": [[int(word) for word in text.split()] for text in texts]}

    def add_special_tokens(self, tokens):
        self.pad_token = tokens["pad_token"]


@pytest.mark.slow
@pytest.mark.parametrize("add_bos", [True, False])
def test_rows_of_tokens_are_the_texts_joined_by_eos(add_bos, datasets):
    texts = datasets.Dataset.from_dict({"text": ["5 6 7", "8 9", "10 11 12 13"], "n": [1, 2, 3]})
    rows = utils.tokenize_and_concatenate(
        texts, Words(), max_length=4, add_bos_token=add_bos, num_proc=None
    )
    joined = [5, 6, 7, 1, 8, 9, 1, 10, 11, 12, 13]
    width = 3 if add_bos else 4
    expected = [joined[at : at + width] for at in range(0, len(joined) - width + 1, width)]
    assert rows["tokens"][:].tolist() == [[0] * add_bos + row for row in expected]
    short = utils.tokenize_and_concatenate(
        texts.select([1]), Words(), max_length=6, add_bos_token=add_bos, num_proc=None
    )
    assert re.match(r"(0, )?8, 9, 1, 1", str(short["tokens"][0].tolist())[1:])


class Letters:
    """A model of letters whose most probable next token is the next letter."""

    def to_tokens(self, text, prepend_bos=None):
        texts = [text] if isinstance(text, str) else text
        return torch.tensor([[ord(c) - 96 for c in t.strip()] for t in texts])

    def to_str_tokens(self, text, prepend_bos=None):
        return list(text.strip())

    def to_string(self, token):
        return chr(int(token) + 96)

    def __call__(self, tokens):
        return -(torch.arange(27.0) - tokens[..., None] - 1).abs()


@pytest.mark.parametrize(
    ("answer", "ranks"),
    [("d", "[('d', 0)]"), ("dz", "[('d', 0), ('z', 26)]"), (["d", "f"], "[[('d', 0), ('f', 4)]]")],
)
def test_a_prompt_is_tested_on_what_should_follow(capsys, answer, ranks):
    utils.test_prompt("abc", answer, Letters(), top_k=2)
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == f"Ranks of the answer tokens: {ranks}"
    assert "Tokenized prompt: ['a', 'b', 'c']" in printed
    assert "Top 0th token. Logit: -0.00" in printed or "Top 0th token. Logit:  0.00" in printed
    utils.test_prompt("abc", answer, Letters(), print_details=False)
    assert len(capsys.readouterr().out.splitlines()) == 1
