"""The Terraform files keep to every policy, and every policy notices when they do not."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.infrastructure import policies
from tests.infrastructure.policies import POLICIES, Policy
from tests.infrastructure.tree import FOLDER, Tree, files

REAL = files()

# Policy, file, what is changed in it, into what.
MUTANTS: list[tuple[Policy, str, str, str]] = [
    (policies.no_wide_roles, "grants.tf", '"roles/dataflow.worker"', '"roles/editor"'),
    (policies.no_wide_roles, "grants.tf", '"roles/dataflow.worker"', '"roles/owner"'),
    (policies.no_wide_roles, "grants.tf", '"roles/dataflow.worker"', '"roles/tpu.admin"'),
    (
        policies.no_wide_roles,
        "grants.tf",
        '"roles/storage.objectUser"',
        '"roles/storage.objectAdmin"',
    ),
    (policies.no_wide_roles, "accounts.tf", '"tpu.operations.get"', '"tpu.*"'),
    (
        policies.no_wide_roles,
        "accounts.tf",
        '"tpu.operations.get"',
        '"resourcemanager.projects.setIamPolicy"',
    ),
    (
        policies.no_public_access,
        "grants.tf",
        "member = google_service_account.tpu_vm.member",
        'member = "allUsers"',
    ),
    (
        policies.no_public_access,
        "grants.tf",
        "member = google_service_account.tpu_vm.member",
        'member = "allAuthenticatedUsers"',
    ),
    (
        policies.grants_only_add,
        "grants.tf",
        '"google_project_iam_member" "tpu_vm',
        '"google_project_iam_binding" "tpu_vm',
    ),
    (
        policies.grants_only_add,
        "accounts.tf",
        'resource "google_service_account" "airflow" {',
        (
            'resource "google_service_account_key" "airflow" {}\n'
            'resource "google_service_account" "airflow" {'
        ),
    ),
    (
        policies.grants_go_to_own_accounts,
        "grants.tf",
        "member = google_service_account.tpu_vm.member",
        'member = "user:somebody@example.com"',
    ),
    (
        policies.grants_go_to_own_accounts,
        "accounts.tf",
        'resource "google_service_account" "airflow" {',
        (
            'resource "google_service_account" "spare" {\n  account_id = "spare"\n}\n'
            'resource "google_service_account" "airflow" {'
        ),
    ),
    (
        policies.writing_is_by_folder,
        "grants.tf",
        '    expression = "resource.name.startsWith(\\"${local.objects}/reaper/\\")"',
        '    expression = "true"',
    ),
    (
        policies.buckets_are_closed,
        "storage.tf",
        "uniform_bucket_level_access = true",
        "uniform_bucket_level_access = false",
    ),
    (policies.buckets_are_closed, "storage.tf", '= "enforced"', '= "inherited"'),
    (
        policies.the_store_is_never_emptied,
        "storage.tf",
        'with_state                 = "ARCHIVED"',
        'with_state                 = "ANY"',
    ),
    (
        policies.the_store_is_never_emptied,
        "storage.tf",
        "      days_since_noncurrent_time = var.noncurrent_days",
        "      days_since_noncurrent_time = var.noncurrent_days\n      age = 30",
    ),
    (
        policies.the_store_is_never_emptied,
        "storage.tf",
        (
            '      with_state                 = "ARCHIVED"\n'
            "      days_since_noncurrent_time = var.noncurrent_days"
        ),
        '      age = 365\n      matches_prefix = ["store/lineages/"]',
    ),
    (
        policies.the_store_is_never_emptied,
        "storage.tf",
        'type = "AbortIncompleteMultipartUpload"',
        'type = "SetStorageClass"',
    ),
    (
        policies.the_store_is_never_emptied,
        "storage.tf",
        "force_destroy               = var.delete_store_with_everything",
        "force_destroy               = true",
    ),
    (policies.the_store_is_never_emptied, "storage.tf", "enabled = true", "enabled = false"),
    (policies.nothing_comes_in, "network.tf", "deny {", "allow {"),
    (
        policies.nothing_comes_in,
        "network.tf",
        "source_tags = [local.slice_tag]",
        'source_ranges = ["10.0.0.0/8"]',
    ),
    (policies.nothing_comes_in, "network.tf", "  target_tags = [local.slice_tag]\n", ""),
    (
        policies.nothing_comes_in,
        "network.tf",
        "  source_tags = [local.slice_tag]\n",
        '  source_tags = [local.slice_tag]\n  source_ranges = ["10.0.0.0/8"]\n',
    ),
    (
        policies.nothing_comes_in,
        "network.tf",
        "count = var.tpu_slices_of_several_hosts ? 1 : 0",
        "count = 1",
    ),
    (policies.nothing_comes_in, "network.tf", '"35.235.240.0/20"', '"0.0.0.0/0"'),
    (policies.nothing_comes_in, "network.tf", '    ports    = ["22"]\n', ""),
    (policies.nothing_comes_in, "network.tf", "  count = var.ssh_through_iap ? 1 : 0\n", ""),
    (
        policies.nothing_comes_in,
        "network.tf",
        "count = var.ssh_through_iap ? 1 : 0",
        "count = var.tpu_slices_of_several_hosts ? 1 : 0",
    ),
    (policies.nothing_comes_in, "variables.tf", "default     = false", "default     = true"),
    (
        policies.nothing_goes_out,
        "network.tf",
        "auto_create_subnetworks = false",
        "auto_create_subnetworks = true",
    ),
    (
        policies.nothing_goes_out,
        "network.tf",
        "private_ip_google_access = true",
        "private_ip_google_access = false",
    ),
    (
        policies.nothing_goes_out,
        "network.tf",
        'resource "google_compute_firewall" "deny_ingress" {',
        (
            'resource "google_compute_router_nat" "out" {}\n'
            'resource "google_compute_firewall" "deny_ingress" {'
        ),
    ),
    (policies.everything_is_described, "variables.tf", "  type        = number\n", ""),
    (policies.everything_is_described, "variables.tf", "  description = ", "  ephemeral   = "),
    (policies.everything_is_described, "variables.tf", "  validation {", "  lifecycle {"),
    (policies.everything_is_described, "outputs.tf", "  description = ", "  depends_on  = "),
    (policies.everything_is_labelled, "storage.tf", "  labels   = local.labels\n", ""),
    (policies.everything_is_labelled, "budget.tf", "  user_labels  = local.labels\n", ""),
    (
        policies.everything_is_labelled,
        "main.tf",
        'resource "google_project_service" "api" {',
        'resource "google_pubsub_topic" "new" {}\nresource "google_project_service" "api" {',
    ),
    (policies.versions_are_pinned, "versions.tf", 'version = "', 'version = "~> '),
    (
        policies.money_is_watched,
        "budget.tf",
        "projects        = ",
        'resource_ancestors = ["folders/1"]\n    other = ',
    ),
    (policies.money_is_watched, "budget.tf", "monitoring_notification_channels = ", "pubsub = "),
    (policies.money_is_watched, "budget.tf", "threshold_rules {", "custom_period {"),
    (
        policies.money_is_watched,
        "budget.tf",
        'resource "google_billing_budget"',
        'resource "google_billing_subaccount"',
    ),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_the_files_keep_to_it(policy: Policy) -> None:
    assert list(policy(Tree.parse(REAL))) == []


@pytest.mark.parametrize(
    ("policy", "file", "old", "new"),
    MUTANTS,
    ids=[f"{one[0].__name__}-{number}" for number, one in enumerate(MUTANTS)],
)
def test_a_change_for_the_worse_is_noticed(policy: Policy, file: str, old: str, new: str) -> None:
    assert old in REAL[file]
    changed = REAL | {file: REAL[file].replace(old, new)}
    assert list(policy(Tree.parse(changed))) != []


def test_every_policy_has_a_change_that_it_notices() -> None:
    assert {one[0] for one in MUTANTS} == set(POLICIES)


def test_names_that_are_used_exist() -> None:
    """What `terraform validate` would find first, without its providers."""
    tree = Tree.parse(REAL)
    text = "\n".join(re.sub(r"(?m)^\s*#.*$", "", one) for one in REAL.values())
    made = {one.address for one in tree.resources()}
    assert set(re.findall(r"\bvar\.(\w+)", text)) == set(tree.named("variable"))
    assert set(re.findall(r"\blocal\.(\w+)", text)) == set(tree.locals)
    used = set(re.findall(r"(?<![\w.\"])(google_\w+\.[a-z_]+)", text))
    assert used <= made
    example = set(re.findall(r"(?m)^(\w+)", (FOLDER / "terraform.tfvars.example").read_text()))
    required = {name for name, body in tree.named("variable").items() if "default" not in body}
    assert example == required


@pytest.mark.skipif(shutil.which("terraform") is None, reason="needs the program terraform")
def test_the_files_are_formatted_as_terraform_does() -> None:
    command = ["terraform", "fmt", "-check", "-diff", str(FOLDER)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")
