"""Reads the small files with which sentence-transformers makes sentence embeddings of a BERT.

https://sbert.net/docs/sentence_transformer/usage/custom_models.html
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, NoReturn

from pydantic import JsonValue

from pipeline_config.unquoted import fault, kind_of
from pipeline_store import uris
from trained_models.errors import UserError

MODULES = "modules.json"
_SETTINGS = ("sentence_bert_config.json", "config_sentence_transformers.json")
_CONFIG = "config.json"
# Published ones are below 1 KB. They go into every checkpoint.
LARGEST_BYTES = 64 << 10
_MOST_MODULES = 8
# Modules without weights of their own. Their names are what sentence-transformers imports.
_KNOWN = re.compile(r"sentence_transformers\.(?:[a-z_]+\.)*(Transformer|Pooling|Normalize)")
_FOLDER = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")


class SentenceFiles(NamedTuple):
    """The files of sentence-transformers next to weights.

    :param files: content by path, of all files or none.
    :param notes: why they are not kept, a sentence each.
    """

    files: dict[str, JsonValue]
    notes: tuple[str, ...] = ()


def sentence_files(folder: str) -> SentenceFiles:
    """Return the files of sentence-transformers in a Hugging Face folder; there may be none.

    :raises UserError: one is too large, not JSON, or not what its name says.
    """
    if not uris.exists(uris.join(folder, MODULES)):
        return SentenceFiles({})
    modules = _modules(folder)
    unknown = [m for m in modules if not _KNOWN.fullmatch(m["type"])]
    if unknown or modules[0]["path"] or not modules[0]["type"].endswith(".Transformer"):
        note = (
            f"{MODULES} is not kept: {len(unknown)} of its {len(modules)} modules are none of "
            "Transformer in the folder itself, Pooling and Normalize, so they may have weights or "
            "programs of their own. Exports will be no model of sentence-transformers."
        )
        return SentenceFiles({}, (note,))
    names = [*_SETTINGS, *(f"{m['path']}/{_CONFIG}" for m in modules[1:])]
    found = {name: _read(uris.join(folder, name)) for name in names if _exists(folder, name)}
    for name, content in found.items():
        if not isinstance(content, dict):
            _refuse(uris.join(folder, name), f"it holds {kind_of(content)}, not an object")
    return SentenceFiles({MODULES: modules, **found})


def _exists(folder: str, name: str) -> bool:
    return uris.exists(uris.join(folder, name))


def _modules(folder: str) -> list[Any]:
    uri = uris.join(folder, MODULES)
    modules = _read(uri)
    if not isinstance(modules, list) or not 0 < len(modules) <= _MOST_MODULES:
        _refuse(uri, f"it holds {kind_of(modules)}, not a list of 1 to {_MOST_MODULES} modules")
    if not all(map(_is_module, modules)):
        _refuse(uri, "not every module is an object with the texts type and path, a folder's name")
    return modules


def _is_module(module: Any) -> bool:
    if not isinstance(module, dict):
        return False
    kind, path = module.get("type"), module.get("path")
    if not (isinstance(kind, str) and isinstance(path, str)):
        return False
    return path == "" or _FOLDER.fullmatch(path) is not None


def _read(uri: str) -> Any:
    if (size := uris.size(uri)) > LARGEST_BYTES:
        _refuse(uri, f"it has {size:,} bytes, more than {LARGEST_BYTES:,}")
    try:
        return json.loads(uris.read(uri), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = fault(error)
    _refuse(uri, f"it is not JSON ({reason})")


def _no_number(_constant: str) -> NoReturn:
    """Refuse NaN and infinity, which are not JSON."""
    raise ValueError


def _refuse(uri: str, reason: str) -> NoReturn:
    raise UserError(
        f"{uri} is no file of sentence-transformers that can be kept: {reason}. Get it again, or "
        f"remove {MODULES}: then the lineage's exports have no sentence embedding."
    )
