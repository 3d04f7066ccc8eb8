"""The calls that docs/how-to/from-transformerlens.md lists are there, as the page writes them."""

import re
from pathlib import Path

import pytest

from tools.site.pages import blocks_of

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGE = (HOW_TO / "from-transformerlens.md").read_text(encoding="utf-8")
NAMES = (HOW_TO / "transformerlens-notebooks.md").read_text(encoding="utf-8")
TABLE = re.compile(
    r"^\| there, and in `interp\.compat` \|.*\n\|[-| ]+\|\n((?:\|.*\|\n)+)", re.MULTILINE
)
COUNTED = (
    *("cfg", "model(tokens", "return_type", "run_with_cache", "to_numpy", "tokenizer", "cache["),
    *("to_tokens", "get_act_name", "to_str_tokens", "run_with_hooks", "from_pretrained"),
    *("reset_hooks", "to_string", "W_U", "to_single_token", "unembed", "generate", "hooks("),
    *("load_state_dict", "add_hook", "HookedTransformer(", "ln_final", "hook_dict", "cache.keys"),
    *("HookPoint()", "cache_dict", "cache.to", "hook.layer()", "from_pretrained_no_processing"),
    *("stack_activation", "FactoredMatrix", "stack_head_results", "test_prompt", "detect_head"),
    *("get_act_patch_", "set_use_split_qkv_input", ".ctx", "decompose_resid", "accumulated_resid"),
    *("apply_ln_to_stack", "tokens_to_residual_directions", "names_filter", "fwd_hooks"),
)
"""What public notebooks use, by the names that were counted."""


def cells(page):
    """The first cell of each row: what TransformerLens has."""
    rows = [row for table in TABLE.findall(page) for row in table.splitlines()]
    return [row.strip("| ").split(" | ")[0] for row in rows]


def codes(page):
    return [code for cell in cells(page) for code in re.findall(r"`([^`]+)`", cell)]


@pytest.fixture(scope="module")
def names():
    """What the first block of the page on notebooks defines."""
    namespace = {}
    exec(blocks_of(NAMES)[0].text, namespace)
    return namespace


@pytest.mark.parametrize("code", [code for code in codes(PAGE) if "(" in code or "." in code])
def test_a_call_of_the_page_runs_as_it_stands(code, names, capsys):
    exec(code, names)
    names["model"].reset_hooks(including_permanent=True)
    names["model"].set_use_split_qkv_input(False)


@pytest.mark.parametrize("name", COUNTED)
def test_every_name_that_was_counted_has_a_row(name):
    assert any(name in cell for cell in cells(PAGE))


def test_a_call_that_is_not_there_would_be_found(names):
    row = (
        "| there, and in `interp.compat` | uses |\n| --- | --- |\n| `model.no_such_call()` | 1 |\n"
    )
    (code,) = codes(row)
    with pytest.raises(AttributeError):
        exec(code, names)
