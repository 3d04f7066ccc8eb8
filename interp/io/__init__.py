"""Files that are whole or absent, bounded JSON and TOML, tensors as files, tables as text."""

from interp.io.atomic_folder import MANIFEST, atomic_folder, replacement, sole_writer
from interp.io.files import (
    UNREADABLE,
    beside,
    is_file,
    is_folder,
    locked,
    open_regular,
    read_bounded,
    read_file_or_pipe,
    refuse_link,
    size_of,
    write_text_whole,
    write_whole,
)
from interp.io.frame import DataFrame, frame_of
from interp.io.freed_memory import return_freed_memory
from interp.io.json_text import parse_json, read_json
from interp.io.paths import as_path
from interp.io.progress import Progress, ProgressLike, as_progress, cancellable, check_cancelled
from interp.io.schema import VERSION, as_object, build, value_of, without_version
from interp.io.table import Table
from interp.io.tensor_data import ComputedRows, TensorData, tensor_bytes
from interp.io.tensor_file import (
    CHECKSUM,
    DAMAGED,
    MAX_HEADER_BYTES,
    METADATA,
    STORED,
    Entry,
    Header,
    read_header,
    save_tensors,
    verify_checksum,
)
from interp.io.toml_text import parse_toml

__all__ = [
    "CHECKSUM",
    "DAMAGED",
    "MANIFEST",
    "MAX_HEADER_BYTES",
    "METADATA",
    "STORED",
    "UNREADABLE",
    "VERSION",
    "ComputedRows",
    "DataFrame",
    "Entry",
    "Header",
    "Progress",
    "ProgressLike",
    "Table",
    "TensorData",
    "as_object",
    "as_path",
    "as_progress",
    "atomic_folder",
    "beside",
    "build",
    "cancellable",
    "check_cancelled",
    "frame_of",
    "is_file",
    "is_folder",
    "locked",
    "open_regular",
    "parse_json",
    "parse_toml",
    "read_bounded",
    "read_file_or_pipe",
    "read_header",
    "read_json",
    "refuse_link",
    "replacement",
    "return_freed_memory",
    "save_tensors",
    "size_of",
    "sole_writer",
    "tensor_bytes",
    "value_of",
    "verify_checksum",
    "without_version",
    "write_text_whole",
    "write_whole",
]
