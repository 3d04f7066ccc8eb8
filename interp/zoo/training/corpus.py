"""What do the bundled language models read? The standard library of Python, source and manual.

It is on every machine that has Python, so the corpus needs no download and no copy of its own,
and a recipe can be run again anywhere. It is English and code, written by many hands over thirty
years, and full of what attention heads are known for: repeated names, brackets, indentation.

Left out is what no person wrote or what is no language: tests, tables made by a program, and
what one machine's build wrote about itself.

The split into training and held-out text goes by file, by a hash of the file's name: it depends
neither on the order of files nor, while a file keeps its name, on the version of Python.
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

from interp.errors import InvalidInput

HELD_OUT_SHARE: Final = 0.05
"""The share of files, in expectation, that is held out."""

TOPICS: Final = "pydoc_data/topics.py"
"""Chapters of the language reference, as one dictionary of strings."""

_SKIPPED_FOLDERS: Final = frozenset(
    {
        # Other people's packages, and caches.
        "site-packages",
        "dist-packages",
        "_bundled",
        "__pycache__",
        # Tests: more than half of a full installation, and often not installed.
        "test",
        "tests",
        "idle_test",
        # Character maps made by a program, and a hundred copies of one small class.
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
        # What a distribution or an administrator may add.
        "sitecustomize.py",
        "usercustomize.py",
    }
)
# What the build of this one Python wrote about its own machine.
_SKIPPED_PREFIXES: Final = ("_sysconfigdata", "config-")


@dataclass(frozen=True)
class Document:
    """One text: `name` is its path below the standard library, with "/" on every system."""

    name: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """Text to train on and text held out, each in order of its name.

    Attributes:
        train: The documents to train on.
        held_out: The documents never to train on, about 5 % of the files.
        sha256: Hexadecimal hash over the names and bytes of all documents.
        python: The version of Python that the text came with, such as "3.11.7".
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


def stdlib_files(root: Path | None = None) -> list[Path]:
    """The files that the corpus is made of, sorted by their path below `root`.

    Args:
        root: Folder of a standard library; by default that of the running Python.

    Raises:
        InvalidInput: There is no such folder, no source in it, or it can't be listed.
    """
    root = _stdlib() if root is None else root
    try:
        found = sorted(_sources(root, root), key=lambda path: _name(path, root))
    except OSError as error:
        raise InvalidInput(f"{root}, the corpus, can't be listed: {error}.") from error
    if not found:
        raise InvalidInput(
            f"No Python source in {root}. The corpus is the standard library's source text, which "
            "this Python keeps zipped, stripped or elsewhere; use one from python.org, a "
            "distribution or conda, or give the folder of one."
        )
    return found


def read_corpus(root: Path | None = None) -> Corpus:
    """Reads the corpus: about 10 MB, in a second.

    The same installation of Python gives the same text on every machine. Distributions that leave
    a part of the library out, as Debian does with tkinter, give less; `Corpus.sha256` tells.

    Args:
        root: Folder of a standard library; by default that of the running Python.

    Raises:
        InvalidInput: There is no source, too little to hold a file out, or a damaged file.
    """
    root = _stdlib() if root is None else root
    train: list[Document] = []
    held_out: list[Document] = []
    for path in stdlib_files(root):
        side = held_out if is_held_out(_name(path, root)) else train
        side.extend(_documents(path, _name(path, root)))
    if not (train and held_out):
        raise InvalidInput(
            f"The source in {root} is too little to split: {len(train)} documents to train on and "
            f"{len(held_out)} held out. A whole standard library has several hundred."
        )
    python = platform.python_version()
    return Corpus(tuple(train), tuple(held_out), _sha256(train + held_out), python)


def is_held_out(name: str) -> bool:
    """Whether a file of this name (its path below the library, with "/") is held out.

    The manual never is: its chapters quote each other, so it can't be split without a leak, and
    as a whole it would be most of what is held out.
    """
    draw = int.from_bytes(sha256(name.encode()).digest()[:8], "big") / 2**64
    return draw < HELD_OUT_SHARE and name != TOPICS


def _stdlib() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _sources(folder: Path, root: Path) -> Iterator[Path]:
    """The wanted files below `folder`, in no order; skipped folders are not even listed."""
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
    """The documents in a file: its source, or the chapters if it is the manual."""
    try:
        with tokenize.open(path) as file:  # in the encoding that the file itself declares
            text = file.read()
        chapters = _topics(text) if name == TOPICS else {name: text}
    except (OSError, SyntaxError, ValueError) as error:
        raise InvalidInput(f"{path} can't be read as Python source: {error}.") from error
    for title, chapter in chapters.items():
        if chapter.strip():  # packages have many empty __init__.py
            yield Document(title, chapter)


def _topics(source: str) -> dict[str, str]:
    """The manual's chapters as they read, free of the quoting in its source; by document name."""
    chapters: dict[str, str] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            chapters |= ast.literal_eval(statement.value)
    folder = TOPICS.removesuffix(".py")
    return {f"{folder}/{title}.txt": text for title, text in sorted(chapters.items())}


def _sha256(documents: list[Document]) -> str:
    """One hash over all; lengths are hashed too, so that no text can pass for another's name."""
    total = sha256()
    for document in documents:
        for part in (document.name.encode(), document.text.encode()):
            total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()
