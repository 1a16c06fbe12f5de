"""Reads the usable documents of one shard, and counts all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from corpus.text.content import Content, ContentMaker
from corpus.text.documents import parse_documents
from corpus.text.drops import DropReason, Rejected, RejectedFileError
from corpus.text.inputs import InputFormat
from corpus.text.record_documents import RowTokens, record_documents
from pipeline_config.data_schema import CorpusConfig


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
    corpus: CorpusConfig,
    *,
    split_sentences: bool,
    counts: DocumentCounts,
    reject: Callable[[Rejected], None],
) -> Iterator[Content]:
    """Yield the contents of a shard's usable documents in order, copies included.

    :param stream: the shard's bytes, compressed or not; only ``read`` is needed.
    :param split_sentences: whether running text is cut at the ends of sentences.
    :param counts: is kept up to date.
    :param reject: called with every document that cannot be read.
    :raises RejectedFileError: nothing of the file can be used. ``counts`` then says that all
        documents read so far, and at least one, were lost for that reason.
    :raises UserError: ``corpus.keep_languages`` names a language that cannot be recognized.
    """
    maker = ContentMaker(corpus, input_format, split_sentences=split_sentences)
    is_record = input_format == "tfrecord"
    try:
        for found in (
            record_documents(stream) if is_record else parse_documents(stream, input_format, corpus)
        ):
            ordinal = counts.documents
            counts.documents += 1
            if isinstance(found, Rejected):
                counts.drop(found.reason)
                reject(found)
                continue
            if isinstance(found, RowTokens):
                yield Content(found.texts, found.sha256, ordinal, tokens=found)
                continue
            content = maker.content_of(found.text, ordinal, found.group)
            if isinstance(content, DropReason):
                counts.drop(content)
            else:
                yield content
    except RejectedFileError as error:
        counts.documents = max(1, counts.documents)
        counts.dropped = Counter({error.reason: counts.documents})
        raise
