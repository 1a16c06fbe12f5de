"""Signs one input file: finds its signatures in the store, or makes and commits them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, cast

from corpus.duplicates.minhash import SKETCH_VERSION, short_sketches_of, sketches_of
from corpus.duplicates.signatures import Signatures, sign
from corpus.rows.conversion import RECIPE_VERSION
from corpus.text.compression import BLOCK_BYTES
from corpus.text.content import Content
from corpus.text.drops import RejectedFileError
from corpus.text.inputs import InputFormat, input_format
from corpus.text.reading import InputChangedError, MeteredStream
from corpus.text.shard_contents import DocumentCounts, read_contents
from pipeline_config import PipelineConfig
from pipeline_store import identity, request_paths, uris
from pipeline_store.formats import FileDigest, SignatureFile
from pipeline_store.layout import StoreLayout

# Settings that change neither which documents a file has nor their hashes.
_ELSEWHERE = {
    "partition",
    "input_pattern",
    "language",
    "near_duplicate_threshold",
    "duplicates",
    "validation_fraction",
    "split_by",
    "max_bad_fraction",
}
_REPORT_EVERY = 256


@dataclass(frozen=True)
class SignedInput:
    """An input file as it was found; ``signature_key`` names its signatures in the store."""

    uri: str
    sha256: str
    bytes: int
    input_format: InputFormat
    signature_key: str

    @property
    def rank(self) -> tuple[str, str]:
        """Sort key: of files with copies of a document, the first one owns it."""
        return self.sha256, self.signature_key


def identify(uri: str, config: PipelineConfig) -> SignedInput:
    """Read an input file once to identify it; equal bytes, read in one way, give an equal key."""
    chosen = input_format(uri, config)
    size = uris.size(uri)
    with request_paths.open_stream(uri) as file:
        stream = MeteredStream(file)
        # Files below /proc report that they are empty and have no end.
        while stream.bytes_read <= size and stream.read(BLOCK_BYTES):
            pass
        if stream.bytes_read != size:
            raise InputChangedError(uri)
        sha256 = stream.finish()
    key = identity.signature_key(sha256, _settings_sha256(config, chosen))
    return SignedInput(uri, sha256, size, chosen, key)


def _settings_sha256(config: PipelineConfig, chosen: InputFormat) -> str:
    settings = config.corpus.hashed(_ELSEWHERE)
    # The format that `auto` resolves to, because two file names can have the same bytes.
    settings |= {"input_format": chosen, "recipe": RECIPE_VERSION}
    settings |= {"sketch" if config.corpus.duplicates == "near" else "short": SKETCH_VERSION}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def find_signatures(store: StoreLayout, signed: SignedInput) -> Signatures | None:
    """Return the signatures of an input file, or None if it has none yet.

    :raises FormatError: the data is missing or damaged.
    """
    uri = store.signatures(signed.signature_key)
    file = SignatureFile.load_or_none(uri)
    if file is None:
        return None
    return Signatures.load(uris.join(uri.rpartition("/")[0], file.data.path), file.data)


class Signer:
    """Signs input files and commits their signatures."""

    def __init__(self, config: PipelineConfig, store: StoreLayout) -> None:
        self._config = config
        self._store = store

    def sign(self, uri: str, report: Callable[[int, int], None]) -> SignedInput:
        """Make sure that a file's signatures are in the store.

        With ``corpus.duplicates`` set to ``keep`` none are needed, so the file is only identified.

        :param report: called at intervals with the documents and bytes read so far.
        :raises InputChangedError: the file changed while it was read.
        """
        signed = identify(uri, self._config)
        manifest_uri = self._store.signatures(signed.signature_key)
        if self._config.corpus.duplicates == "keep" or uris.exists(manifest_uri):
            return signed
        signatures = self._signatures(signed, report)
        data = signatures.to_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        uris.create_if_absent(self._store.signature_data(sha256), data)
        SignatureFile(
            input_sha256=signed.sha256,
            settings_sha256=_settings_sha256(self._config, signed.input_format),
            data=FileDigest(path=f"{sha256}.npz", bytes=len(data), sha256=sha256),
            documents=len(signatures.ordinals),
        ).create(manifest_uri)
        return signed

    def _signatures(self, signed: SignedInput, report: Callable[[int, int], None]) -> Signatures:
        with request_paths.open_stream(signed.uri) as file:
            stream = MeteredStream(file)
            contents = self._contents(signed, stream, report)
            corpus = self._config.corpus
            signed_by = partial(
                sign,
                sketch=sketches_of if corpus.duplicates == "near" else short_sketches_of,
                with_groups=corpus.group_field is not None,
            )
            try:
                signatures = signed_by(contents)
            except RejectedFileError:
                # Nothing of the file is used, so it owns nothing. The conversion reports why.
                signatures = signed_by([])
            if stream.finish() != signed.sha256:
                raise InputChangedError(signed.uri)
        report(len(signatures.ordinals), stream.bytes_read)
        return signatures

    def _contents(
        self, signed: SignedInput, stream: MeteredStream, report: Callable[[int, int], None]
    ) -> Iterator[Content]:
        contents = read_contents(
            cast("BinaryIO", stream),
            signed.input_format,
            self._config.corpus,
            split_sentences=False,
            counts=DocumentCounts(),
            reject=lambda rejected: None,
        )
        for number, content in enumerate(contents, 1):
            if number % _REPORT_EVERY == 0:
                report(number, stream.bytes_read)
            yield content
