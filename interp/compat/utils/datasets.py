"""Rows of tokens from the texts of a dataset."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from interp.compat.errors import InvalidInput


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
