"""Base class of all stored JSON files: a kind, a format version, and strict reading."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline_config.unquoted import UNPARSABLE, broken_fields, fault, kind_of
from pipeline_store import uris

_CHECKSUM = "record_sha256"

Decided = TypeVar("Decided", bound="StoredFile | None")


class FormatError(ValueError):
    """A stored file is damaged, of another kind, or of an unknown version."""


def require_unchanged(stated: object, computed: str | None, uri: str) -> None:
    """Refuse a file whose content does not match its checksum.

    :raises FormatError: the checksums differ.
    """
    if stated != computed:
        raise FormatError(
            f"{uri} has other content than was written: its {_CHECKSUM} does not match. Restore it "
            "from a backup or an older generation of the object; a record is never edited."
        )


def _checksum(text: str | bytes) -> str:
    """Return the hash of a record's content, with numbers as spelled there and sorted keys."""
    content = json.loads(text, parse_float=str)
    content.pop(_CHECKSUM, None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _spelled(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


class StoredFile(BaseModel):
    """A JSON file of the store.

    Subclasses set ``kind`` and ``version``. A reader refuses any other kind and any version it does
    not know, because guessing at a future layout is how wrong numbers get into a model.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    has_checksum: ClassVar[bool] = False
    """Whether the file carries a hash of its own content: set for records that decide which model
    is used and for those that commit other files, to detect a corrupt digit that is still valid."""

    def to_bytes(self) -> bytes:
        """Return the file's content: readable JSON in a stable order."""
        content = self._content()
        if self.has_checksum:
            content[_CHECKSUM] = _checksum(json.dumps(content))
        return _spelled(content)

    def content_bytes(self) -> bytes:
        """Return the file's content without its checksum, as releases before checksums wrote it."""
        return _spelled(self._content())

    def _content(self) -> dict[str, Any]:
        head = {"format": self.kind, "format_version": self.version}
        return head | self.model_dump(mode="json")

    @classmethod
    def parse(cls, data: bytes, uri: str) -> Self:
        """Read a file's content.

        :param data: the bytes as stored.
        :param uri: where they came from, for error messages.
        :raises FormatError: not JSON, another kind, an unknown version, wrong fields, or a checksum
            that does not match. Files of earlier releases have no checksum.
        """
        try:
            fields: dict[str, Any] = json.loads(data)
            stated = fields.pop(_CHECKSUM, None) if cls.has_checksum else None
            computed = _checksum(data) if stated is not None else None
            kind, version = fields.pop("format"), fields.pop("format_version")
        except UNPARSABLE as error:
            raise FormatError(
                f"{uri} is not a stored file of this project ({fault(error)}); expected JSON with "
                f"format {cls.kind!r}. It may be damaged or come from elsewhere."
            ) from None
        if kind != cls.kind:
            raise FormatError(
                f"{uri} has another format than {cls.kind!r}, which is expected there. It may come "
                "from elsewhere."
            )
        if version != cls.version:
            found = version if isinstance(version, int) else kind_of(version)
            raise FormatError(
                f"{uri} has version {found}; this program reads {cls.kind!r} version "
                f"{cls.version}. Use the program version that wrote it."
            )
        require_unchanged(stated, computed, uri)
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            problems = " ".join(broken_fields(error, cls))
            raise FormatError(f"{uri} does not hold a valid {cls.kind}: {problems}") from None

    @classmethod
    def load(cls, uri: str) -> Self:
        """Read from the store.

        :raises FileNotFoundError: there is no such file.
        :raises FormatError: see :meth:`parse`.
        """
        return cls.parse(uris.read(uri), uri)

    @classmethod
    def load_or_none(cls, uri: str) -> Self | None:
        """Read from the store, or return None when there is no such file."""
        data = uris.read_or_none(uri)
        return None if data is None else cls.parse(data, uri)

    def write(self, uri: str) -> None:
        """Create or replace the file atomically; only for files that have one writer."""
        uris.write(uri, self.to_bytes())

    def create(self, uri: str) -> bool:
        """Create the file; return False when it already exists."""
        return uris.create_if_absent(uri, self.to_bytes())

    @classmethod
    def update(cls, uri: str, decide: Callable[[Self | None], Decided]) -> Decided:
        """Update the file by compare-and-set, and decide again whenever another writer is first.

        :param decide: gets the stored file, or None; returns the new one. Nothing is written if it
            returns None or its argument. It may raise to leave the file unchanged.
        :returns: the last decision.
        :raises FormatError: the stored file is damaged.
        """
        while True:
            data, version = uris.read_versioned(uri) or (None, None)
            current = None if data is None else cls.parse(data, uri)
            decided = decide(current)
            is_unchanged = decided is current
            if decided is None or is_unchanged:
                return decided
            try:
                uris.compare_and_set(uri, decided.to_bytes(), version)
            except uris.VersionConflictError:
                continue
            return decided
