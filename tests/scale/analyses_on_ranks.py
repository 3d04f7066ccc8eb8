"""Compares each analysis of a sharded model with that of the whole one: a program for torchrun.

    torchrun --nproc-per-node 2 tests/scale/analyses_on_ranks.py FOLDER [NAME …]

Writes to FOLDER/RANK.json what is different in the tables of each analysis, or the error.
"""

import json
import os
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from declared import Declared, declarations
from permuted import tables_of
from torch import distributed as dist

import interp
from interp.errors import InterpError

BOUND = 1e-9
"""Of relative differences in float64; sums of other order differ in the last bits."""


def arguments_of(declared: Declared, *, is_sharded: bool) -> dict[str, Any]:
    """Arguments of the call of an analysis, with its models in float64, sharded or whole."""
    call = signature(declared.analysis).bind_partial(*declared.call.arguments).arguments
    arguments: dict[str, Any] = {}
    for name, value in call.items():
        is_model = isinstance(value, interp.Transformer)
        whole = value.double() if is_model else value
        arguments[name] = interp.parallel(whole) if is_model and is_sharded else whole
    return arguments


def tables_with(declared: Declared, *, is_sharded: bool) -> dict[str, pd.DataFrame]:
    """The tables of an analysis, whose rows are in the order of their labels."""
    torch.manual_seed(0)
    result: Any = declared.result_of_call(**arguments_of(declared, is_sharded=is_sharded))
    return {name: in_order_of_labels(table) for name, table in tables_of(result).items()}


def in_order_of_labels(table: pd.DataFrame) -> pd.DataFrame:
    """The same rows: values that are equal but for rounding have no order among them."""
    labels = [str(name) for name in table if not pd.api.types.is_float_dtype(table[name])]
    return table.sort_values(labels, ignore_index=True) if labels else table


def difference(declared: Declared) -> str:
    """What is different between the two; empty if nothing is."""
    whole, sharded = (tables_with(declared, is_sharded=flag) for flag in (False, True))
    if list(whole) != list(sharded):
        return f"tables {list(whole)} and {list(sharded)}"
    for name, table in whole.items():
        try:
            pd.testing.assert_frame_equal(table, sharded[name], rtol=BOUND, atol=BOUND)
        except AssertionError as error:
            return f"{name}: {error}"
    return ""


def main(folder: str, *names: str) -> None:
    """Compare and write."""
    torch.set_num_threads(1)
    results: dict[str, str] = {}
    every = declarations()
    for name in names or tuple(every):
        if not any(isinstance(value, interp.Transformer) for value in every[name].call.arguments):
            continue
        try:
            results[name] = difference(every[name])
        except InterpError as error:
            results[name] = f"{type(error).__name__}: {error}"
    path = Path(folder) / f"{dist.get_rank()}.json"
    path.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
    # Threads of gloo now and then abort a process at the end of Python, after all is written.
    dist.barrier()
    os._exit(0)
