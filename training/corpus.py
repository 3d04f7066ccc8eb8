"""The training corpus of the language models: the Python standard library, source and manual.

Every Python installation has it, so a recipe runs anywhere without a download. It is code and
English by many authors, with much that attention heads are known to track: repeated names,
brackets, indentation.

Tests, generated tables, and files that describe one machine's build are excluded.

Training and held-out text are split by file, by a hash of the file's name. The split depends
neither on the order of the files nor, as long as a file keeps its name, on the version of Python.
"""

import ast
import platform
import sysconfig
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import torch

from interp.errors import InvalidInput

HELD_OUT_SHARE: Final = 0.05
"""Expected share of files that are held out."""

TOPICS: Final = "pydoc_data/topics.py"
"""Chapters of the manual, in one dictionary of strings."""

_SKIPPED_FOLDERS: Final = frozenset(
    {
        # Third-party packages, and caches.
        "site-packages",
        "dist-packages",
        "_bundled",
        "__pycache__",
        # Tests: more than half of a full installation, and often not installed.
        "test",
        "tests",
        "idle_test",
        # Generated character maps, and a hundred copies of one small class.
        "encodings",
    }
)
_SKIPPED_FILES: Final = frozenset(
    {
        # Tables of characters and of locale names.
        "html/entities.py",
        "locale.py",
        "re/_casefix.py",
        "stringprep.py",
        # A poem in rot13.
        "this.py",
        # May be added by a distribution or an administrator.
        "sitecustomize.py",
        "usercustomize.py",
    }
)
# Files that the build of this Python writes about its machine.
_SKIPPED_PREFIXES: Final = ("_sysconfigdata", "config-")


@dataclass(frozen=True)
class Document:
    """One text of the corpus.

    Attributes:
        name: path relative to the standard library, with "/" on every system.
        text: the content.
    """

    name: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """Training and held-out documents, each sorted by name.

    Attributes:
        train: the documents to train on.
        held_out: the held-out documents, about 5 % of the files.
        sha256: hexadecimal hash of the names and bytes of all documents.
        python: version of the Python that the text comes from, such as "3.11.7".
    """

    train: tuple[Document, ...]
    held_out: tuple[Document, ...]
    sha256: str
    python: str

    @property
    def train_bytes(self) -> int:
        """Size of the training text, in bytes of UTF-8."""
        return sum(len(document.text.encode()) for document in self.train)

    @property
    def held_out_bytes(self) -> int:
        """Size of the held-out text, in bytes of UTF-8."""
        return sum(len(document.text.encode()) for document in self.held_out)

    def drawn(self, n_characters: int) -> list[str]:
        """The first training documents in an order drawn by seed 0, of so many characters."""
        order = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(0))
        texts: list[str] = []
        for number in order.tolist():
            if sum(map(len, texts)) < n_characters:
                texts.append(self.train[number].text)
        return texts


def stdlib_files(root: Path | None = None) -> list[Path]:
    """The files of the corpus, sorted by their path relative to ``root``.

    Args:
        root: folder of a standard library; by default that of the running Python.

    Raises:
        InvalidInput: the folder does not exist, has no Python source, or can't be listed.
    """
    root = _stdlib() if root is None else root
    try:
        files = sorted(_sources(root, root), key=lambda path: _name(path, root))
    except OSError as error:
        raise InvalidInput(f"{root}, the corpus, can't be listed: {error}.") from error
    if not files:
        raise InvalidInput(
            f"No Python source in {root}. The corpus is the source text of the standard library, "
            "which this Python has zipped, stripped or installed elsewhere. Use a Python from "
            "python.org, a distribution or conda, or give the folder of its standard library."
        )
    return files


def read_corpus(root: Path | None = None) -> Corpus:
    """Read the corpus, which is about 10 MB and takes about a second.

    The same installation of Python gives the same text on every machine. Distributions that omit
    part of the library, as Debian does with tkinter, give a different text; compare
    ``Corpus.sha256``.

    Args:
        root: folder of a standard library; by default that of the running Python.

    Raises:
        InvalidInput: there is no source, or too little to hold out a file; or a file is damaged.
    """
    root = _stdlib() if root is None else root
    train: list[Document] = []
    held_out: list[Document] = []
    for path in stdlib_files(root):
        side = held_out if is_held_out(_name(path, root)) else train
        side.extend(_documents(path, _name(path, root)))
    if not (train and held_out):
        raise InvalidInput(
            f"The source in {root} is too small to split: {len(train)} documents to train on and "
            f"{len(held_out)} held out. A complete standard library has several hundred."
        )
    python = platform.python_version()
    return Corpus(tuple(train), tuple(held_out), _sha256(train + held_out), python)


def is_held_out(name: str) -> bool:
    """Whether the file of this name (its path relative to the library, with "/") is held out.

    The manual is never held out: its chapters quote each other, so splitting it would leak text,
    and as a whole it would be most of the held-out text.
    """
    draw = int.from_bytes(sha256(name.encode()).digest()[:8], "big") / 2**64
    return draw < HELD_OUT_SHARE and name != TOPICS


def _stdlib() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _sources(folder: Path, root: Path) -> Iterator[Path]:
    """The files of the corpus in ``folder``, unsorted; skipped folders are not searched."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.name.startswith(_SKIPPED_PREFIXES):
            continue
        if path.is_dir():
            if path.name not in _SKIPPED_FOLDERS:
                yield from _sources(path, root)
        elif path.suffix == ".py" and _name(path, root) not in _SKIPPED_FILES:
            yield path


def _documents(path: Path, name: str) -> Iterator[Document]:
    """The documents of a file: its source, or its chapters if it is the manual."""
    try:
        with tokenize.open(path) as file:  # in the encoding that the file declares
            text = file.read()
        chapters = _topics(text) if name == TOPICS else {name: text}
    except (OSError, SyntaxError, ValueError) as error:
        raise InvalidInput(f"{path} can't be read as Python source: {error}.") from error
    for title, chapter in chapters.items():
        if chapter.strip():  # packages have many empty __init__.py
            yield Document(title, chapter)


def _topics(source: str) -> dict[str, str]:
    """The text of each chapter of the manual, by document name."""
    chapters: dict[str, str] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            chapters |= ast.literal_eval(statement.value)
    folder = TOPICS.removesuffix(".py")
    return {f"{folder}/{title}.txt": text for title, text in sorted(chapters.items())}


def _sha256(documents: list[Document]) -> str:
    """A hash of all documents, including lengths, so that names and texts can't be confused."""
    total = sha256()
    for document in documents:
        for part in (document.name.encode(), document.text.encode()):
            total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()
