from __future__ import annotations

import errno
import json
import tomllib
from collections.abc import Callable

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline_config.unquoted import broken_fields, fault, kind_of


class Inner(BaseModel):
    size: int


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    parts: dict[str, Inner]
    number: int


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (b"ab\xff".decode, "no UTF-8 after 2 bytes: invalid start byte"),
        (lambda: json.loads('{"secret" 1}'), "Expecting ':' delimiter: line 1 column 11 (char 10)"),
        (lambda: json.loads(b"\xffsecret"), "no UTF-8 after 0 bytes: invalid start byte"),
        (lambda: tomllib.loads("a = 1\n[secret]\n[secret]"), "line 3, column 8"),
        (lambda: tomllib.loads("secret"), "end of document"),
        (lambda: {}["secret"], "KeyError"),
        (lambda: float("secret"), "ValueError"),
    ],
)
def test_an_error_is_told_by_its_place(read: Callable[[], object], told: str) -> None:
    with pytest.raises((ValueError, KeyError)) as caught:
        read()
    assert fault(caught.value) == told


def test_the_systems_errors_are_told_by_their_number() -> None:
    assert fault(OSError(errno.EIO, "secret", "secret")) == "Input/output error"
    assert fault(OSError("secret")) == "OSError"


def test_values_are_told_by_their_kind() -> None:
    values = ("secret", ["secret"], {"secret": 1}, 5, None, True)
    assert [kind_of(value) for value in values] == [
        "text of 6 characters",
        "list of 1",
        "dict of 1",
        "int",
        "NoneType",
        "bool",
    ]


def test_fields_are_told_by_the_names_of_the_schema() -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate({"parts": {"secret": {"size": "secret"}}, "secret": "secret"})
    assert sorted(broken_fields(caught.value, Outer)) == [
        "a name that is not known: Extra inputs are not permitted, received text of 6 characters.",
        "number: Field required.",
        (
            "parts.size: Input should be a valid integer, unable to parse string as an integer, "
            "received text of 6 characters."
        ),
    ]
