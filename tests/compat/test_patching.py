"""Patching gives TransformerLens's grids, mostly by one sweep instead of a forward a cell."""

from importlib.util import find_spec

import pytest
import torch
from torch.testing import assert_close

from interp.compat import HookedTransformer, HookedTransformerConfig, patching, patching_sweep
from interp.errors import InterpError, InvalidInput
from tests.compat.shapes import SHAPES, built, fields, perturb

pytestmark = pytest.mark.slow

GRIDS = [
    name
    for name in dir(patching)
    if name.startswith("get_act_patch") and not name.endswith(("_every", "dest_src_pos"))
]
OTHERS = [name for name in dir(patching) if name.startswith("get_act_patch") and name not in GRIDS]
MISSING = {"attention-only": ("mlp_out", "resid_mid"), "pythia": ("resid_mid",)}


@pytest.fixture(autouse=True)
def float64_tables():
    """Tables are in torch's default dtype, in both libraries."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(autouse=True)
def patch_of_theirs(monkeypatch):
    if find_spec("transformer_lens") is not None:
        monkeypatch.setattr("transformer_lens.patching.tqdm", iter)


@pytest.fixture
def forwards(monkeypatch):
    """The cells that were computed by a forward of their own."""
    cells, one_cell = [], patching._metric_of_cell

    def counted(*arguments):
        cells.append(arguments[-1])
        return one_cell(*arguments)

    monkeypatch.setattr(patching, "_metric_of_cell", counted)
    return cells


def tokens(below=7):
    """Clean and corrupted rows, which are equal at the first position."""
    ids = torch.randint(0, below, (2, 2, 5), generator=torch.Generator().manual_seed(2))
    ids[1, :, 0] = ids[0, :, 0]
    return ids


def last(logits):
    return (logits[:, -1, 3] - logits[:, -1, 4]).mean()


def whole(logits):
    return logits.softmax(-1)[..., 2].mean() + logits.std()


def pair(name, dtype=torch.float64):
    """Our model and theirs, with the same weights; gated MLPs have no bias, as loaded ones."""
    theirs = pytest.importorskip("transformer_lens")
    model = theirs.HookedTransformer(theirs.HookedTransformerConfig(**fields(name, dtype)))
    perturb(model)
    for block in model.blocks:
        if model.cfg.gated_mlp:
            block.mlp.b_in.data.zero_()
    ours = HookedTransformer(HookedTransformerConfig(**fields(name, dtype)))
    ours.load_state_dict(model.state_dict())
    return ours, model


@torch.no_grad()
def both(name_of_grid, models, metric, ids):
    """The grid of each library."""
    theirs = pytest.importorskip("transformer_lens.patching")
    caches = [model.run_with_cache(ids[0])[1] for model in models]
    return [
        getattr(library, name_of_grid)(model, ids[1], cache, metric)
        for library, model, cache in zip((patching, theirs), models, caches, strict=True)
    ]


def close(actual, expected, tolerance=1e-9):
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    assert (actual - expected).abs().max() <= tolerance * max(1.0, expected.abs().max())
    assert expected.std() > 0


FAST = ("gpt2", "llama")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST)) for name in SHAPES],
)
def test_grids_are_those_of_transformer_lens(name, forwards):
    models = pair(name)
    for grid in GRIDS:
        if not grid.endswith(MISSING.get(name, ("nothing",))):
            close(*both(grid, models, last, tokens()))
    assert not forwards


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SHAPES)
def test_grids_in_float32(name, forwards):
    models = pair(name, torch.float32)
    for grid in ("resid_pre", "attn_head_out_all_pos", "attn_head_pattern_by_pos"):
        close(*both(f"get_act_patch_{grid}", models, last, tokens()), 1e-5)
    assert not forwards


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("grid", OTHERS)
def test_grids_of_several_activations(grid, forwards):
    close(*both(grid, pair("gpt2"), last, tokens()[:, :1, :4]))
    assert not forwards


def by_row(logits):
    return logits[torch.arange(2), -1, torch.tensor([1, 2])].square().sum()


def own_positions(logits):
    return logits[[0, 1], [2, 4], [1, 1]].sum()


def caught(logits):
    try:
        return logits.std() + logits[:, -1].sum()
    except Exception:
        return logits[:, -1].sum()


METRICS = {
    "by row": by_row,
    "whole": whole,
    "own positions": own_positions,
    "one row": lambda logits: logits[0, -1, 3],
    "row, then position": lambda logits: logits[0][-1, 3] - logits[0][-1, 2],
    "log probability": lambda logits: logits.log_softmax(dim=-1)[:, -1, 2].mean(),
    "function of torch": lambda logits: torch.softmax(logits.float(), -1)[0, -1, 2],
    "gathered": lambda logits: logits[:, -1, :].gather(-1, torch.tensor([[1], [2]])).mean(),
    "over positions": lambda logits: logits.softmax(1)[:, -1, 2].mean(),
    "loss": lambda logits: torch.nn.functional.cross_entropy(logits[0, :-1], tokens()[1][0, 1:]),
    "two positions": lambda logits: logits[:, -1, 0].sum() - logits[:, 1, 0].sum(),
    "one element": lambda logits: logits[:1, -1, 3],
    "catches errors": caught,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_metrics_of_any_positions(metric, forwards):
    models = pair("gpt2")
    for grid in ("resid_pre", "attn_head_out_all_pos"):
        close(*both(f"get_act_patch_{grid}", models, metric, tokens()), 1e-6)
    assert not forwards


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("setting", ["use_split_qkv_input", "use_attn_in", "use_attn_result"])
def test_settings(setting, forwards):
    models = pair("gpt2")
    for model in models:
        setattr(model.cfg, setting, True)
    for grid in ("resid_pre", "attn_head_q_all_pos", "attn_head_v_by_pos"):
        close(*both(f"get_act_patch_{grid}", models, last, tokens()))
    assert not forwards


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_caches_of_theirs_and_dictionaries(forwards):
    ours, theirs = pair("gpt2")
    ids = tokens()
    our_cache, their_cache = (model.run_with_cache(ids[0])[1] for model in (ours, theirs))
    of_z = ours.run_with_cache(ids[0], names_filter=lambda name: name.endswith("hook_z"))[1]
    caches = [our_cache, their_cache, dict(our_cache), of_z]
    patch = patching.get_act_patch_attn_head_out_by_pos
    first, *rest = (patch(ours, ids[1], cache, last) for cache in caches)
    for table in rest:
        close(table, first)
    assert not forwards


@pytest.mark.filterwarnings("ignore")
def test_processed_weights(forwards):
    models = pair("gpt2")
    state = models[1].state_dict()
    for model in models:
        model.load_and_process_state_dict({key: value.clone() for key, value in state.items()})
    for grid in ("resid_pre", "attn_head_out_all_pos", "attn_head_pattern_all_pos"):
        close(*both(f"get_act_patch_{grid}", models, last, tokens()), 1e-5)
    assert not forwards


@pytest.mark.filterwarnings("ignore")
def test_hooks_on_the_model_are_run_in_every_forward(forwards):
    models = pair("gpt2")
    grids = [both("get_act_patch_resid_pre", models, last, tokens())]
    for model in models:
        model.add_hook("blocks.0.attn.hook_z", lambda x, hook: 0.5 * x)
    grids.append(both("get_act_patch_resid_pre", models, last, tokens()))
    for grid in grids:
        close(*grid)
    assert not torch.allclose(grids[0][0], grids[1][0])
    assert len(forwards) == grids[1][0].numel()


@pytest.mark.filterwarnings("ignore")
def test_a_bias_that_the_core_has_not_is_added(forwards):
    models = pair("llama")
    for model in models:
        model.blocks[0].mlp.b_in.data.fill_(0.5)
    close(*both("get_act_patch_resid_pre", models, last, tokens()))
    assert forwards


def from_the_end(x, index, clean):
    x[:, -1 - index[1]] = clean[:, -1 - index[1]]
    return x


SETTERS = {
    "adds": lambda x, index, clean: x + 0.1 * clean[:, index[1]][:, None],
    "two positions": lambda x, index, clean: torch.where(
        (torch.arange(5) % 3 == index[1] % 3)[None, :, None], clean, x
    ),
    "from the end": from_the_end,
    "in place": lambda x, index, clean: x[:, index[1]].copy_(clean[:, index[1]]) is None or x,
    "nothing": lambda x, index, clean: x,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("setter", SETTERS.values(), ids=SETTERS)
@pytest.mark.parametrize("activation", ["resid_pre", "mlp_post", "resid_post"])
def test_setters_of_ones_own(setter, activation, forwards):
    theirs = pytest.importorskip("transformer_lens.patching")
    ids, tables = tokens(), []
    for library, model in zip((patching, theirs), pair("solu"), strict=True):
        with torch.no_grad():
            cache = model.run_with_cache(ids[0])[1]
            tables.append(
                library.generic_activation_patch(
                    model, ids[1], cache, last, setter, activation, ("layer", "pos")
                )
            )
    assert_close(*tables, rtol=1e-9, atol=1e-9)
    assert not forwards


def test_tables_of_cells(forwards):
    pytest.importorskip("pandas")
    model, ids = built("gpt2"), tokens()
    clean = model.run_with_cache(ids[0])[1]
    arguments = (model, ids[1], clean, last, patching.layer_pos_patch_setter, "resid_pre")
    table, cells = patching.generic_activation_patch(
        *arguments, index_axis_names=("layer", "pos"), return_index_df=True
    )
    assert list(cells.columns) == ["layer", "pos"]
    flat, same = patching.generic_activation_patch(*arguments, None, cells, return_index_df=True)
    assert same is cells
    assert_close(flat, table.flatten())
    cells["pos"] -= 5  # the same positions, from the end
    assert_close(patching.generic_activation_patch(*arguments, None, cells), flat)
    assert not forwards
    with pytest.raises(InvalidInput, match="either"):
        patching.generic_activation_patch(*arguments)
    with pytest.raises(InvalidInput, match="Axes"):
        patching.generic_activation_patch(*arguments, ("layer", "x"))


def test_cells_before_the_first_difference_are_the_corrupted_run(monkeypatch):
    model, ids = built("gpt2"), tokens()
    clean, planned = model.run_with_cache(ids[0])[1], []
    values = patching_sweep._values

    def counted(core, rows, patches, *rest):
        planned.extend(patches)
        return values(core, rows, patches, *rest)

    monkeypatch.setattr(patching_sweep, "_values", counted)
    table = patching.get_act_patch_resid_pre(model, ids[1], clean, last)
    assert len(planned) == 2 * 4
    assert_close(table[:, 0], last(model(ids[1])).detach().expand(2), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(table[:, 1], table[:, 0])
    same = patching.get_act_patch_resid_pre(model, ids[0], clean, last)
    assert_close(same, last(model(ids[0])).detach().expand(2, 5), rtol=1e-12, atol=1e-12)
    assert len(planned) == 2 * 4


def test_weights_are_packed_for_many_patches_of_large_models(monkeypatch):
    model, ids = (
        HookedTransformer(HookedTransformerConfig(**fields("gpt2", torch.float32))),
        tokens(),
    )
    clean, pack = model.run_with_cache(ids[0])[1], patching_sweep.packed
    plain = patching.get_act_patch_attn_head_out_all_pos(model, ids[1], clean, last)
    packings = []
    for name, value in {"REPAYS": 8, "faster_kernel": lambda _: ("packed", None)}.items():
        monkeypatch.setattr(patching_sweep, name, value)
    monkeypatch.setattr(patching_sweep, "packed", lambda core: packings.append(core) or pack(core))
    fast = patching.get_act_patch_attn_head_out_all_pos(model, ids[1], clean, last)
    assert len(packings) == 1
    assert_close(fast, plain, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(patching_sweep, "REPAYS", 9)
    patching.get_act_patch_attn_head_out_all_pos(model, ids[1], clean, last)
    assert len(packings) == 1


def test_errors_of_metric_and_setter_are_theirs():
    model, ids = built("gpt2"), tokens()
    clean = model.run_with_cache(ids[0])[1]
    patch = patching.get_act_patch_resid_pre
    with pytest.raises(InvalidInput, match="single number"):
        patch(model, ids[1], clean, lambda logits: logits[:, -1, 0])
    with pytest.raises(KeyError, match="mine"):
        patch(model, ids[1], clean, lambda logits: {}["mine"])
    with pytest.raises(InterpError, match="hook_z"):
        patching.get_act_patch_attn_head_out_all_pos(
            model,
            ids[1],
            model.run_with_cache(ids[0], names_filter=lambda name: "q" in name)[1],
            last,
        )


def test_a_metric_that_reads_more_under_a_patch_is_given_all(forwards):
    model, ids = built("gpt2"), tokens()
    clean, base = model.run_with_cache(ids[0])[1], last(model(ids[1]))

    def moved(logits):
        value = last(logits)
        return value if (value - base).abs() < 1e-6 else logits[:, 0].sum() + logits.mean()

    fast = patching.get_act_patch_resid_pre(model, ids[1], clean, moved)
    assert not forwards
    cells = [(layer, pos) for layer in range(2) for pos in range(5)]
    setter = patching.layer_pos_patch_setter
    for layer, pos in cells:
        cell_value = patching._metric_of_cell(
            model, ids[1], clean, moved, setter, f"blocks.{layer}.hook_resid_pre", (layer, pos)
        )
        assert fast[layer, pos].item() == pytest.approx(cell_value, abs=1e-9)
