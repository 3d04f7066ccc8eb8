"""Rough measures of a model: its loss on a text, on data and on repeated tokens; IOI and MMLU.

The data sets are those of TransformerLens, on the hub. Without a network, pass them as ``data=``: a
``datasets.Dataset`` of texts, for example from ``datasets.load_from_disk``.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from interp.compat.ioi import IOIDataset, ioi_eval
from interp.compat.mmlu import MMLU_ANSWER_LETTERS, MMLU_SUBJECTS, make_mmlu_data_loader, mmlu_eval
from interp.compat.utils.datasets import load_from_hub, tokenize_and_concatenate
from interp.compat.utils.language_model import lm_cross_entropy_loss
from interp.errors import InvalidInput

TEXT = (
    "Many important transition points in the history of science have been moments when science "
    "'zoomed in.' At these points, we develop a visualization or tool that allows us to see the "
    "world in a new level of detail, and a new field of science develops to study the world "
    "through this lens."
)
"""From Olah et al. 2020, "Zoom In"."""

FIRST_ID = 100
"""The first id of the random tokens; lower ids are special tokens in many vocabularies."""

__all__ = [
    "DATASET_LOADERS",
    "DATASET_NAMES",
    "MMLU_ANSWER_LETTERS",
    "MMLU_SUBJECTS",
    "IOIDataset",
    "evaluate",
    "evaluate_on_dataset",
    "induction_loss",
    "ioi_eval",
    "make_code_data_loader",
    "make_mmlu_data_loader",
    "make_owt_data_loader",
    "make_pile_data_loader",
    "make_wiki_data_loader",
    "mmlu_eval",
    "sanity_check",
]


def sanity_check(model: Any) -> Any:
    """The loss of a paragraph, in nats: below 5 if the model works, above 7 if not."""
    return model(TEXT, return_type="loss")


# ---- data sets --------------------------------------------------------------------------------


def _loader(
    tokenizer: Any,
    batch_size: int = 8,
    data: Any = None,
    *,
    hub: tuple[str, ...],
    column: str = "text",
    max_length: int = 1024,
) -> Any:
    """Shuffled batches with ``tokens [batch pos]``; the last batch is dropped if incomplete.

    Args:
        tokenizer: a tokenizer with BOS and EOS.
        batch_size: number of rows per batch.
        data: a ``datasets.Dataset`` of texts; by default it is loaded from the hub.
        hub: the name of the data set on the hub, and that of its configuration.
        column: the column of the texts.
        max_length: number of tokens per row.

    Raises:
        InvalidInput: the data set can't be loaded; the message says how to do without the hub.
    """
    texts = load_from_hub(*hub, split="train") if data is None else data
    own = column if data is None or column in data.column_names else "text"
    rows = tokenize_and_concatenate(
        texts, tokenizer, column_name=own, max_length=max_length, num_proc=None
    )
    return torch.utils.data.DataLoader(rows, batch_size=batch_size, shuffle=True, drop_last=True)


make_wiki_data_loader: Any = partial(_loader, hub=("wikitext", "wikitext-2-v1"))
make_owt_data_loader: Any = partial(_loader, hub=("stas/openwebtext-10k",))
make_pile_data_loader: Any = partial(_loader, hub=("NeelNanda/pile-10k",))
make_code_data_loader: Any = partial(
    _loader, hub=("codeparrot/codeparrot-valid-v2-near-dedup",), column="content"
)
DATASET_NAMES = ["wiki", "owt", "pile", "code"]
DATASET_LOADERS: list[Callable[..., Any]] = [
    make_wiki_data_loader,
    make_owt_data_loader,
    make_pile_data_loader,
    make_code_data_loader,
]
"""Loaders in the order of :data:`DATASET_NAMES`."""


@torch.inference_mode()
def evaluate(
    model: Any,
    truncate: int = 100,
    batch_size: int = 8,
    tokenizer: Any = None,
    data: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """The mean loss on each data set, in nats, as ``{"wiki_loss": ...}``.

    Args:
        model: a model with a tokenizer.
        truncate: at most ``truncate`` + 1 batches of each data set are used.
        batch_size: number of rows per batch; a row has ``n_ctx`` tokens, at most 1,024.
        tokenizer: the tokenizer; by default the model's.
        data: data sets by name, instead of those on the hub; only these are evaluated.

    Raises:
        InvalidInput: a data set can't be loaded, or is too short for one batch.
    """
    loaders: dict[str, Callable[..., Any]] = dict(zip(DATASET_NAMES, DATASET_LOADERS, strict=True))
    own = model.tokenizer if tokenizer is None else tokenizer
    width = min(1024, model.cfg.n_ctx)
    losses: dict[str, float] = {}
    for name in DATASET_NAMES if data is None else data:
        make = loaders.get(name, DATASET_LOADERS[1])
        rows = make(own, batch_size, data=None if data is None else data[name], max_length=width)
        device = str(model.cfg.device)
        losses[f"{name}_loss"] = evaluate_on_dataset(model, rows, truncate, device)
    return losses


@torch.inference_mode()
def evaluate_on_dataset(
    model: Any, data_loader: Any, truncate: int = 100, device: str = "cuda"
) -> float:
    """Mean loss over at most ``truncate`` + 1 batches, each with ``tokens``.

    Raises:
        InvalidInput: there is no batch.
    """
    losses: list[float] = []
    for batch in data_loader:
        losses.append(model(batch["tokens"].to(device), return_type="loss").mean().item())
        if len(losses) > truncate:
            break
    if not losses:
        raise InvalidInput("evaluate_on_dataset got no batch; pass a loader with rows of tokens.")
    return sum(losses) / len(losses)


@torch.inference_mode()
def induction_loss(
    model: Any,
    tokenizer: Any = None,
    batch_size: int = 4,
    subseq_len: int = 384,
    prepend_bos: bool | None = None,
    device: str = "cuda",
) -> Tensor:
    """Loss on the second of two equal halves of random tokens, in nats.

    Ids are from 100 to 19,999, or below ``d_vocab`` if that is less, drawn by torch's global
    generator; BOS replaces the first token.

    Raises:
        InvalidInput: the vocabulary has no ids from 100 on.
    """
    end = min(20000, model.cfg.d_vocab)
    if end <= FIRST_ID:
        raise InvalidInput(f"Ids are drawn from {FIRST_ID} on; this model has d_vocab={end}.")
    half = torch.randint(FIRST_ID, end, (batch_size, subseq_len)).to(device)
    tokens = half.repeat(1, 2)
    with_bos = model.cfg.default_prepend_bos if prepend_bos is None else prepend_bos
    if with_bos:
        tokens[:, 0] = (model.tokenizer if tokenizer is None else tokenizer).bos_token_id
    losses = lm_cross_entropy_loss(model(tokens, return_type="logits"), tokens, per_token=True)
    return losses[:, subseq_len + 1 :].mean()
