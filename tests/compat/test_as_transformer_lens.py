"""`import transformer_lens` gives the façade after `install`, in a process of its own."""

import subprocess
import sys
from importlib import import_module
from importlib.metadata import version

import pytest

from interp import InterpError
from interp.compat.as_transformer_lens import NAMES, exported_names, table
from tools import lens_names

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


@pytest.mark.slow
def test_a_notebook_of_theirs_runs():
    code, out, err = run(INSTALL + NOTEBOOK)
    assert code == 0, err
    assert out.strip() == "(1, 2, 3, 3)"


@pytest.mark.parametrize(
    ("line", "use", "hint"),
    [
        ("from transformer_lens.model_bridge import TransformerBridge as name", "()", "pretrained"),
        ("import transformer_lens.train as name", ".train(1)", r"torch\.optim"),
        ("from transformer_lens import loading as name", ".get_basic_config()", "bundled"),
        ("from transformer_lens.evals import IOIDataset as name", "(1)", "TransformerLens itself"),
        ("from transformer_lens.utils import resolve_device_map as name", "()", "one device"),
        ("from transformer_lens import SVDInterpreter as name", "(1)", "svd"),
        ("from transformer_lens.utils import SUPPORTED_ACTIVATIONS as name", "['relu']", "torch"),
        ("from transformer_lens.utils import TypedModuleList as name", ".extra", "ModuleList"),
    ],
)
def test_names_that_are_missing_name_what_to_use_when_used(in_process, line, use, hint):
    names = {}
    exec(line, names)
    with pytest.raises(InterpError, match=hint):
        exec(f"name{use}", names)


@pytest.mark.slow
def test_a_name_that_no_module_has_is_an_import_error(in_process):
    with pytest.raises(ImportError, match="no_such_name"):
        exec("from transformer_lens.utils import no_such_name", {})
    with pytest.raises(ImportError, match="no_such_module"):
        exec("import transformer_lens.no_such_module", {})


def test_a_class_that_is_missing_can_be_subclassed_and_tested_for(in_process):
    names = {}
    exec(
        "from transformer_lens.model_bridge import TransformerBridge\n"
        "class Model(TransformerBridge):\n    number: TransformerBridge | None = None\n",
        names,
    )
    assert not isinstance(3, names["TransformerBridge"])
    assert issubclass(names["Model"], names["TransformerBridge"])
    assert not hasattr(names["TransformerBridge"], "boot_transformers")
    with pytest.raises(NotImplementedError, match="interp"):
        names["Model"]()


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


@pytest.mark.slow
def test_the_table_and_the_page_are_those_of_the_installed_version(in_process):
    names = lens_names.all_names()
    assert NAMES.read_text(encoding="utf-8") == lens_names.table(names), "tools.lens_names"
    assert lens_names.PAGE.read_text(encoding="utf-8") == lens_names.page(names)


def test_every_public_name_is_importable_from_every_module_that_has_it(in_process):
    missing = []
    for module, names in table().items():
        for name in names:
            try:
                exec(f"from {module} import {name}", {})
            except ImportError:
                missing.append(f"{module}.{name}")
    assert not missing


def test_a_name_that_is_imported_is_the_same_everywhere(in_process):
    """A supported name is this package's, in its own module and where others import it."""
    supported, different = exported_names(), []
    for module, names in table().items():
        for name, origin in names.items():
            is_theirs = origin is None or origin.startswith(f"{NAME}.")
            if is_theirs and name in supported:
                value = getattr(import_module(module), name)
                different += [] if value is supported[name] else [f"{module}.{name}"]
    assert not different


def test_the_version_is_that_of_transformerlens(in_process):
    assert version("transformer-lens").startswith("3.9")


def test_a_name_imported_from_another_module_is_the_same(in_process):
    namespace = {}
    exec(
        "from transformer_lens.HookedTransformer import HookedRootModule, HookPoint, utils\n"
        "from transformer_lens.hook_points import HookedRootModule as Root\n"
        "import transformer_lens.utils as module\n",
        namespace,
    )
    assert namespace["HookedRootModule"] is namespace["Root"]
    assert namespace["utils"].get_act_name is namespace["module"].get_act_name


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
