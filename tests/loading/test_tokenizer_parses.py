"""A tokenizer.json is parsed once by each library and never serialised when a model is loaded.

The parse of a vocabulary of 262,144 tokens takes seconds, and memory that adds to the weights'.
"""

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

import interp
from training.bpe import train_bpe

KINDS = {
    **dict.fromkeys((f"Tokenizer.from_{kind}" for kind in ("str", "buffer", "file")), "parse"),
    **dict.fromkeys((f"Tokenizer.{name}" for name in ("to_str", "save")), "serialise"),
}
"""Functions of the tokenizers library that read or write a whole tokenizer."""


def calls(work: Callable[[], object]) -> Counter[str]:
    """How often ``work`` parses and serialises a whole tokenizer, and parses or writes its JSON."""
    done: Counter[str] = Counter()

    def note(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            done[KINDS.get(function.__qualname__, "")] += 1
        elif event == "call" and frame.f_code.co_name == "raw_decode":
            done["load JSON"] += '"merges"' in frame.f_locals["s"]
        elif event == "call" and frame.f_code.co_qualname == "JSONEncoder.encode":
            done["write JSON"] += "model" in frame.f_locals["o"]

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    del done[""]
    return +done


@pytest.fixture
def backend():
    return train_bpe(["the cat and the dog"], vocab_size=270)


def test_a_folder_parses_its_tokenizer_once(backend, folder):
    backend.save(str(folder.path / "tokenizer.json"))
    weights = folder.weights
    embedding = weights["transformer.wte.weight"]
    weights["transformer.wte.weight"] = embedding.repeat(9, 1)
    folder.set_weights(weights)
    folder.set_fields(vocab_size=270)
    done = calls(lambda: interp.load(folder.path))
    assert done == {"parse": 1, "load JSON": 1}
    assert interp.load(folder.path).tokenizer.bos == 0


def test_a_saved_model_parses_its_tokenizer_once(tmp_path):
    interp.load("python-2l").save(tmp_path / "model")
    assert calls(lambda: interp.load(tmp_path / "model")) == {"parse": 1, "load JSON": 1}


def test_a_live_tokenizer_is_copied_once(backend):
    """The converse: the copy of a tokenizer of other code is seen by the counts."""
    live = PreTrainedTokenizerFast(tokenizer_object=backend)
    model = interp.load("python-2l")
    done = calls(lambda: interp.load(model.state_dict(), config=model.config, tokenizer=live))
    assert done == {"parse": 1, "load JSON": 1, "serialise": 1}
