"""Every stored file: round trip, and refusal of anything it does not know."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_store import formats
from pipeline_store.formats import (
    DataStatistics,
    DocumentSetScore,
    ExitKind,
    FileDigest,
    FormatError,
    Holder,
    LedgerEntry,
    LineageLease,
    PartitionManifest,
    Split,
    StoredFile,
    VerdictKind,
)

st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
SHA256 = st.text("0123456789abcdef", min_size=64, max_size=64)
st.register_type_strategy(
    FileDigest, st.builds(FileDigest, path=st.text(), bytes=st.integers(), sha256=SHA256)
)
# By itself Hypothesis takes the mark of a default that is made anew each time for the default.
st.register_type_strategy(LedgerEntry, st.builds(LedgerEntry))

KINDS: list[Any] = [
    kind
    for name in formats.__all__
    if isinstance(kind := getattr(formats, name), type)
    and issubclass(kind, StoredFile)
    and kind is not StoredFile
]
# Fields whose type says too little to make values from.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
ANY_SETTINGS = st.dictionaries(st.text(), JSON, max_size=3)
SPECIAL = {
    "training-inputs": {"settings": ANY_SETTINGS},
    "task-manifest": {"task": ANY_SETTINGS},
    "trial-result": {"settings": ANY_SETTINGS},
    "compressed-model": {"settings": ANY_SETTINGS},
}
HOLDER = Holder(sequence=3, generation=1, attempt=2, token="0" * 32)


def fields(**changes: Any) -> bytes:
    return json.dumps(json.loads(HOLDER.to_bytes()) | changes).encode()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_round_trip(kind: type[StoredFile], data: st.DataObject) -> None:
    stored = data.draw(st.builds(kind, **SPECIAL.get(kind.kind, {})))
    content = stored.to_bytes()
    assert kind.parse(content, "uri") == stored
    assert kind.parse(content, "uri").to_bytes() == content
    assert json.loads(content)["format"] == kind.kind
    assert json.loads(content)["format_version"] == kind.version


def test_kinds_are_distinct() -> None:
    assert len({kind.kind for kind in KINDS}) == len(KINDS) > 15


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_an_unknown_version_is_refused(version: object) -> None:
    with pytest.raises(FormatError, match=r"/x/holder\.json.*version.*reads 'holder' version 1"):
        Holder.parse(fields(format_version=version), "/x/holder.json")


def test_another_kind_is_refused() -> None:
    with pytest.raises(FormatError, match="another format than 'holder'"):
        Holder.parse(fields(format="ledger"), "/x/holder.json")


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"extra": 1}, "not known"), ({"token": None}, "token"), ({"sequence": "many"}, "sequence")],
)
def test_wrong_fields_are_refused_by_name(changes: dict, named: str) -> None:
    with pytest.raises(FormatError, match=f"(?s)/x/holder.json.*{named}"):
        Holder.parse(fields(**changes), "/x/holder.json")


def test_a_missing_field_is_refused_by_name() -> None:
    content = json.loads(HOLDER.to_bytes())
    del content["token"]
    with pytest.raises(FormatError, match="token"):
        Holder.parse(json.dumps(content).encode(), "uri")


@pytest.mark.parametrize("cut", range(0, len(HOLDER.to_bytes()) - 2, 7))
def test_a_truncated_file_is_refused(cut: int) -> None:
    with pytest.raises(FormatError, match="damaged"):
        Holder.parse(HOLDER.to_bytes()[:cut], "uri")


@pytest.mark.parametrize("content", [b"[]", b"null", b"3", b"\xff\xfe", b"text"])
def test_other_content_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError, match="expected JSON with format 'holder'"):
        Holder.parse(content, "uri")


LEASE = LineageLease(
    sequence=12,
    run_key="0" * 12,
    dag_id="dag",
    run_id="run",
    partition="day-1",
    acquired=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    expires=datetime(2026, 1, 3, 3, 4, 5, tzinfo=UTC),
)


MANIFEST = PartitionManifest(
    partition="day-1",
    lineage_id="default",
    vocabulary_sha256="1" * 64,
    config_sha256="2" * 64,
    packing="doc_sentences",
    masked=True,
    max_seq_length=128,
    max_predictions_per_seq=20,
    extra_max_seq_length=None,
    extra_max_predictions_per_seq=None,
    shards=["shards/a/shard.json"],
    documents=1234,
    records={Split.TRAIN: 5000},
    tokens={Split.TRAIN: 600_000},
    dropped={"empty": 3},
    duplicate_index=None,
    statistics=DataStatistics(
        document_tokens={}, row_tokens={}, text_tokens=0, unknown_tokens=0, new_words={}
    ),
)


def test_records_that_decide_carry_a_checksum() -> None:
    kinds = {kind.kind for kind in KINDS if kind.has_checksum}
    assert kinds >= {"run-plan", "finetuning-plan", "verdict", "production-pointer", "run-approval"}
    assert kinds >= {"evaluation", "lineage-lease", "run-outcome"}
    # And those that commit other files.
    assert kinds >= {"shard-manifest", "partition-manifest", "task-manifest", "checkpoint"}
    assert kinds >= {"model-version", "model-exports"}


@pytest.mark.parametrize("record", [LEASE, MANIFEST], ids=lambda record: record.kind)
def test_one_changed_digit_is_noticed(record: StoredFile) -> None:
    data = record.to_bytes()
    places = [place for place, sign in enumerate(data) if chr(sign).isdigit()]
    assert len(places) > 80
    for place in places:
        digit = (data[place] - ord("0") + 1) % 10
        changed = data[:place] + b"%d" % digit + data[place + 1 :]
        with pytest.raises(FormatError, match=r"/x/record\.json"):
            type(record).parse(changed, "/x/record.json")


def test_a_manifest_of_before_there_were_checksums_is_the_same_one() -> None:
    content = json.loads(MANIFEST.to_bytes())
    del content["record_sha256"]
    before = (json.dumps(content, indent=2) + "\n").encode()
    read = PartitionManifest.parse(before, "uri")
    assert read == MANIFEST
    # What records of that time name it by.
    assert read.content_sha256 == hashlib.sha256(before).hexdigest()


def test_the_checksum_is_of_the_content_not_of_its_spelling() -> None:
    content = json.loads(LEASE.to_bytes())
    spelled = json.dumps(dict(reversed(content.items())), indent=None).encode()
    assert LineageLease.parse(spelled, "uri") == LEASE
    # Files of earlier releases have none.
    del content["record_sha256"]
    assert LineageLease.parse(json.dumps(content).encode(), "uri") == LEASE


def test_loading_and_creating(any_store: str) -> None:
    uri = f"{any_store}/holder.json"
    assert Holder.load_or_none(uri) is None
    with pytest.raises(FileNotFoundError):
        Holder.load(uri)
    assert HOLDER.create(uri)
    assert not HOLDER.model_copy(update={"sequence": 4}).create(uri)
    assert Holder.load(uri) == Holder.load_or_none(uri) == HOLDER
    HOLDER.model_copy(update={"sequence": 5}).write(uri)
    assert Holder.load(uri).sequence == 5


def test_a_damaged_file_is_not_taken_for_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "holder.json").write_bytes(b"")
    with pytest.raises(FormatError, match=r"holder\.json"):
        Holder.load_or_none(str(tmp_path / "holder.json"))


def test_stored_files_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        HOLDER.sequence = 9  # type: ignore[misc]


@pytest.mark.parametrize("sha256", ["", "a" * 63, "A" * 64, "../" + "a" * 61, "a" * 64 + "\n"])
def test_a_digest_that_is_none_is_refused(sha256: str) -> None:
    with pytest.raises(ValueError, match="sha256"):
        FileDigest(path="weights.index", bytes=1, sha256=sha256)


def test_verdict_strings_are_the_published_ones() -> None:
    assert [str(kind) for kind in VerdictKind] == [
        "promoted",
        "rejected: worse",
        "rejected: not enough evidence",
        "rejected: forgetting",
        "rejected: downstream",
        "rejected: retrieval",
    ]


def test_scores_are_weighted_by_token() -> None:
    score = DocumentSetScore(
        set_name="s",
        document_ids=["a", "b"],
        loss_sums=[2.0, 30.0],
        correct_sums=[1.0, 3.0],
        reciprocal_rank_sums=[1.0, 5.0],
        token_counts=[1.0, 9.0],
    )
    assert score.loss == pytest.approx(3.2)
    assert score.accuracy == pytest.approx(0.4)
    assert score.mrr == pytest.approx(0.6)
    assert score.perplexity == pytest.approx(24.53253)


@pytest.mark.parametrize("kind", ExitKind)
def test_exit_codes_round_trip(kind: ExitKind) -> None:
    assert ExitKind.from_exit_code(kind.exit_code) is kind


@pytest.mark.parametrize(
    ("code", "kind"),
    [(1, ExitKind.FAILED), (137, ExitKind.FAILED), (-9, ExitKind.KILLED), (-15, ExitKind.KILLED)],
)
def test_other_exit_codes(code: int, kind: ExitKind) -> None:
    assert ExitKind.from_exit_code(code) is kind
