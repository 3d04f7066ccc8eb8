"""A tokenizer of ``transformers`` whose tokens are the words ``w3``, ``w4``, …"""

from typing import Any

import pytest

from tests.compat.shapes import D_VOCAB


def word_tokenizer(padding_side: str = "right", *, bos_is_pad: bool = False) -> Any:
    """Padding is id 0, BOS 1 and EOS 2; or all of them 0."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    special = ["<pad>", "<bos>", "<eos>"]
    vocabulary = {
        word: i for i, word in enumerate([*special, *(f"w{i}" for i in range(3, D_VOCAB))])
    }
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    pad, bos, eos = special if not bos_is_pad else ["<pad>"] * 3
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=pad,
        bos_token=bos,
        eos_token=eos,
        padding_side=padding_side,
    )
    # Without these, TransformerLens loads the tokenizer anew, from the hub.
    made.init_kwargs |= {"add_bos_token": True, "name_or_path": "words"}
    return made
