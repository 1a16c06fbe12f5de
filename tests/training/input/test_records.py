"""Random access to records, and what happens when a file is not what its manifest says."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from pipeline_store import uris
from pipeline_store.formats import FormatError
from tests.pipeline_store.gcs_server import GcsState
from tests.training.corpora import TinyStore
from trained_models import record_sources
from trained_models.errors import BadDataError
from trained_models.record_sources import RecordSource
from training.input import records
from training.input.records import RecordReader, cached_copy


@pytest.fixture
def sources(tiny: TinyStore) -> list[RecordSource]:
    manifest = tiny.partition("2026-01-01", shards=3, documents=5)
    return record_sources.training_sources([manifest], tiny.layout, tiny.config)


def test_any_order_gives_the_records_that_tensorflow_reads(sources: list[RecordSource]) -> None:
    paths = [source.data_uri for source in sources]
    expected = [record.numpy() for record in tf.data.TFRecordDataset(paths)]
    reader = RecordReader(sources)
    order = np.random.default_rng(0).permutation(len(expected))

    assert len(reader) == len(expected) == 3 * 5 * 2
    assert reader.read(order) == [expected[number] for number in order]
    assert [record for _, record in reader.first_records()] == expected[::10]


def test_all_readers_together_keep_few_files_open(
    sources: list[RecordSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = RecordReader(sources).read(np.arange(30))
    opened = functools.lru_cache(maxsize=2)(records._open_unbuffered.__wrapped__)
    monkeypatch.setattr(records, "_open_unbuffered", opened)
    readers = [RecordReader(sources) for _ in range(3)]
    for reader in readers:
        assert reader.read(np.arange(30)) == expected
    assert opened.cache_info().currsize == 2
    assert opened.cache_info().misses >= 3 * 6


def test_damaged_records_are_refused(sources: list[RecordSource]) -> None:
    path = Path(sources[1].data_uri)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"is damaged: its SHA-256 is .*manifest says"):
        RecordReader(sources)


def test_truncated_records_are_refused_with_both_sizes(sources: list[RecordSource]) -> None:
    path = Path(sources[1].data_uri)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(FormatError, match=f"has {size - 7} bytes; its manifest says {size}"):
        RecordReader(sources)


def test_index_of_another_file_is_refused(sources: list[RecordSource]) -> None:
    first, second = sources[:2]
    mixed = first.file.model_copy(update={"data": second.file.data, "records": 9})
    wrong = dataclasses.replace(first, file=mixed)
    Path(wrong.data_uri).write_bytes(Path(second.data_uri).read_bytes())
    with pytest.raises(BadDataError, match=r"is not the index of .*expected 10 rising offsets"):
        RecordReader([wrong])


def test_records_of_two_kinds_are_no_list(sources: list[RecordSource]) -> None:
    unmasked = sources[1].file.model_copy(update={"masked": False})
    mixed = [sources[0], dataclasses.replace(sources[1], file=unmasked)]
    with pytest.raises(BadDataError, match=r"masked=False, .*masked=True, .*of different kinds"):
        RecordReader(mixed)


def test_cloud_files_are_copied_once(
    sources: list[RecordSource], tmp_path: Path, cloud_storage: GcsState
) -> None:
    expected = RecordReader(sources).read(np.arange(10))
    for uri in (sources[0].data_uri, sources[0].index_uri):
        uris.upload(uri, f"gs://bucket/{Path(uri).name}")
    digests = [
        digest.model_copy(update={"path": Path(digest.path).name})
        for digest in (sources[0].file.data, sources[0].file.index)
    ]
    file = sources[0].file.model_copy(update={"data": digests[0], "index": digests[1]})
    cloud = dataclasses.replace(sources[0], folder="gs://bucket", file=file)

    assert RecordReader([cloud], tmp_path / "cache").read(np.arange(10)) == expected
    for uri in uris.list_files("gs://bucket/"):
        uris.delete(uri)
    # What is on this machine already is not asked for again.
    assert cached_copy(cloud.data_uri, file.data, tmp_path / "cache").exists()


def test_damaged_cloud_file_does_not_reach_the_cache(
    sources: list[RecordSource], tmp_path: Path, cloud_storage: GcsState
) -> None:
    digest = sources[0].file.data
    uris.write("gs://bucket/records", b"x" * digest.bytes)
    with pytest.raises(FormatError, match="is damaged"):
        cached_copy("gs://bucket/records", digest, tmp_path / "cache")
    assert not (tmp_path / "cache" / digest.sha256).exists()


def test_damaged_copy_in_the_cache_is_fetched_again(
    sources: list[RecordSource], tmp_path: Path
) -> None:
    source, cache = sources[0], tmp_path / "cache"
    copy = cached_copy(source.data_uri, source.file.data, cache)
    whole = copy.read_bytes()
    copy.write_bytes(bytes(len(whole)))
    assert cached_copy(source.data_uri, source.file.data, cache).read_bytes() == whole
