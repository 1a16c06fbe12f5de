"""The text a vocabulary is trained on: each training document of a partition, once."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence

from beam_jobs.content import split_of
from beam_jobs.errors import BadDataError
from beam_jobs.inputs import input_format
from beam_jobs.partition import Tally, check_readable
from beam_jobs.reading import RejectedFileError
from beam_jobs.shard_contents import DocumentCounts, read_contents
from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import Split

logger = logging.getLogger(__name__)


class TrainingText:
    """Iterates over the sentences of the training side, reading the files anew each time.

    Held-out documents are left out, so that no word is in the vocabulary because of them.

    :raises BadDataError: at the end of an iteration, when more than ``corpus.max_bad_fraction`` of
        the input was unreadable or no training document was found. A vocabulary is frozen, so
        garbage must not get into it.
    """

    def __init__(self, inputs: Sequence[str], config: PipelineConfig) -> None:
        self._inputs = inputs
        self._config = config

    def __iter__(self) -> Iterator[str]:
        """Yield sentences."""
        seen: set[bytes] = set()
        tallies: list[Tally] = []
        for uri in self._inputs:
            tallies.append((yield from self._shard(uri, seen)))
        check_readable(tallies, self._config.corpus.max_bad_fraction)
        if not seen:
            raise BadDataError(
                f"{len(self._inputs)} files hold no document, such as {self._inputs[0]}."
            )

    def _shard(self, uri: str, seen: set[bytes]) -> Generator[str, None, Tally]:
        corpus = self._config.corpus
        counts = DocumentCounts()
        with uris.open_stream(uri) as stream:
            contents = read_contents(
                stream,
                input_format(uri, self._config),
                corpus.text_field,
                counts=counts,
                seen=seen,
                reject=lambda rejected: None,
            )
            try:
                for sentences, sha256 in contents:
                    if split_of(sha256, corpus.validation_fraction) is Split.TRAIN:
                        yield from sentences
            except RejectedFileError as error:
                logger.warning("not read: %s: %s", uri, error)
        return Tally(
            input_uri=uri,
            input_bytes=uris.size(uri),
            documents=counts.documents,
            dropped=counts.dropped,
        )
