"""Tables are read as lines are: the same prompts from every format, or the row is named."""

import csv
import json
import tracemalloc
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import each

import interp
from interp.errors import InvalidInput
from interp.prompts import tables
from interp.prompts.parquet_pages import largest_page
from interp.prompts.prompts import iter_prompts, read_prompts

ROWS = [
    {"text": 'a, "b"\nc ', "target": " x", "distractor": " y"},
    {"text": " é", "corrupt": " è", "target": None, "distractor": "z"},
    {"text": "a\tb", "prefix": "p", "target": "q", "distractor": None},
]
FIELDS = ("text", "corrupt", "prefix", "target", "distractor")


def write_csv(path, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, ["id", *FIELDS], delimiter=delimiter)
        rows.writeheader()
        rows.writerows([{"id": n, **row} for n, row in enumerate(ROWS)])
    return path


def write_lines(path):
    rows = [{k: v for k, v in row.items() if v is not None} for row in ROWS]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def columns():
    return {"id": [0, 1, 2], **{field: [row.get(field) for row in ROWS] for field in FIELDS}}


def write_parquet(path, values=None):
    pq.write_table(pa.table(columns() if values is None else values), path)
    return path


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_every_format_has_the_same_prompts(tmp_path):
    expected = [{k: v for k, v in row.items() if v is not None} for row in ROWS]
    sources = {
        "jsonl": write_lines(tmp_path / "a.jsonl"),
        "csv": write_csv(tmp_path / "a.csv"),
        "tsv": write_csv(tmp_path / "a.TSV", "\t"),
        "parquet": write_parquet(tmp_path / "a.parquet"),
    }
    for name, source in sources.items():
        for read in (read_prompts, iter_prompts):
            records = [prompt.fields() for prompt in read(source)]
            assert records == [{f: row[f] for f in FIELDS if f in row} for row in expected], name


def test_the_source_of_a_prompt_is_its_line_or_its_row(tmp_path):
    table, lines = write_parquet(tmp_path / "a.parquet"), write_csv(tmp_path / "a.csv")
    assert [p.source for p in read_prompts(table)] == [f"{table}[{n}]" for n in range(3)]
    # The first row takes two lines.
    assert [p.source for p in read_prompts(lines)] == [f"{lines}:{n}" for n in (2, 4, 5)]


@each(
    ("content", "message"),
    [
        ("", "holds no prompts"),
        ("text\n", "holds no prompts"),
        (
            "texts,id\na,1\n",
            r"csv:1 has no column 'text', it has 'texts', 'id'; rename the nearest",
        ),
        ("id;text\na;1\n", r"csv:1 has no column 'text', it has 'id;text'"),
        ("id\na\n", r"csv:1 has no column 'text', it has 'id'; rename the one with prompts"),
        ("text,text\na,b\n", r"csv:1 has the column 'text' twice"),
        ("text,Target\na,b\n", r"csv:1 has a column 'Target', but no 'target'"),
        ("text,distracter\na,b\n", r"csv:1 has a column 'distracter', but no 'distractor'"),
        ("text,id\na,b\nc\n", r"csv:3 has 1 cells, the first line 2 columns \('text', 'id'\)"),
        ("text,id\na,b,c\n", r"csv:2 has 3 cells"),
        ('text,id\n"a\nb",1\n"c",2,3\n', r"csv:4 has 3 cells"),
        ('text,id\na,1\n"b,2\n', r"csv:3: not a row of CSV: unexpected end"),
        ('text,id\n"a"b,1\n', r"csv:2: not a row of CSV"),
        ("text,id\n,1\n", r"csv:2: the prompt is empty"),
        ("text,corrupt\na,a\n", r"csv:2: corrupt should be a text other than"),
        (b"text\na\0\n", r"csv:2 holds a NUL byte \(byte 1 of the line\)"),
        (b"text\n\xff\n", r"csv:2 is not UTF-8"),
        (f"text\n{'a' * 200_000}\n", r"csv:2: not a row of CSV: field larger"),
    ],
)
def test_a_bad_csv_file_is_named_with_its_line(tmp_path, content, message):
    file = write(tmp_path, "a.csv", content)
    for read in (read_prompts, lambda path: list(iter_prompts(path))):
        with pytest.raises(InvalidInput, match=message):
            read(file)


@each(
    ("values", "message"),
    [
        ({"texts": ["a"], "n": [1]}, r"has no column 'text', it has 'texts', 'n'; .* 'texts'"),
        ({"text": ["a", None]}, r"a.parquet\[1\]: the prompt is empty"),
        ({"text": [1]}, r"a.parquet\[0\]: text should be a text, got 1"),
        ({"text": [b"a"]}, r"a.parquet\[0\]: text should be a text, got b'a'"),
        ({"text": ["a"], "target": [["b"]]}, "a.parquet: target should be a text, got list"),
        ({"text": ["a"], "targets": ["b"]}, r"has a column 'targets', but no 'target'"),
        ({"text": pa.array([], pa.string())}, "holds no prompts"),
    ],
)
def test_a_bad_parquet_file_is_named_with_its_row(tmp_path, values, message):
    file = write_parquet(tmp_path / "a.parquet", values)
    for read in (read_prompts, lambda path: list(iter_prompts(path))):
        with pytest.raises(InvalidInput, match=message):
            read(file)


def test_a_damaged_parquet_file_is_refused(tmp_path):
    whole = write_parquet(tmp_path / "a.parquet").read_bytes()
    for content in (
        b"",
        b"PAR1",
        whole[:-9],
        b"a" * 99,
        whole.replace(b"text", b"\xff\xfe\xfd\xfc"),
    ):
        with pytest.raises(InvalidInput, match=r"a\.parquet"):
            read_prompts(write(tmp_path, "a.parquet", content))


def test_what_is_neither_a_path_nor_a_dataset_is_refused():
    for source in (3, None, ["a"], {"text": ["a"]}):
        with pytest.raises(InvalidInput, match="A path of a file or a folder was expected"):
            read_prompts(source)


def test_a_json_array_is_not_read_as_lines(tmp_path):
    with pytest.raises(InvalidInput, match=r"write one JSON object per line, and name it a\.jsonl"):
        read_prompts(write(tmp_path, "a.json", '[{"text": "a"}]'))


def test_a_file_is_streamed_as_far_as_it_is_asked_for(tmp_path, monkeypatch):
    """A line that is malformed is met when it is reached, and nothing after it is read."""
    file = write(tmp_path, "a.jsonl", '{"text": "a"}\n' * 3 + "{\n")
    prompts = iter_prompts(file)
    assert [next(prompts).text for _ in range(3)] == ["a"] * 3
    with pytest.raises(InvalidInput, match=r"a\.jsonl:4: not a JSON object"):
        next(prompts)
    monkeypatch.setattr(tables, "ROWS", 2)
    table = write_parquet(tmp_path / "b.parquet", {"text": ["a"] * 5 + [None]})
    rows = iter_prompts(table)
    assert len([next(rows) for _ in range(5)]) == 5
    with pytest.raises(InvalidInput, match=r"b\.parquet\[5\]"):
        next(rows)


def test_more_prompts_are_streamed_than_are_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("interp.prompts.prompts.MAX_PROMPTS", 2000)
    file = write_parquet(tmp_path / "a.parquet", {"text": ["a"] * 2001})
    with pytest.raises(InvalidInput, match="more than 2000 prompts"):
        read_prompts(file)
    assert sum(1 for _ in iter_prompts(file)) == 2001


def test_streamed_lines_that_are_not_read_to_the_end_leave_no_open_file(tmp_path):
    prompts = interp.iter_prompts(write(tmp_path, "a.txt", "a\nb\n"))
    assert next(prompts).text == "a"
    prompts.close()
    assert list(prompts) == []


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
def test_a_stream_holds_a_small_part_of_its_file(tmp_path, name):
    line = {"a.jsonl": '{"text": "%s"}\n'}.get(name, "%s\n") % ("word " * 200)
    file = write(tmp_path, name, "text\n" * (name == "a.csv") + line * 2000)
    list(iter_prompts(file))  # what is read once is imported
    tracemalloc.start()
    try:
        assert sum(1 for _ in iter_prompts(file)) == 2000
        streamed = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        read_prompts(file)
        whole = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert streamed < 0.1 * file.stat().st_size < whole


# Files that unpack to much more than their size.


def packed(path, text, rows, **options):
    """A file of a few kilobytes with ``rows`` times ``text``."""
    entries = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))
    column = entries if options.pop("is_dictionary", True) else pa.array([text] * rows)
    pq.write_table(pa.table({"text": column}), path, compression="zstd", **options)
    return path


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_text_that_a_parquet_file_repeats_is_not_repeated_in_memory(tmp_path, is_stored):
    """1 500 texts of a megabyte in a few hundred bytes, one of which is in memory at a time."""
    file = packed(tmp_path / "a.parquet", "x" * 2**20, 1500, store_schema=is_stored)
    assert file.stat().st_size < 20_000
    next(iter_prompts(packed(tmp_path / "b.parquet", "x", 3)))  # imports the library
    pool, prompts = pa.default_memory_pool(), iter_prompts(file)
    before = pool.bytes_allocated()
    most = max(pool.bytes_allocated() - before for _ in prompts)
    assert most < 32 * 2**20
    with pytest.raises(InvalidInput, match="texts of more than 67108864 characters"):
        read_prompts(file)


@pytest.mark.slow
def test_texts_without_a_dictionary_are_unpacked_a_few_at_a_time(tmp_path):
    options = {"use_dictionary": False, "is_dictionary": False, "data_page_size": 1}
    file = packed(tmp_path / "a.parquet", "x" * 2**21, 200, write_batch_size=1, **options)
    pool, prompts = pa.default_memory_pool(), iter_prompts(file)
    before = pool.bytes_allocated()
    most = max(pool.bytes_allocated() - before for _ in prompts)
    assert most < 4 * tables.BATCH_BYTES


def test_a_page_that_states_an_immense_size_is_refused_before_it_is_unpacked(tmp_path):
    """The size of a page before compression is the second number of its header."""
    file = packed(tmp_path / "a.parquet", "abcdefgh" * 100, 100)
    metadata = pq.ParquetFile(file).metadata.row_group(0).column(0)
    data = bytearray(file.read_bytes())
    start = metadata.dictionary_page_offset
    assert data[start : start + 3] == b"\x15\x04\x15"  # a dictionary, then the size in two bytes
    data[start + 3 : start + 5] = b"\xfe\xff\xff\xff\x0f"
    with pytest.raises(ValueError, match="a page has 2147483647 bytes"):
        largest_page(BytesIO(data), pq.ParquetFile(file).metadata, ["text"])


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_every_page_is_measured(tmp_path, compression, version):
    options = {"data_page_size": 100, "write_batch_size": 2, "data_page_version": version}
    texts = [f"{n}" * 50 for n in range(100)] + ["x" * 12_345]
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": texts}), file, compression=compression, **options)
    columns = {"compression": compression, "use_dictionary": False}
    plain = tmp_path / "b.parquet"
    pq.write_table(pa.table({"n": range(101), "text": texts}), plain, **columns, **options)
    with file.open("rb") as stream, plain.open("rb") as plain_stream:
        assert largest_page(stream, pq.ParquetFile(file).metadata, ["text"]) > 12_345
        assert (
            12_345 < largest_page(plain_stream, pq.ParquetFile(plain).metadata, ["text"]) < 13_000
        )
        assert largest_page(plain_stream, pq.ParquetFile(plain).metadata, ["n"]) < 13_000
    assert [prompt.text for prompt in iter_prompts(plain)] == texts
