"""The file format of a sweep: its values, and everything needed to resume it.

One safetensors file with a checksum. Its tensors are the table, and those of edits and of the
metric; everything else is JSON in the header, under ``interp_sweep``. No pickle is read or written.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from interp import edits, metrics
from interp.edits import Apply
from interp.errors import InterpError, InvalidInput, OutOfResources, reason
from interp.execution import Provenance
from interp.io import (
    DAMAGED,
    ComputedRows,
    TensorData,
    build,
    read_header,
    save_tensors,
    verify_checksum,
    write_whole,
)
from interp.metrics import Metric, name_and_unit
from interp.points import Place
from interp.sweeps import PlacedEdits, Sweep, label_of

HEADER = "interp_sweep"
VERSION = 1
TABLE = ("values", "baseline", "done")
"""The tensors of a sweep."""
_Read = TypeVar("_Read")


def write_sweep(sweep: Sweep, path: Path) -> None:
    """Write the file atomically.

    Raises:
        InvalidInput: an edit or the metric is a Python function, or there is no such folder.
        OutOfResources: the file can't be written.
    """
    data_tensors = HeldTensors()
    header = {
        "version": VERSION,
        "metric": _metric_of(sweep).to_dict(data_tensors.named),
        "edits": [_row_to_json(i, row, data_tensors) for i, row in enumerate(sweep.placed)],
        "provenance": sweep.provenance.to_dict(),
        "notes": [*sweep.remarks],
    }
    table = {name: getattr(sweep, name) for name in TABLE}
    tensors, metadata = table | data_tensors.tensors, {HEADER: json.dumps(header)}
    if not path.parent.is_dir():
        raise InvalidInput(f"{path.parent} is not a folder; make it first.")
    try:
        write_whole(path, lambda aside: save_tensors(tensors, aside, metadata))
    except ValueError as error:
        raise InvalidInput(f"{str(path)!r} is not a path: {error}.") from error
    except (OSError, SafetensorError) as error:
        raise OutOfResources(f"{path} can't be written: {error}.") from error


def read_sweep(path: Path) -> Sweep:
    """Read a file that :func:`write_sweep` wrote.

    Raises:
        InvalidInput: there is no such file, or it is damaged, of another kind or another version.
    """
    if not path.is_file():
        raise InvalidInput(f"{path} is not a file; sweep.save(path) writes one.")
    try:
        stored = read_header(path)
        header = _header(path, stored.metadata)
        verify_checksum(path, stored)
        with safe_open(path, framework="pt") as file:
            return _or_damaged(path, lambda: _contents(header, file.get_tensor))
    except InterpError as error:
        raise InvalidInput(str(error)) from error
    except DAMAGED as error:
        raise InvalidInput(
            f"{path} is not a valid safetensors file: {reason(error).rstrip('.')}."
        ) from error


class HeldTensors:
    """The tensors of edits and of the metric by name; equal tensors share a name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[TensorData, str] = {}

    def named(self, data: TensorData) -> dict[str, Any]:
        """The JSON reference to a tensor; of values that are computed, their digest."""
        if isinstance(data, ComputedRows):
            return data.to_json()
        if data not in self._names:
            self._names[data] = name = f"held.{len(self._names)}"
            self.tensors[name] = data.tensor.contiguous()
        return {"tensor": self._names[data]}


NUMBERS_ALONE = "to_frame() gives a table of the numbers, which pandas can save"


def _metric_of(sweep: Sweep) -> Metric:
    if isinstance(sweep.measured, Metric):
        return sweep.measured
    raise InvalidInput(
        f"The metric of this sweep is a Python function, which can't be saved; {NUMBERS_ALONE}."
    )


def _row_to_json(index: int, row: PlacedEdits, data_tensors: HeldTensors) -> list[Any]:
    if any(isinstance(edit, Apply) for _, edit in row):
        raise InvalidInput(
            f"{label_of(index, row)} holds a Python function, which can't be saved; "
            f"{NUMBERS_ALONE}."
        )
    return [[place.to_json(), edit.to_dict(data_tensors.named)] for place, edit in row]


def _header(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    if HEADER not in metadata:
        raise InvalidInput(f"{path} holds tensors, but is not a sweep that sweep.save(path) wrote.")
    header = _or_damaged(path, lambda: dict(json.loads(metadata[HEADER])))
    if header.get("version") != VERSION:
        raise InvalidInput(
            f"{path} is a sweep of format {str(header.get('version'))[:20]}; this version of "
            f"interp reads format {VERSION}."
        )
    return header


def _or_damaged(path: Path, read: Callable[[], _Read]) -> _Read:
    """The result of ``read``, whose errors mean that the file is damaged."""
    try:
        return read()
    except (InterpError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{path} is damaged: its header is not what sweep.save(path) writes "
            f"({type(error).__name__}: {str(error)[:200]})."
        ) from error


def _contents(header: dict[str, Any], tensor: Callable[[str], Tensor]) -> Sweep:
    data_of: dict[str, TensorData] = {}

    def data(reference: dict[str, Any]) -> TensorData:
        if "computed" in reference:
            return TensorData.from_json(reference)
        name = reference["tensor"]
        if name not in data_of:
            data_of[name] = TensorData(tensor(name))
        return data_of[name]

    placed = tuple(tuple(_placed(edit_json, data) for edit_json in row) for row in header["edits"])
    measured = metrics.from_dict(header["metric"], data)
    name, unit = name_and_unit(measured)
    table = [tensor(field).clone() for field in TABLE]
    _check(table, len(placed))
    values, baseline, done = table
    return Sweep(
        values=values,
        baseline=baseline,
        done=done,
        placed=placed,
        metric=name,
        unit=unit,
        measured=measured,
        provenance=build(Provenance, header["provenance"], "provenance"),
        remarks=dict.fromkeys(_text(note) for note in header["notes"]),
    )


def _placed(values: Any, data: Callable[[Any], TensorData]) -> tuple[Place, edits.Edit]:  # noqa: ANN401
    place, edit = values
    return Place.from_json(place), edits.from_dict(edit, data)


def _text(note: object) -> str:
    if not isinstance(note, str):
        raise TypeError(f"a note is a {type(note).__name__}")
    return note


def _check(table: Sequence[Tensor], n_edits: int) -> None:
    """Make sure that the table has the right shape and dtypes for so many edits.

    Raises:
        ValueError: it does not.
    """
    values, baseline, done = table
    shape = (n_edits, *baseline.shape)
    if baseline.ndim != 1 or values.shape != shape or done.shape != shape:
        raise ValueError(f"the table is {[tuple(tensor.shape) for tensor in table]}, not {shape}")
    if [tensor.dtype for tensor in table] != [torch.float64, torch.float64, torch.bool]:
        raise ValueError(f"the table is of {[tensor.dtype for tensor in table]}")
