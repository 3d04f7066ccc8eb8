"""The fields of configurations that the sources of ``transformers`` read, by type of model.

The sources are parsed, not run. A name counts as a field that is read wherever it may be one:

- attributes of what is called a config, as in ``self.config.x``;
- what a class of configurations declares, and attributes of its ``self``;
- every string, as in ``getattr(config, "x")``, ``kwargs.pop("x")``, ``attribute_map``, keys of
  ``rope_parameters`` and lists of names;
- each of these without the prefix ``encoder_`` or ``decoder_``, which ``get_text_config`` removes.

The modules are those with the configuration and the model of a type, modules of other models from
which these import, and modules that all models share.

Names that are no fields, such as those of methods, are in the table too, and do no harm.

``python -m tools.transformers_fields`` writes the table that
:mod:`interp.loading.transformers_fields` reads, so that loading needs no ``transformers``.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto.configuration_auto import (
    CONFIG_MAPPING,
    model_type_to_module_name,
)

from interp.loading import TABLE, families

ROOT = Path(transformers.__file__).parent
BASE_CLASSES = (
    *("backbone_utils", "configuration_utils", "integrations/heterogeneity/configuration_utils"),
    "modeling_rope_utils",
)
"""Modules with base classes of configurations."""
SHARED = (
    *BASE_CLASSES,
    *("activations", "cache_utils", "loss/loss_utils", "masking_utils"),
    *("modeling_attn_mask_utils", "modeling_layers", "modeling_utils", "pytorch_utils"),
    *("integrations/moe", "integrations/sdpa_attention", "utils/generic"),
    *("utils/output_capturing",),
)
"""Modules that run when a model of any type is built or called, and may be given its configuration;
generation is not needed."""
UNRELATED = {
    *("from_pretrained", "_get_config_dict", "from_dict", "save_pretrained"),
    *("MtpLayer", "MtpModel"),
    *("QuantizedCache", "QuantizedLayer", "QuantoQuantizedLayer", "HQQQuantizedLayer"),
    *("_init_weights", "_adjust_bias"),
}
"""Functions whose arguments are files and folders, layers and caches that only generation uses, and
functions that change weights (which the weights of a file replace)."""
FIELD = re.compile(r"(?!__)[A-Za-z_]\w*")
PREFIX = re.compile(r"^(en|de)coder_(?=.)")
CONFIG = re.compile("config|cfg", re.IGNORECASE)


def table() -> dict[str, Any]:
    """The content of the table: names for all types of models, and others by ``model_type``."""
    every = names_of_modules(ROOT / f"{name}.py" for name in SHARED)
    by_type = {kind: of_type(kind) - every for kind in sorted(families()) if is_theirs(kind)}
    return {
        "transformers": transformers.__version__,
        "every_type": " ".join(sorted(every)),
        "by_type": {kind: " ".join(sorted(names)) for kind, names in by_type.items()},
    }


def to_json() -> str:
    """The table as it is stored."""
    return json.dumps(table(), indent=1) + "\n"


def is_theirs(kind: str) -> bool:
    """Whether ``transformers`` has models of this type."""
    return kind in CONFIG_MAPPING


def of_type(kind: str) -> set[str]:
    """The names that the modules of a type of model read."""
    name = model_type_to_module_name(kind)
    folder = ROOT / "models" / name
    todo, done = (
        [folder / f"{part}_{name}.py" for part in ("configuration", "modeling")],
        set[Path](),
    )
    while todo:
        path = todo.pop()
        if path not in done:
            done.add(path)
            todo += imported_models(path)
    return names_of_modules(done)


def imported_models(path: Path) -> Iterator[Path]:
    """The modules of models from which a module imports, except for those of automatic classes."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.level in (1, 2):
            folder = path.parents[node.level - 1]
            module = folder / f"{node.module.replace('.', '/')}.py"
            if module.parent.name != "auto" and module.exists():
                yield module


def names_of_modules(paths: Iterable[Path]) -> set[str]:
    """The names that any of these modules may read."""
    return set[str]().union(*map(names_of, paths))


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def names_of(path: Path) -> frozenset[str]:
    """The names that a module may read."""
    shared = path.relative_to(ROOT).with_suffix("").as_posix()
    has_class = path.stem.startswith("configuration_") or shared in BASE_CLASSES
    named = (name_in(node, has_class=has_class) for node in related(parsed(path)))
    names = {name for name in named if isinstance(name, str) and FIELD.fullmatch(name)}
    return frozenset(names | {PREFIX.sub("", name) for name in names})


def related(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree, without documentation and what is :data:`UNRELATED`."""
    for node in ast.iter_child_nodes(tree):
        if getattr(node, "name", None) in UNRELATED:
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        yield node
        yield from related(node)


def name_in(node: ast.AST, *, has_class: bool) -> object:
    """What may be the name of a field in one node of a syntax tree, if there is any.

    Args:
        node: the node.
        has_class: whether its module has classes of configurations.
    """
    match node:
        case ast.Constant(value=name):
            return name
        case ast.AnnAssign(target=ast.Name(id=name)) if has_class:
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if has_class:
            return name
        case ast.Attribute(value=value, attr=name) if is_config(value):
            return name
        case _:
            return None


def is_config(node: ast.AST) -> bool:
    """Whether an expression is a config by its name: ``config``, ``self.config``, a part of one."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return bool(CONFIG.search(name))
        case ast.Subscript(value=value) | ast.NamedExpr(value=value):
            return is_config(value)
        case ast.Call(func=function, args=arguments):
            return any(map(is_config, (function, *arguments)))
        case ast.BoolOp(values=values):
            return any(map(is_config, values))
        case ast.IfExp(body=value, orelse=other):
            return is_config(value) or is_config(other)
        case _:
            return False


if __name__ == "__main__":
    TABLE.write_text(to_json(), encoding="utf-8")
    print(f"written to {TABLE}")
