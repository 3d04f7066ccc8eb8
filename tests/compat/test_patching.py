"""Patching as a sweep gives what a forward for each cell gives, with less computed."""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

import interp
from interp.compat import patching
from interp.compat.one_position import OfOnePosition, ReadsMore, column_read
from interp.config.parts import AttentionConfig, MLPConfig
from interp.config.stack import StackConfig
from interp.errors import InvalidInput

EVERY = [name for name in dir(patching) if name.startswith("get_act_patch")]


class Model:
    """Stands in for a HookedTransformer: its core, its settings, its calls."""

    def __init__(self, n_kv_heads=None):
        torch.manual_seed(0)
        stack = StackConfig(2, AttentionConfig(2, 4, n_kv_heads), MLPConfig(10))
        self.core = interp.Transformer(interp.Config(8, 11, 6, decoder=stack))
        for parameter in self.core.parameters():
            torch.nn.init.normal_(parameter)
        self.cfg = SimpleNamespace(
            n_layers=2, n_heads=2, n_key_value_heads=n_kv_heads, device="cpu"
        )
        self.hook_dict = {}
        self.forwards = 0

    def __call__(self, tokens):
        return self.core(tokens)

    def run_with_hooks(self, tokens, fwd_hooks):
        self.forwards += 1
        return self.core.run_with_hooks(tokens, fwd_hooks=fwd_hooks)


@pytest.fixture(scope="module")
def tokens():
    return torch.randint(11, (2, 3, 5), generator=torch.Generator().manual_seed(1))


def last(logits):
    return (logits[:, -1, 3] - logits[:, -1, 4]).mean()


def by_row(logits):
    return logits[torch.arange(3), -1, torch.tensor([1, 2, 3])].square().sum()


def whole(logits):
    return logits.softmax(-1)[..., 2].mean() + logits.std()


@pytest.fixture(scope="module", params=[None, 1])
def model(request):
    return Model(request.param)


@pytest.fixture(scope="module")
def clean(model, tokens):
    return model.core.run_with_cache(tokens[0])[1]


CASES = [(name, last) for name in EVERY] + [
    (f"get_act_patch_{name}", metric)
    for name in ("attn_head_out_all_pos", "attn_head_pattern_by_pos", "resid_pre")
    for metric in (by_row, whole)
]


@pytest.mark.parametrize(("name", "metric"), CASES)
def test_a_sweep_gives_what_forwards_give(model, tokens, clean, name, metric, monkeypatch):
    patch = getattr(patching, name)
    model.forwards = 0
    fast = patch(model, tokens[1], clean, metric)
    assert model.forwards == 0
    monkeypatch.setattr(patching, "swept", lambda *arguments: None)
    slow = patch(model, tokens[1], clean, metric)
    assert model.forwards == int((slow != 0).sum())
    assert fast.shape == slow.shape
    assert_close(fast, slow, rtol=1e-5, atol=1e-5)
    assert fast.std() > 0


def test_hooks_on_the_model_are_run_in_every_forward(tokens):
    model = Model()
    clean = model.core.run_with_cache(tokens[0])[1]
    model.hook_dict = {"hook_embed": SimpleNamespace(fwd_hooks=[len], bwd_hooks=[])}
    table = patching.get_act_patch_resid_pre(model, tokens[1], clean, last)
    assert model.forwards == table.numel()


@pytest.mark.parametrize(
    ("metric", "column"),
    [
        (last, 4),
        (by_row, 4),
        (lambda logits: logits[:, 1].sum() / logits.shape[0], 1),
        (lambda logits: logits[..., -2, :].sum(), 3),
        (lambda logits: logits[:, 2:3].sum(), 2),
        (lambda logits: logits[:, -1].sum() - logits[:, 0].sum(), None),
        (lambda logits: logits[:, 1:].sum(), None),
        (lambda logits: logits.argmax(-1)[:, -1].sum(), None),
        (lambda logits: logits[0].sum(), None),
        (lambda logits: logits[logits > 0].sum(), None),
        (lambda logits: (2 * logits)[:, -1].sum(), None),
        (whole, None),
    ],
)
def test_the_position_that_a_function_reads_is_found(metric, column):
    logits = torch.randn(3, 5, 11, generator=torch.Generator().manual_seed(0))
    assert column_read(metric, logits) == column
    if column is None:
        return
    of_it = OfOnePosition(column, metric, 5, 3).compute(logits[:, column])
    assert_close(of_it, metric(logits).expand(3))
    with pytest.raises(ReadsMore):
        OfOnePosition(column - 1, metric, 5, 3).compute(logits[:, column])


def test_a_function_that_reads_more_under_a_patch_is_given_all(model, tokens, clean, monkeypatch):
    base = last(model(tokens[1]))

    def moved(logits):
        value = last(logits)
        return value if (value - base).abs() < 1e-3 else logits[:, 0].sum() + logits.mean()

    fast = patching.get_act_patch_resid_pre(model, tokens[1], clean, moved)
    monkeypatch.setattr(patching, "swept", lambda *arguments: None)
    slow = patching.get_act_patch_resid_pre(model, tokens[1], clean, moved)
    assert_close(fast, slow, rtol=1e-4, atol=1e-4)


def test_a_table_of_cells_and_a_setter_of_ones_own(model, tokens, clean):
    pytest.importorskip("pandas")
    table, cells = patching.generic_activation_patch(
        model, tokens[1], clean, last, patching.layer_pos_patch_setter, "resid_pre",
        index_axis_names=("layer", "pos"), return_index_df=True,
    )  # fmt: skip
    assert list(cells.columns) == ["layer", "pos"]
    flat = patching.generic_activation_patch(
        model, tokens[1], clean, last, patching.layer_pos_patch_setter, "resid_pre", None, cells
    )
    assert_close(flat, table.flatten())

    def same(corrupted, index, clean_activation):
        return corrupted

    unpatched = patching.generic_activation_patch(
        model, tokens[1], clean, last, same, "resid_pre", ("layer", "pos")
    )
    assert_close(unpatched, last(model(tokens[1])).detach().expand(2, 5), rtol=1e-5, atol=1e-5)
    with pytest.raises(InvalidInput, match="either"):
        patching.generic_activation_patch(model, tokens[1], clean, last, same, "resid_pre")
    with pytest.raises(InvalidInput, match="Axes"):
        patching.generic_activation_patch(model, tokens[1], clean, last, same, "z", ("layer", "x"))
