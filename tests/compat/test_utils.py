"""The functions of ``utils``: what they promise, and that TransformerLens gives the same."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from interp.compat import utils
from interp.compat.factored_matrix import FactoredMatrix
from interp.errors import InvalidInput, ModelLoadError


@pytest.fixture(scope="module")
def theirs():
    pytest.importorskip("transformer_lens")
    import transformer_lens.utilities as module  # noqa: PLC0415

    return module


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_every_public_name_of_transformer_lens_is_there(theirs):
    modules = {name for name in vars(theirs) if hasattr(vars(theirs)[name], "__path__")}
    public = {
        name
        for name, value in vars(theirs).items()
        if not name.startswith("_") and type(value).__name__ != "module"
    }
    assert public - set(utils.__all__) - modules == set()


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


def test_bos_is_removed_behind_padding():
    removed = utils.get_tokens_with_bos_removed(tokenizer(), TOKENS)
    assert removed.tolist() == [[0, 0, 5, 0, 7], [4, 5, 6, 7, 8]]
    right = utils.get_tokens_with_bos_removed(tokenizer(), TOKENS, padding_side="right")
    assert right.equal(TOKENS[:, 1:])


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
        "apply_softcap": [(x, 2.0), (x, -1.0), (x, None)],
        "softcap_enabled": [(1.0,), (-1.0,), (None,)],
        "remove_batch_dim": [(x,), (x[:1],)], "transpose": [(x,)], "get_corner": [(x,), (x, 1)],
        "is_square": [(x,), (x[0],), (x[0, :, :3],)],
        "is_lower_triangular": [(x[0, :, :3],), (x[0, :, :3].tril(),), (x[0],)],
        "get_offset_position_ids": [(0, mask), (2, mask.flip(1))],
        "get_cumsum_along_dim": [(x, 1), (x, -1, True)],
        "repeat_along_head_dimension": [(x, 3), (x, 2, False)],
        "calc_fan_in_and_fan_out": [(x,), (x[0],), (x[0, 0],)],
        "get_attention_mask": [(tokenizer(bos, pad, side), TOKENS, prepend)
                               for bos in (0, 1) for pad in (0, 8) for side in ("left", "right")
                               for prepend in (True, False)],
        "get_tokens_with_bos_removed": [(tokenizer(), TOKENS), (tokenizer(0), TOKENS[:1]),
                                        (tokenizer(None), TOKENS)],
        "get_input_with_manually_prepended_bos": [("<s>", "a"), ("<s>", ["a", "b"]), (None, "a")],
        "filter_dict_by_prefix": [({"a.b": 1, "a.c.d": 2, "ab": 3}, "a"), ({"a.b": 1}, "a.")],
        "override_or_use_default_value": [(1, None), (1, 2), (True, False)],
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(calls()))
def test_functions_give_what_transformer_lens_gives(theirs, name):
    for arguments in calls()[name]:
        found, expected = (getattr(module, name)(*arguments) for module in (utils, theirs))
        assert type(found) is type(expected)
        if isinstance(found, torch.Tensor):
            assert_close(found, expected, rtol=1e-6, atol=1e-6)
        else:
            assert found == expected


@pytest.mark.parametrize("name", sorted(utils.SUPPORTED_ACTIVATIONS))
def test_activation_functions_are_those_of_transformer_lens(theirs, name):
    x = 3 * drawn(4, 7)
    ours = utils.SUPPORTED_ACTIVATIONS[name](x)
    assert_close(ours, theirs.SUPPORTED_ACTIVATIONS[name](x), rtol=1e-6, atol=1e-6)


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
        found = utils.sample_logits(logits.clone(), tokens=tokens, **options)
        torch.manual_seed(seed)
        assert found.equal(theirs.sample_logits(logits.clone(), tokens=tokens, **options))


def test_samples_are_among_the_most_probable():
    logits = drawn(200, 12)
    top = logits.topk(2).indices
    assert (utils.sample_logits(logits, top_k=2)[:, None] == top).any(-1).all()
    assert (utils.sample_logits(logits, top_p=1e-9) == top[:, 0]).all()
    assert not (utils.sample_logits(logits) == top[:, 0]).all()
    for options in ({"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}, {"freq_penalty": 1.0}):
        with pytest.raises(InvalidInput):
            utils.sample_logits(logits, **options)


INITIALIZERS = ["init_xavier_uniform_", "init_xavier_normal_", "init_kaiming_uniform_",
                "init_kaiming_normal_"]  # fmt: skip


@pytest.mark.parametrize("name", INITIALIZERS)
def test_initial_weights_are_those_of_transformer_lens_from_the_same_seed(theirs, name):
    for shape in ((7,), (7, 5), (2, 7, 3)):
        drawn_by = []
        for module in (utils, theirs):
            torch.manual_seed(0)
            drawn_by.append(getattr(module, name)(torch.empty(shape)))
        assert_close(*drawn_by)
    with pytest.raises(InvalidInput):
        utils.calc_fan_in_and_fan_out(torch.ones(()))


@pytest.mark.parametrize("broadcast", [True, False])
def test_composition_scores(theirs, broadcast):
    left = FactoredMatrix(drawn(3, 6, 2), drawn(3, 2, 5, seed=1))
    right = FactoredMatrix(drawn(3, 5, 2, seed=2), drawn(3, 2, 6, seed=3))
    found = utils.composition_scores(left, right, broadcast)
    a, b = (left.AB[:, None], right.AB) if broadcast else (left.AB, right.AB)
    norm = torch.linalg.matrix_norm
    assert_close(found, norm(a @ b) / norm(a) / norm(b))
    from transformer_lens import FactoredMatrix as Theirs  # noqa: PLC0415

    other = (Theirs(*left.pair), Theirs(*right.pair))
    assert_close(found, theirs.composition_scores(*other, broadcast))


def test_defaults_are_overridden_within_a_context_alone():
    def model():
        cfg = SimpleNamespace(default_prepend_bos=True)
        return SimpleNamespace(cfg=cfg, tokenizer=tokenizer(side="right"))

    own = model()
    with (  # noqa: PT012 - raised inside the context
        pytest.raises(ZeroDivisionError),
        utils.LocallyOverridenDefaults(own, prepend_bos=False, padding_side="left"),
    ):
        assert (own.cfg.default_prepend_bos, own.tokenizer.padding_side) == (False, "left")
        raise ZeroDivisionError
    assert own == model()
    with utils.LocallyOverridenDefaults(own, prepend_bos=None):
        assert own == model()
    with pytest.raises(InvalidInput, match="overridden"):
        utils.LocallyOverridenDefaults(own, d_model=3)
    with pytest.raises(InvalidInput, match="padding_side"):
        utils.LocallyOverridenDefaults(own, padding_side="up").__enter__()


def test_a_swapped_parameter_is_restored():
    parameter = torch.nn.Parameter(torch.zeros(2))
    with (  # noqa: PT012 - raised inside the context
        pytest.raises(ZeroDivisionError),
        utils.temporarily_swap_parameter(parameter, torch.ones(2)),
    ):
        assert parameter.tolist() == [1, 1]
        raise ZeroDivisionError
    assert parameter.tolist() == [0, 0]
    for value in (torch.ones(3), torch.ones(2).double(), [1, 1]):
        with pytest.raises(InvalidInput), utils.temporarily_swap_parameter(parameter, value):
            pass


def test_structure_is_that_of_transformer_lens(theirs, capsys):
    x = drawn(3, 3)
    for pair in ((x, 2 * x), (x, -x), (x, x[:, [1, 0, 2]])):
        utils.check_structure(*pair)
        found = capsys.readouterr().out
        theirs.check_structure(*pair)
        assert found == capsys.readouterr().out
        utils.check_structure(*pair, verbose=True)
        assert capsys.readouterr().out.endswith(found)


def test_logits_as_a_table():
    pytest.importorskip("pandas")
    logits = torch.tensor([0.0, 2.0, 1.0])
    decode = SimpleNamespace(decode=lambda ids: "abc"[ids[0]])
    table = utils.logits_to_df(logits, decode, top_k=2)
    assert table.token_string.tolist() == ["b", "c"]
    assert table.probability.tolist() == pytest.approx(logits.softmax(-1)[[1, 2]].tolist())


def test_what_cannot_be_done_here_is_refused_with_advice():
    with pytest.raises(InvalidInput, match="one device"):
        utils.resolve_device_map(2, None)
    with pytest.raises(InvalidInput, match="hf cache delete"):
        utils.clear_huggingface_cache()
    with pytest.raises(InvalidInput, match="there are openwebtext"):
        utils.get_dataset("mine")


def test_a_dataset_that_cannot_be_downloaded_says_what_to_do():
    pytest.importorskip("datasets")
    with pytest.raises(InvalidInput, match="load_from_disk"):
        utils.get_dataset("pile")


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


@pytest.mark.parametrize("name", ["config.json", "final.pth"])
@pytest.mark.parametrize("content", ["damaged", "large", "device"])
def test_a_downloaded_file_is_read_within_bounds(name, content, monkeypatch, tmp_path):
    import huggingface_hub  # noqa: PLC0415 - slow to import

    from interp.compat.utils import datasets as module  # noqa: PLC0415

    path = tmp_path / name
    if content == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"{" * 100)
    if content == "large":
        monkeypatch.setattr(module, "MAX_JSON_BYTES", 10)
        monkeypatch.setattr(module, "MAX_WEIGHTS_BYTES", 10)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: str(path))
    with pytest.raises(ModelLoadError, match="can't be read" if content != "large" else "larger"):
        utils.download_file_from_hf("org/name", name)
