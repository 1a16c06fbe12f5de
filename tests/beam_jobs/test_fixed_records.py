"""The bytes of records at fixed text, vocabulary and settings: no faster job may change them."""

from __future__ import annotations

import hashlib
import string
from typing import Any

import pytest

from tests.beam_jobs.workspace import Workspace, as_text, document, documents, make_config

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_PIECES = ["ba", "ke", "li", "mo", "nu", "pra", "tri", "sto", "wen", "xi", "dor", "fal", "gim"]
# Copies, similar documents, characters of other scripts, bytes that are no UTF-8.
_FILES = {
    "a.txt": as_text([*documents(40), documents(1)[0], "Ren\u00e9 \u4e2d\u6587 na\u00efve"]),
    "b.txt": as_text([*documents(15, first=60), document(7, sentences=40).replace("a", "o", 1)]),
    "c.txt": as_text([document(7, sentences=40)]) + b"\n\n\xff bad\n",
}
_NEAR: dict[str, Any] = {"corpus__duplicates": "near", "corpus__max_bad_fraction": 0.5}
# Written when RECIPE_VERSION was last raised: it has to be raised where one of these changes.
EXPECTED = {
    ("doc_sentences", False): "97529dfeb0a63a30b00b77c11bf2e5ee9d61ce041348ef4724886f5b6408eb13",
    ("full_sentences", False): "670acf7b2b1c4c52d35232e25df450f442d24c30c6b1ef85785654f3fcdf3245",
    ("segment_pair", False): "5f81b453ba9ee54ace53153aa233d4d6716429d2a7a876718eb6023f5b074689",
    ("doc_sentences", True): "4675932771664e28025ae387f22e1912341a211e6bc744aacb5d5143f0f76a21",
}


def digest_of(workspace: Workspace) -> str:
    """Return one hash of all records, on either side and of both lengths."""
    manifest = workspace.prepare().manifest
    assert sum(manifest.records.values()) > 50
    return hashlib.sha256("".join(workspace.record_hashes(manifest)).encode()).hexdigest()


@pytest.mark.parametrize(("packing", "dynamic"), EXPECTED)
def test_records_are_byte_for_byte_what_they_were(
    workspace: Workspace, packing: str, dynamic: bool
) -> None:
    for name, data in _FILES.items():
        workspace.put(name, data)
    words = [*string.ascii_lowercase, *string.punctuation, *_PIECES]
    pieces = [*_SPECIAL, *words, *(f"##{word}" for word in words)]
    vocabulary = workspace.corpus / "vocabulary"
    vocabulary.write_text("\n".join(pieces) + "\n")
    workspace.config = make_config(
        vocabulary__uri=str(vocabulary),
        masking__packing=packing,
        masking__dynamic=dynamic,
        masking__extra_max_seq_length=64,
        **_NEAR,
    )
    assert digest_of(workspace) == EXPECTED[packing, dynamic]
