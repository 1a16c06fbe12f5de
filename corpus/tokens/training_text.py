"""The text a vocabulary is trained on: each training document of a partition, once."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Sequence

from corpus.errors import BadDataError, reading
from corpus.text.drops import RejectedFileError
from corpus.text.inputs import input_format
from corpus.text.readable import Tally, check_readable
from corpus.text.shard_contents import DocumentCounts, read_contents
from corpus.tokens.held_out_text import HeldOut
from pipeline_config import PipelineConfig
from pipeline_store import request_paths, uris

logger = logging.getLogger(__name__)


_SECONDS_BETWEEN_REPORTS = 10.0


class TrainingText:
    """Iterates over the text of the training side, reading the files anew each time.

    Held-out documents are left out, so that no word is in the vocabulary because of them. Progress
    is logged.

    :raises BadDataError: at the end of an iteration, if more than ``corpus.max_bad_fraction`` of
        the input was unreadable or there was no training document. A vocabulary is frozen, so
        garbage must not get into it.
    """

    def __init__(self, inputs: Sequence[str], config: PipelineConfig) -> None:
        self._inputs = inputs
        self._config = config
        self._sizes = {uri: uris.size(uri) for uri in inputs}
        self._held_out = HeldOut(inputs, config)

    def __iter__(self) -> Iterator[str]:
        """Yield pieces of text."""
        seen: set[bytes] = set()
        tallies: list[Tally] = []
        progress = _Progress(sum(self._sizes.values()))
        for uri in self._inputs:
            tallies.append((yield from self._shard(uri, seen, progress)))
            progress.finished(self._sizes[uri])
        progress.report(len(seen), 0)
        check_readable(tallies, self._config.corpus.max_bad_fraction)
        if not progress.training_documents:
            raise BadDataError(
                f"{len(self._inputs)} files, such as {self._inputs[0]}, hold {len(seen) or 'no'} "
                "documents, none of them on the training side."
            )

    def _shard(
        self, uri: str, seen: set[bytes], progress: _Progress
    ) -> Generator[str, None, Tally]:
        corpus = self._config.corpus
        counts = DocumentCounts()
        with reading(uri), request_paths.open_stream(uri) as stream:
            contents = read_contents(
                stream,
                input_format(uri, self._config),
                corpus,
                split_sentences=False,
                counts=counts,
                reject=lambda rejected: None,
            )
            try:
                for content in contents:
                    if content.sha256 in seen:
                        continue
                    seen.add(content.sha256)
                    if content not in self._held_out:
                        progress.training_documents += 1
                        yield from content.sentences
                    if progress.is_due():
                        progress.report(len(seen), stream.tell())
            except RejectedFileError as error:
                logger.warning("not read: %s: %s", uri, error)
        return Tally(
            input_uri=uri,
            input_bytes=self._sizes[uri],
            documents=counts.documents,
            dropped=counts.dropped,
        )


class _Progress:
    """Logs how much of the files is read, and counts the documents to train on."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._finished_bytes = 0
        self.training_documents = 0
        self._last = time.monotonic()

    def is_due(self) -> bool:
        return time.monotonic() - self._last >= _SECONDS_BETWEEN_REPORTS

    def finished(self, file_bytes: int) -> None:
        self._finished_bytes += file_bytes

    def report(self, documents: int, bytes_of_file: int) -> None:
        self._last = time.monotonic()
        logger.info(
            "%d different documents, %.1f of %.1f MB",
            documents,
            (self._finished_bytes + bytes_of_file) / 1e6,
            self._total_bytes / 1e6,
        )
