"""What a TPU VM may write: what it reports, and nothing by which others decide."""

from __future__ import annotations

import pytest

from tests.infrastructure.conditions import allows, cel
from tests.infrastructure.tree import Resource, Tree, files
from tests.infrastructure.vm_paths import DECISIONS, REPORTS, RUN, STORE

TREE = Tree.parse(files())


def grant(name: str) -> Resource:
    return TREE.resource(f"google_storage_bucket_iam_member.{name}")


@pytest.mark.parametrize("path", REPORTS)
def test_a_vm_may_write_what_it_reports(path: str) -> None:
    assert allows(TREE, grant("tpu_vm_reports_of_runs"))(path)


@pytest.mark.parametrize("path", DECISIONS)
def test_a_vm_may_not_write_by_what_others_decide(path: str) -> None:
    assert not allows(TREE, grant("tpu_vm_reports_of_runs"))(path)


@pytest.mark.parametrize("account", ["tpu_vm", "data_job", "reaper"])
def test_only_airflow_reads_the_keys_of_jobs(account: str) -> None:
    may_read = allows(TREE, grant(f"{account}_reads_the_store"))
    assert may_read(RUN.plan.removeprefix("S/"))
    assert not may_read(STORE.job_key("0a1b2c3d4e5f", 1).removeprefix("S/"))
    writes = [
        one
        for one in TREE.resources("google_storage_bucket_iam_member")
        if one.body["bucket"] == "google_storage_bucket.store.name"
        and one.body["role"] == "roles/storage.objectUser"
        and f".{account}" in str(one.body["member"])
    ]
    for one in writes:
        assert not allows(TREE, one)(STORE.job_key("0a1b2c3d4e5f", 1).removeprefix("S/")), one.name


def test_conditions_are_no_longer_than_google_allows() -> None:
    for one in TREE.resources("google_storage_bucket_iam_member"):
        if expression := one.block("condition").get("expression"):
            text = cel(TREE, expression)
            assert text.count("||") + text.count("&&") + text.replace("!=", "").count("!") <= 12
