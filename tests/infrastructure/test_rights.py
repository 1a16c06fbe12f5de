"""The rights in docs/guides/deployment.md are those of the Terraform files and of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline_store.layout import StoreLayout
from tests.infrastructure.policies import CUSTOM_ROLE, is_grant
from tests.infrastructure.tree import Resource, Tree, files

REPOSITORY = Path(__file__).parents[2]
GUIDE = (REPOSITORY / "docs" / "guides" / "deployment.md").read_text()
TREE = Tree.parse(files())

# The method of the client library, or what is listed, and the permission that it needs.
PERMISSIONS = {
    "create_node": "tpu.nodes.create",
    "create_queued_resource": "tpu.nodes.create",
    "delete_node": "tpu.nodes.delete",
    "delete_queued_resource": "tpu.nodes.delete",
    "get_node": "tpu.nodes.get",
    "get_queued_resource": "tpu.nodes.get",
    "get_operation": "tpu.operations.get",
    "list_accelerator_types": "tpu.acceleratortypes.list",
    "list_locations": "tpu.locations.list",
    "list_nodes": "tpu.nodes.list",
    "list_queued_resources": "tpu.nodes.list",
    "list_runtime_versions": "tpu.runtimeversions.list",
}
# Methods of the backend that the reaper uses, in the client's words.
REAPER_CALLS = {
    "delete": {"delete_node", "delete_queued_resource"},
    "describe": {"get_node", "get_queued_resource"},
    "list_zone": {"list_nodes", "list_queued_resources"},
}


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without its head."""
    section = GUIDE.split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def place(grant: Resource) -> str:
    """Return what a grant is on, in the table's words."""
    if grant.type == "google_project_iam_member":
        return "project"
    kinds = {"bucket": "bucket", "service_account_id": "account", "repository": "repository"}
    field = next((field for field in kinds if field in grant.body), "name")
    name = str(grant.body[field]).split(".")[1].removesuffix("[0]")
    return f"{kinds.get(field, 'job')} {name}"


def folders(grant: Resource) -> str:
    """Return the folders to which a condition limits a grant, in the table's words."""
    expression = grant.block("condition").get("expression", "")
    if expression == "local.no_keys":
        return "all but `job_keys/`"
    if "local.reported" in expression:
        [listed] = re.findall(r"for folder in \[([^\]]+)\]", TREE.locals["reported"])
        return ", ".join(f"`runs/…/{folder}/`" for folder in re.findall(r'"(\w+)"', listed))
    listed = re.search(r"for folder in \[([^\]]+)\]", expression)
    found = re.findall(r'"(\w+)"', listed[1]) if listed else []
    found += re.findall(r"startsWith\(\\*\"[^)]+local\.objects\}/(\w+)/", expression)
    [below] = re.findall(r"extract\([^)]+\}(/\w+/)", expression) or [""]
    [ending] = re.findall(r"endsWith\(\\*\"(\.\w+)", expression) or [""]
    within = f"…{below}{ending}" if below or ending else ""
    return ", ".join(f"`{folder}/{within}`" for folder in sorted(found))


def role(grant: Resource) -> str:
    """Return the role of a grant: the custom role's name, or the predefined one's."""
    text = str(grant.body["role"])
    return text.split(".")[1] if text.startswith(CUSTOM_ROLE) else text


def test_the_table_of_grants_is_what_terraform_makes() -> None:
    made = [
        [
            str(grant.body["member"]).split(".")[1].removesuffix("[0]"),
            place(grant),
            f"`{role(grant)}`",
            folders(grant),
        ]
        for grant in filter(is_grant, TREE.resources())
    ]
    assert [row[:4] for row in rows("### Who may do what")] == made


def test_the_table_of_roles_is_what_terraform_makes() -> None:
    made = {role.name: sorted(role.body["permissions"]) for role in TREE.resources(CUSTOM_ROLE)}
    told = {row[0].strip("`"): re.findall(r"`([\w.]+)`", row[1]) for row in rows("### Own roles")}
    assert told == made


def permissions_of(calls: set[str]) -> set[str]:
    return {PERMISSIONS[call] for call in calls}


# What the preflight asks of other APIs, by module. It asks for the project's default account only
# where no tpu.service_account is named: Terraform's preset names one.
LOOKS = {
    "networks.py": {"compute.networks.get", "compute.subnetworks.get"},
    "quotas.py": {"serviceusage.quotas.get"},
    "account.py": {"serviceusage.services.get"},
    "service_accounts.py": set[str](),
}


def test_airflow_may_look_at_what_the_preflight_looks_at() -> None:
    modules = (REPOSITORY / "preflight" / "cloud").glob("*.py")
    asking = re.compile(r"\.get\(\s*\"(?:compute|serviceusage)\"")
    assert {path.name for path in modules if asking.search(path.read_text())} == set(LOOKS)
    granted = TREE.resource(f"{CUSTOM_ROLE}.project_viewer").body["permissions"]
    assert set(granted) == set().union(*LOOKS.values())


def source(path: str) -> str:
    return (REPOSITORY / path).read_text()


@pytest.mark.parametrize(
    ("role_name", "calls"),
    [
        ("tpu_renter", set(PERMISSIONS)),
        ("tpu_reaper", set().union(*REAPER_CALLS.values())),
        ("tpu_self_delete", {"delete_node", "delete_queued_resource"}),
    ],
)
def test_a_role_has_what_the_code_asks_for_and_nothing_else(
    role_name: str, calls: set[str]
) -> None:
    granted = set(TREE.resource(f"{CUSTOM_ROLE}.{role_name}").body["permissions"])
    assert granted == permissions_of(calls)


def test_the_calls_are_those_of_the_code() -> None:
    backend = source("tpu_lifecycle/service/cloud_tpu.py")
    called = set(re.findall(r"_client\.(\w+)", backend)) - {"transport"}
    listed = set(re.findall(r'_list\(f"[^"]+", "(\w+)"', backend))
    assert called | {f"list_{items}" for items in listed} == set(PERMISSIONS)
    assert set(re.findall(r"backend\.(\w+)\(", source("tpu_lifecycle/control/reaper.py"))) == set(
        REAPER_CALLS
    )
    switch = source("tpu_agent/emulated_tpu.py")
    asked = set(
        re.findall(r"\.((?:create|delete|get|list|update)_(?:node|queued_resource)s?)", switch)
    )
    assert asked == {"delete_node", "delete_queued_resource"}


def test_the_folders_are_those_of_the_store() -> None:
    store = StoreLayout("S")
    written = {
        "tpu_vm": {store.run("r").training.result},
        "data_job": {
            store.decisions("d"),
            store.scratch("s"),
            store.shard("k"),
            store.signatures("g"),
            store.task("t").preparation("k"),
            store.lineage("l").duplicate_index("2026-01-31", "d"),
        },
        "reaper": {store.reaper_pass("o", "p")},
    }
    for account, uris in written.items():
        allowed = {
            folder.split("/")[0]
            for row in rows("### Who may do what")
            if row[0] == account and row[2] == "`roles/storage.objectUser`"
            for folder in re.findall(r"`([\w/….]+)`", row[3])
        }
        assert allowed == {uri.split("/")[1] for uri in uris}
    assert store.lineage("l").duplicate_index("2026-01-31", "d").endswith(".npz")


def test_the_folder_of_prepared_tasks_is_that_of_the_store() -> None:
    name = "google_storage_bucket_iam_member.data_job_prepares_tasks"
    expression = TREE.resource(name).block("condition")["expression"]
    [template] = re.findall(r"extract\(\\*\"[^)]+local\.objects\}/([^\\\"]+)", expression)
    assert template == StoreLayout("S").task("{name}").prepared.removeprefix("S/") + "/"
