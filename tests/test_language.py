"""No module, class, function or method bears a word for which the project has a better one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("interp", "analyses", "apps")

NOWHERE = {
    "restart point": "door doors",
    "recorder": "listener listeners",
    "must_form": "forms",
    "applied": "met",
    "scope": "reach reached freedom",
    "KV cache": "past",
    "fixed KV": "seen",
    "extend_kv": "recall recalled",
    "fixed_kv": "remember remembered",
    "compact, derive, required places": "holding deriving leaves",
    "weight version": "as_it_was",
    "absent_when_fused": "on_demand",
    "names, token bytes, low-rank": "atlas spelling spellings factored",
    "no positions, no soft-cap, relative bias, sinusoidal": "unturned uncapped ranges waves",
    "is_bidirectional, is_cross, is_causal": "looks_ahead looks_across is_triangle",
    "access, remeasure, build": "told retold making",
    "training run, checkpoint, circuit": "workshop unfinished truth truths",
    "evaluations, add_biases": "proof proofs room rooms roomy",
    "foreign config, set_tokenizer": "raw equip",
    "atomic folder, print": "staging staged say says tell tells",
    "what it does": "util utils helper helpers misc manager managers",
}
"""The words to use, and those that names do not have (joined by ``_``: in this order)."""

IN_A_ROOM = {
    "interp/sweeps": {
        "restart point, restart map": "entrance entrances way ways",
        "baseline, case": "clean item items",
        "batched forward, per-case edit": "fold folds folded shared",
        "validate, padded": "fits laid",
    },
    "interp/model": {
        "restart point": "entrance entrances way ways",
        "hidden, output, hidden point": "inner outer between",
        "KV cache, encoder_output": "memory",
    },
    "interp/execution": {"KV cache, encoder_output": "memory"},
    "interp/names.py": {"resolve": "reading readings"},
    "apps": {
        "session state, widgets, wording": "chosen shown answer answers reading",
        "figure layout": "fit fitted",
    },
}
"""Words that mean something else in other rooms: dictionaries have items, weights are folded."""

WHOLE_NAMES = {
    **{package: {"what it does": "common"} for package in PACKAGES},
    "interp/execution/recorder.py": {"scoped": "at"},
    "interp/model/tap.py": {"scoped": "at"},
    "interp/model/embedding_kinds.py": {"token types": "Types"},
    "interp/model/recipe.py": {"compute": "make", "stored": "KEPT"},
    "interp/io/tensor_data.py": {"tensor data": "Values"},
    "interp/loading": {"registry": "foreign", "sliding window": "windows"},
}
"""Names of which only the whole is meant, fields and constants among them."""

OF_TRANSFORMER_LENS = (
    *("utils", "factored_matrix", "FactoredMatrix", "make_df_from_ranges"),
    "refactor_factored_attn_matrices",
)
"""Names in ``interp/compat`` that are another library's, under which its users look for them."""


class Name(NamedTuple):
    """A name, and where it is given."""

    file: str
    line: int
    name: str


def words_of(name: str) -> list[str]:
    """``ReadsTheDoor_again`` → reads the door again."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return [word for word in apart.lower().split("_") if word]


def names_in(tree: ast.Module, file: str) -> Iterator[Name]:
    """Of the module (or, in its ``__init__.py``, the package), its classes and functions."""
    path = Path(file)
    yield Name(file, 1, path.parent.name if path.stem == "__init__" else path.stem)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield Name(file, node.lineno, node.name)


def values_in(tree: ast.Module, file: str) -> Iterator[Name]:
    """Of its constants, and the fields of its classes."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for node in [statement for body in (tree, *classes) for statement in body.body]:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield Name(file, node.lineno, target.id)


def instead_of(name: Name) -> str | None:
    """The words to use, where a name has a word that it should not have; else ``None``."""
    if _is_in(name, "interp/compat") and name.name in OF_TRANSFORMER_LENS:
        return None
    tables = [NOWHERE, *(table for room, table in IN_A_ROOM.items() if _is_in(name, room))]
    delimited = f"_{'_'.join(words_of(name.name))}_"
    for table in tables:
        for better, worse in table.items():
            if any(f"_{words}_" in delimited for words in worse.split()):
                return better
    return instead_of_whole(name)


def instead_of_whole(name: Name) -> str | None:
    """The same for names of which only the whole is meant."""
    tables = [table for place, table in WHOLE_NAMES.items() if _is_in(name, place)]
    return next((better for t in tables for better, worse in t.items() if name.name == worse), None)


def _is_in(name: Name, place: str) -> bool:
    return name.file == place or name.file.startswith(f"{place}/")


def test_names_are_the_projects_words():
    wrong = []
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        tree, file = ast.parse(path.read_bytes()), path.relative_to(ROOT).as_posix()
        wrong += [(name, better) for name in names_in(tree, file) if (better := instead_of(name))]
        whole = [(name, instead_of_whole(name)) for name in values_in(tree, file)]
        wrong += [(name, better) for name, better in whole if better]
    assert not wrong, "\n".join(
        f"{name.file}:{name.line}: {name.name} (use: {better})" for name, better in wrong
    )


def test_a_word_is_found_wherever_it_stands_in_a_name():
    tree = ast.parse("""
class TheDoorOpens:
    def looks_ahead(self): ...
    def looks(self): ...
    make: int = 0
def outdoors(): ...
async def fold_norms():
    def shared(): ...
""")
    for file, expected in (
        ("interp/sweeps/room.py", ["room", "TheDoorOpens", "fold_norms", "looks_ahead", "shared"]),
        ("interp/weights/folding.py", ["TheDoorOpens", "looks_ahead"]),
        ("apps/fit.py", ["TheDoorOpens", "fit", "looks_ahead"]),
    ):
        names = names_in(tree, file)
        assert sorted(name.name for name in names if instead_of(name)) == sorted(expected), file
    for file, expected in (("interp/model/recipe.py", ["make"]), ("interp/model/mlp.py", [])):
        assert [n.name for n in values_in(tree, file) if instead_of_whole(n)] == expected


def test_names_fall_into_words_at_underscores_and_capitals():
    assert words_of("ReadsTheKVCache_again") == ["reads", "the", "kv", "cache", "again"]
    assert words_of("__init__") == ["init"]
