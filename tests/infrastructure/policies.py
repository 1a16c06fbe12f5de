"""What the Terraform files must keep to. Each policy yields a line for whatever breaks it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.infrastructure.tree import Resource, Tree, strings

Policy = Callable[[Tree], Iterator[str]]

BUCKET = "google_storage_bucket"
ACCOUNT = "google_service_account"
CUSTOM_ROLE = "google_project_iam_custom_role"
_BASIC = {"roles/owner", "roles/editor", "roles/viewer"}
# A rule that removes objects by name or age must not be in the store's bucket.
STORE = "google_storage_bucket.store"
# What may come in, by the variable that has to ask for it: the hosts of a slice reach each other,
# and Google's Identity-Aware Proxy reaches SSH.
COMES_IN: dict[str, dict[str, Any]] = {
    "tpu_slices_of_several_hosts": {
        "source_tags": ["local.slice_tag"],
        "target_tags": ["local.slice_tag"],
        "allow": [{"protocol": "tcp"}],
    },
    "ssh_through_iap": {
        "source_ranges": ["35.235.240.0/20"],
        "allow": [{"protocol": "tcp", "ports": ["22"]}],
    },
}
# What is no matter of who comes in where.
_SAID_OF_A_RULE = {"count", "description", "direction", "name", "network", "priority"}
LABELLED = {
    BUCKET: "labels",
    "google_artifact_registry_repository": "labels",
    "google_cloud_run_v2_job": "labels",
    "google_composer_environment": "labels",
    "google_monitoring_notification_channel": "user_labels",
}
# These cannot have labels. Firewall rules, networks and subnetworks have a description instead.
UNLABELLED = {
    ACCOUNT,
    CUSTOM_ROLE,
    "google_billing_budget",
    "google_cloud_scheduler_job",
    "google_compute_firewall",
    "google_compute_network",
    "google_compute_subnetwork",
    "google_project_service",
}


def is_grant(resource: Resource) -> bool:
    """Tell whether a resource gives somebody a role."""
    return resource.type.endswith("_iam_member")


def no_wide_roles(tree: Tree) -> Iterator[str]:
    """Nobody is owner, editor or administrator of anything, and custom roles have no wildcard."""
    for resource in tree.resources():
        role = str(resource.body.get("role", ""))
        if role in _BASIC or role.lower().endswith("admin"):
            yield f"{resource.address} gives {role}"
    for role in tree.resources(CUSTOM_ROLE):
        for permission in role.body["permissions"]:
            if "*" in permission or re.search(r"IamPolicy$|actAs$|\.setMetadata$", permission):
                yield f"{role.address} has {permission}"


def no_public_access(tree: Tree) -> Iterator[str]:
    """Nothing is open to everybody."""
    for resource in tree.resources():
        for text in strings(resource.body):
            if "allUsers" in text or "allAuthenticatedUsers" in text:
                yield f"{resource.address} names {text}"


def grants_only_add(tree: Tree) -> Iterator[str]:
    """Grants never replace those that others gave, and there are no keys to lose."""
    for resource in tree.resources():
        if resource.type.endswith(("_iam_binding", "_iam_policy")):
            yield f"{resource.address} replaces the grants of others; use _iam_member"
        if resource.type in {"google_service_account_key", "google_storage_hmac_key"}:
            yield f"{resource.address} is a key in Terraform's state"


def grants_go_to_own_accounts(tree: Tree) -> Iterator[str]:
    """Each grant is for one of the accounts made here, and each account has some."""
    accounts = {one.name for one in tree.resources(ACCOUNT)}
    named = set()
    for grant in filter(is_grant, tree.resources()):
        found = re.fullmatch(
            r"google_service_account\.(\w+)(\[0\])?\.member", str(grant.body["member"])
        )
        if found is None or found[1] not in accounts:
            yield f"{grant.address} is for {grant.body['member']}"
        else:
            named.add(found[1])
    yield from (f"{ACCOUNT}.{name} has no rights" for name in sorted(accounts - named))


def writing_is_by_folder(tree: Tree) -> Iterator[str]:
    """In the store only Airflow writes everywhere."""
    for grant in tree.resources("google_storage_bucket_iam_member"):
        in_store = grant.body["bucket"] == f"{STORE}.name"
        airflow = grant.body["member"] == "google_service_account.airflow.member"
        writes = grant.body["role"] not in {
            "roles/storage.objectViewer",
            "roles/storage.legacyBucketReader",
        }
        condition = grant.block("condition").get("expression", "")
        if in_store and writes and not airflow and "local.objects" not in condition:
            yield f"{grant.address} may write in the whole store"


def buckets_are_closed(tree: Tree) -> Iterator[str]:
    """Rights are the bucket's own, not the objects', and can never be public."""
    for bucket in tree.resources(BUCKET):
        if bucket.body.get("uniform_bucket_level_access") is not True:
            yield f"{bucket.address} has no uniform access"
        if bucket.body.get("public_access_prevention") != "enforced":
            yield f"{bucket.address} does not prevent public access"


def the_store_is_never_emptied(tree: Tree) -> Iterator[str]:
    """No lifecycle rule matches an object that is in place: models, pointers, records."""
    store = tree.resource(STORE)
    for rule in store.body.get("lifecycle_rule", []):
        action, condition = rule["action"][0]["type"], dict(rule["condition"][0])
        if action == "AbortIncompleteMultipartUpload":
            continue
        if action != "Delete":
            yield f"{store.address}: a rule does {action}"
        elif condition.get("with_state") != "ARCHIVED":
            yield f"{store.address}: a rule deletes objects that are in place: {condition}"
        elif condition.keys() != {"with_state", "days_since_noncurrent_time"}:
            yield f"{store.address}: a rule counts from something else: {condition}"
    if store.body.get("force_destroy") != "var.delete_store_with_everything":
        yield f"{store.address} can be destroyed with all models without being asked to"
    if not store.block("versioning").get("enabled"):
        yield f"{store.address} keeps nothing that was deleted by mistake"


def nothing_comes_in(tree: Tree) -> Iterator[str]:
    """No rule lets anybody in, but for what somebody asks for."""
    for rule in tree.resources("google_compute_firewall"):
        if "allow" in rule.body and rule.body.get("direction", "INGRESS") == "INGRESS":
            lets_in = {key: rule.body[key] for key in rule.body.keys() - _SAID_OF_A_RULE}
            asked = re.fullmatch(r"var\.(\w+) \? 1 : 0", str(rule.body.get("count")))
            if asked is None or COMES_IN.get(asked[1]) != lets_in:
                yield f"{rule.address} lets in {lets_in}"
            elif tree.named("variable")[asked[1]].get("default") is not False:
                yield f"{rule.address} is there unasked"


def nothing_goes_out(tree: Tree) -> Iterator[str]:
    """Machines reach Google's APIs, and have no way to the internet."""
    for network in tree.resources("google_compute_network"):
        if network.body.get("auto_create_subnetworks") is not False:
            yield f"{network.address} makes subnetworks by itself"
    for subnetwork in tree.resources("google_compute_subnetwork"):
        if subnetwork.body.get("private_ip_google_access") is not True:
            yield f"{subnetwork.address} has no Private Google Access"
    for resource in tree.resources():
        if resource.type in {"google_compute_router_nat", "google_compute_address"}:
            yield f"{resource.address} leads to the internet"


def everything_is_described(tree: Tree) -> Iterator[str]:
    """Variables say what they are and refuse what cannot work; outputs say what they are for."""
    for name, variable in tree.named("variable").items():
        for wanted in ("description", "type"):
            if not variable.get(wanted):
                yield f"variable {name} has no {wanted}"
        if variable.get("type") != "bool" and not variable.get("validation"):
            yield f"variable {name} takes anything"
    for name, output in tree.named("output").items():
        if not output.get("description"):
            yield f"output {name} has no description"


def everything_is_labelled(tree: Tree) -> Iterator[str]:
    """What can have labels has ours, by which bills are read."""
    for resource in tree.resources():
        if field := LABELLED.get(resource.type):
            if resource.body.get(field) != "local.labels":
                yield f"{resource.address} has no labels"
        elif resource.type not in UNLABELLED and not is_grant(resource):
            yield f"{resource.address}: nobody has said whether a {resource.type} has labels"


def versions_are_pinned(tree: Tree) -> Iterator[str]:
    """The same files always mean the same."""
    [settings] = tree.content["terraform"]
    [providers] = settings["required_providers"]
    for name, provider in providers.items():
        if not re.fullmatch(r"\d+\.\d+\.\d+", provider["version"]):
            yield f"provider {name} is {provider['version']}"


def money_is_watched(tree: Tree) -> Iterator[str]:
    """There is a budget for this project alone, and somebody gets its mail."""
    budgets = list(tree.resources("google_billing_budget"))
    if not budgets:
        yield "there is no budget"
    for budget in budgets:
        if "data.google_project.this.number" not in str(
            budget.block("budget_filter").get("projects")
        ):
            yield f"{budget.address} counts other projects"
        if not budget.block("all_updates_rule").get("monitoring_notification_channels"):
            yield f"{budget.address} tells nobody"
        if not budget.body.get("threshold_rules"):
            yield f"{budget.address} has no threshold"


POLICIES: tuple[Policy, ...] = (
    no_wide_roles,
    no_public_access,
    grants_only_add,
    grants_go_to_own_accounts,
    writing_is_by_folder,
    buckets_are_closed,
    the_store_is_never_emptied,
    nothing_comes_in,
    nothing_goes_out,
    everything_is_described,
    everything_is_labelled,
    versions_are_pinned,
    money_is_watched,
)
