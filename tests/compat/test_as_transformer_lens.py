"""`import transformer_lens` gives the façade after `install`, in a process of its own."""

import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

from interp.compat.as_transformer_lens import MODULES

NAME = "transformer_lens"
INSTALL = """
import warnings

from interp import compat  # noqa: PLC0415

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
        ("from transformer_lens.evals import IOIDataset", "TransformerLens itself"),
        ("from transformer_lens.utilities.devices import resolve_device_map", "one device"),
        ("from transformer_lens import SVDInterpreter", "svd"),
        ("from transformer_lens.utils import no_such_name", "no such name"),
    ],
)
def test_names_that_are_missing_name_what_to_use(in_process, line, hint):
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


LACKING = {
    "bases": "HookIntrospectionMixin BaseTensorConversion TensorLike T TYPE_CHECKING",
    "activation functions": "XIELU xielu relu2",
    "loading": "autoconfig_with_remote_post_init_compat autotokenizer_with_special_token_compat "
    "call_hf_with_retry enable_hf_numeric_tower enable_hf_retry get_hf_token "
    "make_post_init_kwarg_tolerant CACHE_DIR HF_HUB_CACHE DTYPE_FROM_STRING "
    "NON_HF_HOSTED_MODEL_NAMES POST_NORM_ARCHITECTURES",
    "messages": "CACHE_WITH_SEQ_LIST_ERR DET_PAT_NOT_SQUARE_ERR INVALID_HEAD_NAME_ERR SEQ_LEN_ERR",
}
"""Names of TransformerLens that this package has in no module, and for which it has no advice."""


@pytest.fixture(scope="module")
def their_names():
    """The public names of each module that the façade stands in for, without other libraries'."""
    pytest.importorskip("transformer_lens")
    names = {}
    for name in ("", *MODULES):
        try:
            module = import_module(f"transformer_lens.{name}".rstrip("."))
        except ModuleNotFoundError:  # a module of version 2
            continue
        names[module.__name__] = {
            name
            for name, value in vars(module).items()
            if not name.startswith("_")
            and not isinstance(value, ModuleType)
            # Constants do not say where they are from.
            and (getattr(value, "__module__", None) or NAME).startswith(NAME)
        }
    return names


def is_importable(module, name):
    try:
        exec(f"from {module} import {name}", {})
    except ImportError as error:
        return "; use " in str(error)
    return True


@pytest.mark.filterwarnings("ignore")
def test_every_public_name_is_importable_or_has_advice_or_is_listed(their_names, in_process):
    missing = {
        name
        for module, names in their_names.items()
        for name in names
        if not is_importable(module, name)
    }
    assert missing == set(" ".join(LACKING.values()).split())


def test_a_name_imported_from_another_module_is_the_same(in_process):
    namespace = {}
    exec(
        "from transformer_lens.HookedTransformer import HookedRootModule, HookPoint, utils\n"
        "from transformer_lens.hook_points import HookedRootModule as Root\n"
        "import transformer_lens.utils as module\n",
        namespace,
    )
    assert namespace["HookedRootModule"] is namespace["Root"]
    assert namespace["utils"] is namespace["module"]


def test_installing_is_undone(in_process):
    from interp import compat  # noqa: PLC0415 - imports torch

    compat.install()  # A second time changes nothing, and does not warn.
    compat.uninstall()
    assert "transformer_lens" not in sys.modules
    assert not any(type(finder).__module__.startswith("interp") for finder in sys.meta_path)


@pytest.mark.slow
def test_an_imported_transformer_lens_is_not_replaced():
    code, _, err = run(
        "import sys, types; sys.modules['transformer_lens'] = types.ModuleType('x')\n" + INSTALL
    )
    assert code != 0
    assert "imported already" in err
