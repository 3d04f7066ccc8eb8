"""Datasets: loading the small ones that notebooks use, and rows of tokens from texts.

These functions need the package ``datasets``, which is imported when they are called.
"""

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch

from interp.errors import InvalidInput, ModelLoadError, first_line
from interp.io import open_regular, read_json, size_of

SMALL_DATASETS = {
    "openwebtext": "stas/openwebtext-10k",
    "owt": "stas/openwebtext-10k",
    "pile": "NeelNanda/pile-10k",
    "c4": "NeelNanda/c4-10k",
    "code": "NeelNanda/code-10k",
    "python": "NeelNanda/code-10k",
    "c4_code": "NeelNanda/c4-code-20k",
    "c4-code": "NeelNanda/c4-code-20k",
    "wiki": "NeelNanda/wiki-10k",
}
"""Short names of datasets, and their names on the hub."""
MAX_JSON_BYTES, MAX_WEIGHTS_BYTES = 2**26, 2**36


def get_dataset(dataset_name: str, **kwargs: Any) -> Any:
    """A dataset of some 10,000 texts in the column ``text``: owt, pile, c4, code, c4_code, wiki.

    Args:
        dataset_name: one of the short names.
        **kwargs: arguments of ``datasets.load_dataset``.

    Raises:
        InvalidInput: the name is unknown, or the dataset can't be loaded, e.g. without a network.
    """
    if dataset_name not in SMALL_DATASETS:
        raise InvalidInput(
            f"There is no dataset {dataset_name!r}; there are {', '.join(SMALL_DATASETS)}."
        )
    return load_from_hub(SMALL_DATASETS[dataset_name], **{"split": "train", **kwargs})


def load_from_hub(path: str, *args: Any, **kwargs: Any) -> Any:
    """Call ``datasets.load_dataset``, with a clear error if it fails.

    Raises:
        InvalidInput: the package is missing, or the dataset can't be loaded.
    """
    try:
        from datasets import load_dataset  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise InvalidInput("Datasets need the package datasets: pip install datasets.") from error
    try:
        return load_dataset(path, *args, **kwargs)
    except Exception as error:  # whatever the network, the hub or its files raise
        raise InvalidInput(
            f"The dataset {path} can't be loaded: {first_line(error)} Without a network, download "
            "it on another machine (datasets.load_dataset, then save_to_disk), and open it with "
            "datasets.load_from_disk; or use your own texts, datasets.Dataset.from_dict("
            '{"text": [...]}).'
        ) from error


def download_file_from_hf(
    repo_name: str,
    file_name: str,
    subfolder: str = ".",
    cache_dir: str | None = None,
    force_is_torch: bool = False,
    **kwargs: Any,
) -> Any:
    """Download a file of a repository on the hub.

    Returns:
        The parsed content of a JSON file, the tensors of a ``.pth`` file, else the local path.

    Raises:
        ModelLoadError: the file can't be downloaded, or is damaged, too large or not a regular
            file.
    """
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - slow to import

    options = select_compatible_kwargs(kwargs, hf_hub_download)
    try:
        path = hf_hub_download(
            repo_name, file_name, subfolder=subfolder, cache_dir=cache_dir, **options
        )
    except Exception as error:  # whatever the network or the hub raises
        raise ModelLoadError(
            f"{file_name} of {repo_name} can't be downloaded: {first_line(error)} Without a "
            "network, copy it into the cache of huggingface_hub (cache_dir=)."
        ) from error
    try:
        if path.endswith(".pth") or force_is_torch:
            return _read_weights(Path(path))
        return read_json(Path(path), MAX_JSON_BYTES) if path.endswith(".json") else path
    except Exception as error:  # torch.load raises various exceptions for damaged files
        raise ModelLoadError(
            f"{file_name} of {repo_name} can't be read: {first_line(error)}"
        ) from error


def _read_weights(path: Path) -> Any:
    with open_regular(path) as file:
        if size_of(file) > MAX_WEIGHTS_BYTES:
            raise ValueError(f"it is larger than {MAX_WEIGHTS_BYTES} bytes")
        return torch.load(file, map_location="cpu", weights_only=True)


def select_compatible_kwargs(
    kwargs_dict: Mapping[str, Any],
    callable: Callable[..., Any],
) -> dict[str, Any]:
    """The keyword arguments for which a function has parameters."""
    parameters = signature(callable).parameters
    return {name: value for name, value in kwargs_dict.items() if name in parameters}


def get_rotary_pct_from_config(config: Any) -> float:
    """The fraction of each head's dimensions that are rotated; 1 if it is not given."""
    pct = getattr(config, "rotary_pct", None)
    if pct is None:
        pct = (getattr(config, "rope_parameters", None) or {}).get("partial_rotary_factor")
    return 1.0 if pct is None else pct


def keep_single_column(dataset: Any, col_name: str) -> Any:
    """The dataset with only one column."""
    others = [name for name in dataset.features if name != col_name]
    return dataset.remove_columns(others) if others else dataset


def tokenize_and_concatenate(
    dataset: Any,
    tokenizer: Any,
    streaming: bool = False,
    max_length: int = 1024,
    column_name: str = "text",
    add_bos_token: bool = True,
    num_proc: int | None = 10,
    set_format: bool = True,
) -> Any:
    """Concatenate all texts with EOS between them, and split them into rows of tokens.

    An incomplete row at the end of a batch of texts is dropped; if it is the only one, it is
    padded.

    Args:
        dataset: a ``datasets.Dataset``, or an ``IterableDataset``.
        tokenizer: a tokenizer with EOS and, for ``add_bos_token``, BOS. If it has no padding token,
            ``<PAD>`` is added to it, but rows are padded with EOS.
        streaming: whether the dataset is iterable; if so, ``num_proc`` is not used.
        max_length: number of tokens per row, including BOS.
        column_name: the column of the texts.
        add_bos_token: whether each row begins with BOS.
        num_proc: number of processes that tokenise; ``None`` means the current process.
        set_format: whether rows are returned as tensors; an iterable dataset has no format.

    Returns:
        The dataset with the column ``tokens``.

    Raises:
        InvalidInput: the tokenizer has no EOS.
    """
    if tokenizer.eos_token is None:
        raise InvalidInput("Texts are joined by EOS, which this tokenizer does not have.")
    padding = tokenizer.eos_token_id if tokenizer.pad_token is None else tokenizer.pad_token_id
    if tokenizer.pad_token is None:
        tokenizer.add_special_tokens({"pad_token": "<PAD>"})
    prefix = [tokenizer.bos_token_id] if add_bos_token else []
    width, eos = max_length - len(prefix), [tokenizer.eos_token_id]

    def rows_of(examples: Mapping[str, Any]) -> dict[str, Any]:
        texts = examples[column_name]
        if not texts:
            return {"tokens": np.array([], dtype=np.int64)}
        encoded = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        joined = np.concatenate([np.asarray([*eos, *ids], dtype=np.int64) for ids in encoded])[1:]
        if len(joined) < width:
            joined = np.pad(joined, (0, width - len(joined)), constant_values=padding)
        n = len(joined) // width
        rows = joined[: n * width].reshape(n, width)
        first = np.full((n, len(prefix)), prefix or 0, dtype=np.int64)
        return {"tokens": np.concatenate([first, rows], axis=1)}

    texts = keep_single_column(dataset, column_name)
    processes = {} if streaming else {"num_proc": num_proc}
    rows = texts.map(rows_of, batched=True, remove_columns=[column_name], **processes)
    if set_format:
        rows.set_format(type="torch", columns=["tokens"])
    return rows
