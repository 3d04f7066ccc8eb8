"""`import transformer_lens` gives the façade after `install`, in a process of its own."""

import subprocess
import sys

import pytest

INSTALL = """
import warnings

from interp import compat

warnings.simplefilter("ignore")
compat.install()
"""
NOTEBOOK = """
import torch
import transformer_lens
import transformer_lens.utils as utils
import transformer_lens.patching as patching
from transformer_lens import ActivationCache, HookedTransformer, HookedTransformerConfig
from transformer_lens import utils as also
from transformer_lens.ActivationCache import ActivationCache as Cache
from transformer_lens.HookedTransformer import HookedTransformer as Model
from transformer_lens.hook_points import HookedRootModule, HookPoint
from transformer_lens.past_key_value_caching import HookedTransformerKeyValueCache
from transformer_lens.cache.key_value_cache import TransformerLensKeyValueCache
from transformer_lens.utilities.devices import get_device

assert utils is also and Cache is ActivationCache
assert Model is HookedTransformer is compat.HookedTransformer
assert HookPoint is compat.HookPoint and HookedRootModule is compat.HookedRootModule
assert HookedTransformerKeyValueCache is TransformerLensKeyValueCache
cfg = HookedTransformerConfig(
    n_layers=2, d_model=8, n_ctx=5, d_head=4, d_vocab=9, act_fn="relu", seed=0
)
model = transformer_lens.HookedTransformer(cfg)
logits, cache = model.run_with_cache(torch.tensor([[1, 2, 3]]))
assert callable(patching.get_act_patch_mlp_out) and get_device()
print(tuple(cache[utils.get_act_name("pattern", 0)].shape))
"""


def run(script):
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_a_notebook_of_theirs_runs():
    code, out, err = run(INSTALL + NOTEBOOK)
    assert code == 0, err
    assert out.strip() == "(1, 2, 3, 3)"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("from transformer_lens import TransformerBridge", "from_pretrained"),
        ("from transformer_lens.model_bridge import TransformerBridge", "from_pretrained"),
        ("import transformer_lens.train", "torch.optim"),
        ("import transformer_lens; transformer_lens.loading", "bundled"),
        ("from transformer_lens.components import LayerNorm", "normalization_type"),
        ("from transformer_lens.utils import no_such_name", "no such name"),
    ],
)
def test_names_that_are_missing_say_what_to_use(in_process, line, hint):
    with pytest.raises((ImportError, AttributeError), match=hint):
        exec(line, {})


@pytest.fixture
def in_process(monkeypatch):
    """The façade installed in this process, in the place of what is imported under the name."""
    from interp import compat  # noqa: PLC0415

    for name in [name for name in sys.modules if name.partition(".")[0] == "transformer_lens"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.warns(UserWarning, match="uninstall"):
        compat.install()
    yield
    compat.uninstall()


def test_installing_is_undone(in_process):
    from interp import compat  # noqa: PLC0415

    compat.install()  # A second time changes nothing, and does not warn.
    compat.uninstall()
    assert "transformer_lens" not in sys.modules
    assert not any(type(finder).__module__.startswith("interp") for finder in sys.meta_path)


def test_an_imported_transformer_lens_is_not_replaced():
    code, _, err = run(
        "import sys, types; sys.modules['transformer_lens'] = types.ModuleType('x')\n" + INSTALL
    )
    assert code != 0
    assert "imported already" in err
