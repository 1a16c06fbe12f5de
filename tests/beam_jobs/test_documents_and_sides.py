"""What a document is and what is held out together, in real runs of the data job."""

from __future__ import annotations

import pytest

from corpus.errors import UserError
from tests.beam_jobs.workspace import Workspace, as_jsonl, as_text, documents, make_config


def test_files_that_have_no_such_documents_are_refused(workspace: Workspace) -> None:
    workspace.put("a.jsonl", as_jsonl(documents(3)))
    workspace.config = make_config(corpus__document="file")
    with pytest.raises(UserError, match=r"a\.jsonl, which is read as jsonl"):
        workspace.prepare()


def test_paragraphs_of_a_file_share_rows(workspace: Workspace) -> None:
    texts = documents(40)
    for number in range(20):
        workspace.put(f"{number}.txt", as_text(texts[2 * number : 2 * number + 2]))
    paragraphs = workspace.prepare().manifest
    workspace.config = make_config(corpus__document="file", model__lineage_id="files")
    files = workspace.prepare().manifest
    assert (paragraphs.documents, files.documents) == (40, 20)
    assert sum(files.records.values()) < sum(paragraphs.records.values())
