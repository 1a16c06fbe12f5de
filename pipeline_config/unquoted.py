"""What is wrong with a file, told without any of it: rule, place and kind, no value and no name.

A run reads files with more rights than those have who read its log. Python's own messages quote:
pydantic the value, tomllib the key, a decoder the byte, and the ``repr`` of a UnicodeDecodeError
all of the file. Whoever raises an error that is made of one of these has to leave the first one
behind (``from None``), because Airflow logs it too.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator

from pydantic import BaseModel, ValidationError

_TOML_PLACE = re.compile(r"\(at (line \d+, column \d+|end of document)\)$")


UNPARSABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What parsers of JSON, TOML and YAML raise, and whoever takes apart what they return. No parser
has an error of its own for a file that is nested too deeply, or for a date that is none."""


def one_line(text: str) -> str:
    """Return a text that cannot pass for another line of a log: what is not printed is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def fault(error: Exception) -> str:
    """Return where and why a decoder or parser has stopped; of any other error its type."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"no UTF-8 after {error.start} bytes: {error.reason}"
    if isinstance(error, json.JSONDecodeError):
        return str(error)  # one of a dozen fixed messages, and the place
    if isinstance(error, tomllib.TOMLDecodeError) and (found := _TOML_PLACE.search(str(error))):
        return found[1]
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return type(error).__name__


def kind_of(value: object) -> str:
    """Return what a value is, without saying it: its type, and its size where it has one."""
    if isinstance(value, str):
        return f"text of {len(value)} characters"
    if isinstance(value, list | dict):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__


def broken_fields(error: ValidationError, schema: type[BaseModel]) -> Iterator[str]:
    """Yield a line for each field of a file that breaks a rule of its schema.

    :param schema: whose names may be said; any other name is one that the file has made up.
    """
    known = set(_names(schema.model_json_schema()))
    for item in error.errors(include_url=False):
        places = [str(part) for part in item["loc"] if isinstance(part, int) or part in known]
        name = ".".join(places) or "a name that is not known"
        received = "" if item["type"] == "missing" else f", received {kind_of(item['input'])}"
        yield f"{name}: {item['msg']}{received}."


def _names(schema: object) -> Iterator[str]:
    """Yield the names of all fields of a JSON schema, those of nested objects too."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for part in schema.values():
            yield from _names(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _names(part)
