"""Describes errors in a file without quoting it: rule, place and type, but no value or name.

A run reads files with more rights than the readers of its log have. Python's own messages quote
the file: pydantic the value, tomllib the key, a decoder the byte, and the ``repr`` of a
UnicodeDecodeError all of it. An error made from one of these must be raised ``from None``, because
Airflow logs the original one too.
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
"""Errors of JSON, TOML and YAML parsers, and of code that unpacks their results. No parser has an
error class of its own for a file that is nested too deeply, or for an invalid date."""


def one_line(text: str) -> str:
    """Return a text that cannot fake another log line: characters that do not print are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def fault(error: Exception) -> str:
    """Return where and why a decoder or parser has stopped; for any other error its type."""
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
    """Return a value's type, and its size where it has one, without the value itself."""
    if isinstance(value, str):
        return f"text of {len(value)} characters"
    if isinstance(value, list | dict):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__


def broken_fields(error: ValidationError, schema: type[BaseModel]) -> Iterator[str]:
    """Yield a line for each field of a file that breaks a rule of its schema.

    :param schema: its field names may be quoted; any other name comes from the file itself.
    """
    known = set(_names(schema.model_json_schema()))
    for item in error.errors(include_url=False):
        places = [str(part) for part in item["loc"] if isinstance(part, int) or part in known]
        name = ".".join(places) or "a name that is not known"
        received = "" if item["type"] == "missing" else f", received {kind_of(item['input'])}"
        yield f"{name}: {item['msg']}{received}."


def _names(schema: object) -> Iterator[str]:
    """Yield the names of all fields of a JSON schema, including nested objects."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for part in schema.values():
            yield from _names(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _names(part)
