"""The different documents of one shard, with a count of everything that is not one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from beam_jobs.content import Content, content_of
from beam_jobs.documents import Rejected, parse_documents
from beam_jobs.drops import DropReason
from beam_jobs.inputs import InputFormat
from beam_jobs.reading import RejectedFileError, read_lines


@dataclass
class DocumentCounts:
    """How many documents were read, and how many of them were dropped, by reason."""

    documents: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def drop(self, reason: DropReason, count: int = 1) -> None:
        """Count documents that were read but are not used."""
        if count:
            self.dropped[reason] += count


def read_contents(
    stream: BinaryIO,
    input_format: InputFormat,
    text_field: str,
    *,
    counts: DocumentCounts,
    seen: set[bytes],
    reject: Callable[[Rejected], None],
) -> Iterator[Content]:
    """Yield the contents of the documents whose hashes are not yet in ``seen``.

    :param stream: the shard's bytes, gzip-compressed or not.
    :param counts: is kept up to date.
    :param reject: called with every document that cannot be read.
    :raises RejectedFileError: the file is binary, cut short or damaged. ``counts`` then says that
        all documents read so far, and at least one, were lost for that reason.
    """
    try:
        for found in parse_documents(read_lines(stream), input_format, text_field):
            counts.documents += 1
            if isinstance(found, Rejected):
                counts.drop(found.reason)
                reject(found)
                continue
            content = content_of(found.text, input_format)
            if content.sha256 in seen:
                counts.drop(DropReason.DUPLICATE)
                continue
            seen.add(content.sha256)
            yield content
    except RejectedFileError as error:
        counts.documents = max(1, counts.documents)
        counts.dropped = Counter({error.reason: counts.documents})
        raise
