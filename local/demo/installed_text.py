"""Collects English text that every installation has: docstrings and documents of its packages."""

from __future__ import annotations

import ast
import re
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

# `text <target>`_, :role:`~package.name` and ``code`` of reStructuredText; [text](url) of Markdown.
_MARKUP = (
    (re.compile(r":[a-z:]+:`[~!.]*([^`<]+?)(?:\s*<[^`>]*>)?`"), r"\1"),
    (re.compile(r"`([^`<]+?)\s*<[^`>]*>`_+"), r"\1"),
    (re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"<[^<>\n]{1,200}>"), " "),
    (re.compile(r"https?://\S+"), " "),
    (re.compile(r"[`*_]{1,3}(?=\S)([^`*\n]+?)[`*_]{1,3}(?!\w)"), r"\1"),
)
_UNDERLINED = re.compile(r"^.*\n[ \t]*([-=~^\"#*+])\1{2,}[ \t]*$", re.MULTILINE)
_NO_LETTERS = re.compile(r"[\W\d_]+")
_CODE_SIGNS = re.compile(r"[=(){}\[\]<>_|\\;]")
_MIN_WORDS = 6
_MIN_LETTER_SHARE = 0.75
_MAX_CODE_SHARE = 0.05
_MIN_ASCII_SHARE = 0.95


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs that are prose, each on one line."""
    blocks = re.split(r"\n\s*\n", _UNDERLINED.sub("", text))
    cleaned = (_clean(block) for block in blocks if not _is_code_block(block))
    return [block for block in cleaned if _is_prose(block)]


def _is_code_block(block: str) -> bool:
    return any(line.lstrip().startswith((">>>", "$ ", "```", "::")) for line in block.split("\n"))


def _clean(block: str) -> str:
    for expression, replacement in _MARKUP:
        block = expression.sub(replacement, block)
    lines = (line.strip(" \t#*-=~^+|") for line in block.split("\n"))
    return " ".join(" ".join(line for line in lines if not line.startswith("..")).split())


def _is_prose(block: str) -> bool:
    signs = len(block.replace(" ", ""))
    if len(block.split()) < _MIN_WORDS or not signs:
        return False
    return (
        len(_NO_LETTERS.sub("", block)) >= _MIN_LETTER_SHARE * signs
        and len(_CODE_SIGNS.findall(block)) <= _MAX_CODE_SHARE * signs
        and len(block.encode("ascii", "ignore")) >= _MIN_ASCII_SHARE * len(block)
    )


MAX_GROUP_SHARE = 0.2
# One topic is numerics, the other services and the standard library, so that a model trained on one
# of them has something to learn from the other.
NUMERIC = (
    *("numpy", "scipy", "pandas", "tensorflow", "sklearn", "matplotlib", "tf_keras", "keras"),
    *("official", "orbit", "statsmodels", "sympy", "torch", "jax", "h5py", "pyarrow"),
    *("tensorflow_hub", "tensorflow_datasets", "tensorflow_metadata", "tensorflow_text"),
    *("tensorflow_model_optimization", "tensorboard", "ml_dtypes", "opt_einsum", "einops"),
)
SERVICES = ("airflow", "sqlalchemy", "apache_beam", "fastapi", "starlette", "pydantic", "aiohttp")
_SKIPPED_FOLDERS = {
    *("test", "tests", "testing", "_vendor", "vendor", "vendored", "__pycache__", "node_modules"),
    *("site-packages", "idlelib", "lib2to3", "ensurepip", "migrations"),
}
_DOCUMENT_SUFFIXES = {".rst", ".md", ".txt"}
_LEGAL = re.compile(
    r"licen[cs]e|copying|notice|authors|requirements|top_level|entry_points", re.IGNORECASE
)
_MAX_DOCUMENT_CHARACTERS = 4000
_MIN_DOCUMENT_CHARACTERS = 200
_MAX_FILE_BYTES = 2_000_000

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Harvest:
    """Collects documents without duplicate paragraphs."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def collect(self, groups: list[list[Path]], characters: int) -> list[str]:
        """Return documents of the groups, in order, until there are enough.

        :param groups: groups of packages (folders), each of which may provide at most
            ``MAX_GROUP_SHARE`` of the text.
        :param characters: amount of text to return.
        """
        documents: list[str] = []
        missing = characters
        for group in groups:
            allowance = min(missing, int(characters * MAX_GROUP_SHARE))
            if allowance <= 0:
                break
            for document in self._of_group(group):
                documents.append(document)
                allowance -= len(document)
                missing -= len(document)
                if allowance <= 0:
                    break
        return documents

    def _of_group(self, group: list[Path]) -> Iterator[str]:
        for package in group:
            for path in package_files(package):
                yield from self._documents(file_texts(path))

    def _documents(self, texts: Iterable[str]) -> Iterator[str]:
        """Join the texts of one file into documents of limited length, one paragraph per line."""
        lines: list[str] = []
        size = 0
        for text in texts:
            new = [line for line in dict.fromkeys(paragraphs(text)) if line not in self._seen]
            self._seen.update(new)
            if size and size + sum(map(len, new)) > _MAX_DOCUMENT_CHARACTERS:
                if size >= _MIN_DOCUMENT_CHARACTERS:
                    yield "\n".join(lines)
                lines, size = [], 0
            lines += new
            size += sum(map(len, new))
        if size >= _MIN_DOCUMENT_CHARACTERS:
            yield "\n".join(lines)


def package_files(package: Path) -> Iterator[Path]:
    """Yield a package's files in a fixed order, without tests and copies of other packages."""
    entries = sorted(package.iterdir())
    yield from (entry for entry in entries if entry.is_file())
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink() and entry.name not in _SKIPPED_FOLDERS:
            yield from package_files(entry)


def file_texts(path: Path) -> Iterator[str]:
    """Yield the docstrings of a module, or the text of a document."""
    is_document = path.suffix in _DOCUMENT_SUFFIXES and not _LEGAL.search(path.name)
    if path.suffix != ".py" and path.name != "METADATA" and not is_document:
        return
    if path.stat().st_size > _MAX_FILE_BYTES:
        return
    text = path.read_text(encoding="utf-8", errors="ignore")
    if path.suffix != ".py":
        # The long description of METADATA follows its header after a blank line.
        yield text.partition("\n\n")[2] if path.name == "METADATA" else text
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    yield from _docstrings(tree)


def _docstrings(node: _Documented) -> Iterator[str]:
    """Yield the docstrings of a definition and of those directly inside it."""
    if docstring := ast.get_docstring(node):
        yield docstring
    for child in node.body:
        if isinstance(child, _Documented):
            yield from _docstrings(child)


def topics() -> tuple[list[list[Path]], list[list[Path]]]:
    """Return the groups of packages of the two topics, services and numerics, best first."""
    paths = sysconfig.get_paths()
    found: dict[str, Path] = {}
    for site in dict.fromkeys((paths["purelib"], paths["platlib"])):
        found |= {path.name: path for path in sorted(Path(site).iterdir()) if path.is_dir()}
    readmes = {name: path for name, path in found.items() if name.endswith(".dist-info")}
    numeric = [[found[name]] for name in NUMERIC if name in found]
    services = [[found[name]] for name in SERVICES if name in found]
    others = [
        [path]
        for name, path in found.items()
        if name not in {*readmes, *NUMERIC, *SERVICES, *_SKIPPED_FOLDERS}
    ]
    library = [Path(paths["stdlib"])]
    return [library, list(readmes.values()), *services, *others], numeric
