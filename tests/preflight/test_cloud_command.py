"""``python -m preflight cloud``: a sound installation passes whole; each mistake in it is found.

Mistakes are made in the state of the played cloud or in the configuration, never in a check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import google.oauth2.credentials
import pytest

from pipeline_config import load_preset
from pipeline_store.formats import StoreIdentity
from pipeline_store.layout import StoreLayout
from preflight.__main__ import main
from preflight.cloud.apis import GoogleApis
from preflight.cloud.catalogue import ACCOUNT_CHECKS, make
from preflight.cloud.site import Site
from tests.pipeline_store.gcs_server import GcsState, StoredObject
from tests.preflight.cloud_world import IMAGE, TRAINER, CloudWorld
from tests.preflight.google_stub import (
    DATA_ACCOUNT,
    DIGEST,
    PROJECT,
    QUOTA,
    REGION,
    TOKEN,
    TPU_ACCOUNT,
    Account,
)

Capture = pytest.CaptureFixture[str]
ZONE = "us-central1-a"


def test_a_sound_installation_passes_whole(world: CloudWorld, capsys: Capture) -> None:
    status, checks = world.check(capsys)
    assert {name: row for name, row in checks.items() if row["status"] != "ok"} == {}
    assert status == 0
    assert len(checks) == 27
    assert checks["credentials"]["found"] == f"airflow@{PROJECT}.iam.gserviceaccount.com"
    # Nothing is left of what was tried.
    assert world.gcs.state.objects == {}


@dataclass(frozen=True)
class Mistake:
    """Something wrong, which check finds it, and what the finding says."""

    name: str
    make: Callable[[CloudWorld], Any]
    check: str
    found: str
    fix: str
    status: str = "failed"


class ForgetfulStore(GcsState):
    """A store that takes every write, whatever its precondition."""

    def put(
        self, bucket: str, name: str, data: bytes, precondition: str | None, metadata: dict
    ) -> StoredObject | None:
        return super().put(bucket, name, data, None, metadata)


def env(name: str, value: str) -> Callable[[CloudWorld], None]:
    return lambda world: world.patch.setenv(name, value)


def settings(**values: Any) -> Callable[[CloudWorld], None]:
    return lambda world: world.set(**values)


def state(**values: Any) -> Callable[[CloudWorld], None]:
    return lambda world: world.stub.state.__dict__.update(values)


def without_api(name: str) -> Callable[[CloudWorld], None]:
    return lambda world: world.stub.state.enabled.remove(f"{name}.googleapis.com")


def forgetful_store(world: CloudWorld) -> None:
    world.gcs.state = ForgetfulStore(locations=world.gcs.state.locations)


def rented_elsewhere(world: CloudWorld) -> None:
    known = StoreIdentity(
        label="a-b", root="gs://earlier/store", since=datetime.now(UTC), is_first=True
    )
    known.write(StoreLayout(world.store).identity(known.label))


def no_subnetwork(world: CloudWorld) -> None:
    del world.stub.state.subnetworks[REGION, "pipeline"]


MISTAKES = [
    Mistake(
        "no key file",
        env("GOOGLE_APPLICATION_CREDENTIALS", "/absent/key.json"),
        "credentials",
        "no usable credentials",
        "gcloud auth application-default login",
    ),
    Mistake(
        "key withdrawn",
        state(refuses_tokens=True),
        "credentials",
        "Invalid JWT Signature",
        "gcloud auth application-default login",
    ),
    Mistake(
        "clock wrong",
        state(clock_is_behind=timedelta(minutes=5)),
        "clock",
        "s ahead of Google; tokens are refused",
        "timedatectl set-ntp true",
    ),
    Mistake(
        "clock a little wrong",
        state(clock_is_behind=timedelta(seconds=-30)),
        "clock",
        "s behind Google",
        "timedatectl set-ntp true",
        "warning",
    ),
    Mistake(
        "store moved",
        rented_elsewhere,
        "store identity",
        "asked for before from gs://earlier/store",
        "python -m tpu_lifecycle list",
        "warning",
    ),
    Mistake(
        "TPU API off",
        without_api("tpu"),
        "APIs",
        f"tpu.googleapis.com is not enabled in {PROJECT}",
        f"gcloud services enable tpu.googleapis.com --project={PROJECT}",
    ),
    Mistake(
        "two APIs off",
        state(enabled={f"{n}.googleapis.com" for n in ("tpu", "compute", "iam", "serviceusage",
              "cloudresourcemanager", "storage")}),
        "APIs",
        "dataflow.googleapis.com, artifactregistry.googleapis.com are not enabled",
        "gcloud services enable dataflow.googleapis.com artifactregistry.googleapis.com",
    ),
    Mistake(
        "Cloud Storage API off",
        without_api("storage"),
        "APIs",
        "storage.googleapis.com is not enabled",
        "gcloud services enable storage.googleapis.com",
        "warning",
    ),
    Mistake(
        "network named without its subnetwork",
        lambda world: (world.set(tpu__subnetwork=None), no_subnetwork(world)),
        "tpu.subnetwork",
        f"there is no subnetwork pipeline in {REGION}",
        "and set tpu.subnetwork",
        "warning",
    ),
    Mistake(
        "may not create TPUs",
        state(denied={"tpu.nodes.create"}),
        "roles",
        "the account lacks tpu.nodes.create",
        f"--member=serviceAccount:airflow@{PROJECT}.iam.gserviceaccount.com --role=roles/tpu.admin",
    ),
    Mistake(
        "may not start Dataflow jobs",
        state(denied={"dataflow.jobs.create", "dataflow.jobs.cancel"}),
        "roles",
        "dataflow.jobs.cancel, dataflow.jobs.create",
        "--role=roles/dataflow.developer",
    ),
    Mistake(
        "TPU account absent",
        settings(tpu__service_account=f"tpus@{PROJECT}.iam.gserviceaccount.com"),
        "tpu.service_account",
        f"there is no service account tpus@{PROJECT}",
        f"gcloud iam service-accounts create tpus --project={PROJECT}",
    ),
    Mistake(
        "TPU account disabled",
        state(accounts={TPU_ACCOUNT: Account(disabled=True), DATA_ACCOUNT: Account()}),
        "tpu.service_account",
        f"{TPU_ACCOUNT} is disabled",
        f"gcloud iam service-accounts enable {TPU_ACCOUNT}",
    ),
    Mistake(
        "no default account",
        settings(tpu__service_account=None),
        "tpu.service_account",
        "has no default compute account",
        "gcloud iam service-accounts create NAME",
    ),
    Mistake(
        "may not act as Dataflow's account",
        state(accounts={TPU_ACCOUNT: Account(), DATA_ACCOUNT: Account(act_as=False)}),
        "beam.service_account_email",
        f"lacks iam.serviceAccounts.actAs on {DATA_ACCOUNT}",
        "--role=roles/iam.serviceAccountUser",
    ),
    Mistake(
        "network absent",
        settings(tpu__network="pipelines"),
        "tpu.subnetwork",
        "there is no network pipelines",
        f"gcloud compute networks list --project={PROJECT}",
    ),
    Mistake(
        "subnetwork absent",
        no_subnetwork,
        "tpu.subnetwork",
        f"there is no subnetwork pipeline in {REGION}",
        f"gcloud compute networks subnets list --regions={REGION}",
    ),
    Mistake(
        "no Private Google Access for TPUs",
        lambda world: world.stub.state.subnetworks.update({(REGION, "pipeline"): False}),
        "tpu.subnetwork",
        "has no Private Google Access",
        f"subnets update pipeline --region={REGION} --project={PROJECT} "
        "--enable-private-ip-google-access",
    ),
    Mistake(
        "no Private Google Access for Dataflow",
        lambda world: world.stub.state.subnetworks.update({(REGION, "default"): False}),
        "beam.subnetwork",
        "has no Private Google Access",
        "subnets update default",
    ),
    Mistake(
        "image absent",
        settings(beam__sdk_container_image=f"{IMAGE}@sha256:{'0' * 64}"),
        "beam.sdk_container_image",
        "there is no image",
        f"docker push {IMAGE}:1",
    ),
    Mistake(
        "trainer's image absent",
        settings(tpu__container_image=f"{TRAINER}@sha256:{'0' * 64}"),
        "tpu.container_image",
        "there is no image",
        "docker build -f docker/trainer.Dockerfile --build-arg REQUIREMENTS=requirements-tpu.txt",
    ),
    Mistake(
        "no image for the TPU VM",
        settings(tpu__container_image=None),
        "tpu.container_image",
        "v2-alpha-tpuv5-lite is a runtime version of Google's",
        "set tpu.container_image=NAME@sha256:DIGEST",
    ),
    Mistake(
        "trainer's image elsewhere",
        settings(tpu__container_image=f"{TRAINER}@{DIGEST}".replace(REGION, "europe-west4")),
        "tpu.container_image",
        f"is in europe-west4, and the TPUs are in {REGION}",
        f"push it to {TRAINER}",
        "warning",
    ),
    Mistake(
        "image's name mistyped",
        settings(beam__sdk_container_image=f"{IMAGE} @{DIGEST}"),
        "beam.sdk_container_image",
        "is no image's name",
        "@sha256:DIGEST",
    ),
    Mistake(
        "bucket elsewhere",
        lambda world: world.gcs.state.locations.update({"bucket": "EUROPE-WEST4"}),
        "store region",
        f"{ZONE} is not in EUROPE-WEST4",
        f"gcloud storage buckets create gs://BUCKET --location={REGION}",
    ),
    Mistake(
        "Dataflow's bucket elsewhere",
        lambda world: world.gcs.state.locations.update({"temp": "US-EAST1"}),
        "beam.temp_location",
        "is in US-EAST1",
        f"--location={REGION}",
    ),
    Mistake(
        "may not see the bucket's place",
        lambda world: world.gcs.state.denied.add("storage.buckets.get"),
        "store rights",
        "lacks storage.buckets.get",
        "--role=roles/storage.legacyBucketReader",
        "warning",
    ),
    Mistake(
        "store without preconditions",
        forgetful_store,
        "store",
        "takes a write whose precondition does not hold",
        "gs:// bucket",
    ),
    Mistake(
        "zone mistyped",
        settings(tpu__zones="us-central1-z"),
        "tpu.zones",
        "there is no zone us-central1-z; there is us-central1-",
        "gcloud compute tpus locations list",
    ),
    Mistake(
        "zone forbidden",
        lambda world: world.emulator.admin.deny("ListNodes"),
        "tpu.zones",
        f"the service shows no TPUs of {ZONE}",
        "roles/tpu.admin",
    ),
    Mistake(
        "type not offered",
        settings(tpu__accelerator_type="v5litepod-2"),
        "tpu.accelerator_type",
        f"{ZONE} does not offer v5litepod-2",
        f"gcloud compute tpus accelerator-types list --zone={ZONE}",
    ),
    Mistake(
        "image of another generation",
        settings(tpu__runtime_version="v2-alpha-tpuv6e"),
        "tpu.runtime_version",
        "boots on v6e TPUs only",
        "--set tpu.runtime_version=v2-alpha-tpuv5-lite",
    ),
    Mistake(
        "quota too small",
        state(quotas={QUOTA: {ZONE: 16, REGION: 4}}),
        "quota",
        "8 are asked for, and the largest limit of tpu-v5s-litepod-serving-preemptible is 4",
        "console.cloud.google.com/iam-admin/quotas",
        "warning",
    ),
    Mistake(
        "quota of another tier",
        settings(tpu__provisioning_model="on-demand"),
        "quota",
        "no quota metric of v5litepod",
        "console.cloud.google.com/iam-admin/quotas",
        "not checked",
    ),
    Mistake(
        "no price",
        settings(budget__price_per_chip_hour=0),
        "budget.price_per_chip_hour",
        "budget.max_cost limits nothing",
        "https://cloud.google.com/tpu/pricing",
    ),
    Mistake(
        "old price",
        settings(budget__price_date="2024-02"),
        "budget.price_per_chip_hour",
        "days ago",
        "--set budget.price_date=",
        "warning",
    ),
    Mistake(
        "Airflow before triggers could be cancelled",
        state(airflow_version="3.2.1"),
        "Airflow",
        "cannot promise that a task that waits for a TPU gives it back",
        "apache-airflow>=3.3.0",
    ),
    Mistake(
        "Airflow before partitions",
        state(airflow_version="3.1.8"),
        "Airflow",
        "each run has a partition of its own, by schedule (since 3.2.0)",
        "apache-airflow>=3.3.0",
    ),
    Mistake(
        "Airflow 2",
        state(airflow_version="2.11.0"),
        "Airflow",
        "a person approves a model before it is put into use (since 3.1.0)",
        "apache-airflow>=3.3.0",
    ),
    Mistake(
        "cloud connection absent",
        env("REPRETRAIN_GCP_CONN_ID", "gcp"),
        "cloud connection",
        "Airflow has no connection gcp",
        "airflow connections add gcp",
    ),
    Mistake(
        "alert connection absent",
        env("REPRETRAIN_ALERT_CONN_IDS", "alerts_mail,alerts_web"),
        "alerts",
        "names alerts_web, which Airflow does not have",
        "airflow connections add alerts_web",
    ),
    Mistake(
        "nobody is told",
        env("REPRETRAIN_ALERT_CONN_IDS", ""),
        "alerts",
        "nobody is told",
        "REPRETRAIN_ALERT_CONN_IDS=alerts_mail",
        "warning",
    ),
    Mistake(
        "Airflow's connections not to be seen",
        env("AIRFLOW_CLI_TOKEN", ""),
        "alerts",
        "nobody here knows Airflow's connection alerts_mail, alerts_slack",
        "AIRFLOW_CLI_TOKEN",
        "not checked",
    ),
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_found_and_its_fix_named(
    world: CloudWorld, capsys: Capture, mistake: Mistake
) -> None:
    mistake.make(world)
    status, checks = world.check(capsys)
    row = checks[mistake.check]
    assert row["status"] == mistake.status
    assert mistake.found in row["found"]
    assert mistake.fix in row["fix"]
    failed = {name for name, row in checks.items() if row["status"] == "failed"}
    assert failed == ({mistake.check} if mistake.status == "failed" else set())
    assert status == int(mistake.status == "failed")


# Mistakes that more than one check finds


def test_a_store_on_this_machine(world: CloudWorld, capsys: Capture) -> None:
    world.store = str(world.folder / "store")
    Path(world.store).mkdir()
    status, checks = world.check(capsys)
    assert status == 1
    assert checks["shared store"]["status"] == checks["beam.runner"]["status"] == "failed"
    assert "gcloud storage buckets create" in checks["shared store"]["fix"]
    # Of a folder there are no rights and no region to ask for.
    assert "store rights" not in checks
    assert "store region" not in checks


def test_a_bucket_that_is_not_there(world: CloudWorld, capsys: Capture) -> None:
    del world.gcs.state.locations["bucket"]
    _, checks = world.check(capsys)
    assert checks["store rights"]["status"] == "not checked"
    assert checks["store region"]["status"] == "not checked"


def test_rights_that_are_missing_in_the_bucket(world: CloudWorld, capsys: Capture) -> None:
    world.gcs.state.denied.add("storage.objects.delete")
    status, checks = world.check(capsys)
    assert status == 1
    for name, bucket in {"store rights": "bucket", "beam.temp_location rights": "temp"}.items():
        assert checks[name]["status"] == "failed"
        assert f"buckets add-iam-policy-binding gs://{bucket}" in checks[name]["fix"]


# What cannot be asked


@pytest.mark.parametrize(
    ("api", "checks", "fix"),
    [
        ("serviceusage", {"APIs", "quota"}, "roles/serviceusage.serviceUsageViewer"),
        ("cloudresourcemanager", {"roles"}, "roles/browser"),
        ("iam", {"tpu.service_account", "beam.service_account_email"}, "serviceAccountUser"),
        ("compute", {"tpu.subnetwork", "beam.subnetwork"}, "roles/compute.networkViewer"),
        (
            "artifactregistry",
            {"beam.sdk_container_image", "tpu.container_image"},
            "roles/artifactregistry.reader",
        ),
    ],
)
def test_what_an_account_may_not_ask_is_not_checked(
    world: CloudWorld, capsys: Capture, api: str, checks: set[str], fix: str
) -> None:
    world.stub.state.silent.add(api)
    _, found = world.check(capsys)
    assert {name for name, row in found.items() if row["status"] == "not checked"} == checks
    assert all(fix in found[name]["fix"] for name in checks)


def test_an_api_that_is_off_and_only_serves_to_check(world: CloudWorld, capsys: Capture) -> None:
    world.stub.state.enabled.remove("cloudresourcemanager.googleapis.com")
    status, found = world.check(capsys)
    assert found["roles"]["status"] == "not checked"
    assert found["roles"]["fix"] == "gcloud services enable cloudresourcemanager.googleapis.com"
    assert status == 0


def test_an_api_that_is_down_refuses_nothing(world: CloudWorld, capsys: Capture) -> None:
    world.stub.state.broken.add("artifactregistry")
    status, checks = world.check(capsys)
    assert checks["beam.sdk_container_image"]["status"] == "not checked"
    assert "503" in checks["beam.sdk_container_image"]["found"]
    assert status == 0


def test_a_tpu_service_that_is_down_refuses_nothing(
    world: CloudWorld, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpu_lifecycle.service.cloud_tpu.PAUSES_SECONDS", ())
    world.emulator.admin.fail_next("ListLocations", code="UNAVAILABLE")
    status, checks = world.check(capsys)
    assert checks["tpu.zones"]["status"] == "not checked"
    assert status == 0


def test_an_airflow_that_does_not_answer(world: CloudWorld, capsys: Capture) -> None:
    status, checks = world.check(capsys, "--airflow-url", "http://127.0.0.1:1")
    assert {checks[name]["status"] for name in ("Airflow", "alerts")} == {"not checked"}
    assert status == 0


def test_a_persons_own_login_is_told(world: CloudWorld) -> None:
    login = google.oauth2.credentials.Credentials(token=TOKEN)
    apis = GoogleApis(PROJECT, lambda: login)
    site = Site(
        load_preset("bert_base_v5e"), StoreLayout(world.store), apis, lambda: pytest.fail("asked")
    )
    rows = {row.name: row.finding for row in make(ACCOUNT_CHECKS, site)}
    assert rows["credentials"].status == "warning"
    assert "impersonate-service-account" in rows["credentials"].fix
    assert rows["roles"].status == "ok"
    # Only a service account's address is known.
    world.stub.state.denied.add("tpu.nodes.list")
    rows = {row.name: row.finding for row in make(ACCOUNT_CHECKS, site)}
    assert "--member=serviceAccount:ACCOUNT" in rows["roles"].fix


# Other ways to be right


def test_without_dataflow_nothing_of_it_is_needed(world: CloudWorld, capsys: Capture) -> None:
    world.settings = {n: v for n, v in world.settings.items() if not n.startswith("beam.")}
    world.stub.state.enabled.remove("dataflow.googleapis.com")
    world.stub.state.denied.add("dataflow.jobs.create")
    status, checks = world.check(capsys)
    assert status == 0
    assert not [name for name in checks if name.startswith("beam.")]
    # The TPU VM's image is there all the same.
    world.stub.state.enabled.remove("artifactregistry.googleapis.com")
    status, checks = world.check(capsys)
    assert status == 1
    assert "artifactregistry.googleapis.com is not enabled" in checks["APIs"]["found"]


def test_defaults_of_the_project(world: CloudWorld, capsys: Capture) -> None:
    world.set(tpu__service_account=None, tpu__network=None, tpu__subnetwork=None)
    default = f"1-compute@{PROJECT}.iam.gserviceaccount.com"
    world.stub.state.default_account = default
    world.stub.state.accounts[default] = Account()
    status, checks = world.check(capsys)
    assert status == 0
    assert checks["tpu.service_account"]["found"] == f"{default}, the project's default"
    assert checks["tpu.subnetwork"]["found"].startswith("default in us-central1, with Private")


def test_public_addresses_need_no_private_access(world: CloudWorld, capsys: Capture) -> None:
    world.stub.state.subnetworks[REGION, "pipeline"] = False
    world.set(tpu__enable_external_ips=True)
    status, checks = world.check(capsys)
    assert status == 0
    assert "with public addresses" in checks["tpu.subnetwork"]["found"]


def test_a_subnetwork_by_its_full_name(world: CloudWorld, capsys: Capture) -> None:
    world.set(tpu__subnetwork=f"projects/host/regions/{REGION}/subnetworks/pipeline")
    _, checks = world.check(capsys)
    assert checks["tpu.subnetwork"]["status"] == "ok"
    asked = [line for line in world.stub.state.requests if "subnetworks/pipeline" in line]
    assert asked[0].endswith(f"/projects/host/regions/{REGION}/subnetworks/pipeline")


@pytest.mark.parametrize(
    ("reference", "status", "said"),
    [
        (f"data-job@{DIGEST}", "ok", DIGEST),
        (f"data-job:1@{DIGEST}", "ok", DIGEST),
        (f"other@{DIGEST}", "failed", "docker push"),
    ],
)
def test_an_image_in_another_registry(
    world: CloudWorld, capsys: Capture, reference: str, status: str, said: str
) -> None:
    image = f"{world.stub.registry}/{reference}"
    world.set(beam__sdk_container_image=image, tpu__container_image=image)
    _, checks = world.check(capsys)
    for row in (checks["beam.sdk_container_image"], checks["tpu.container_image"]):
        assert row["status"] == status
        assert said in row["found"] + row["fix"]
    # Google's credentials are for Google.
    assert not [line for line in world.stub.state.requests if "artifactregistry" in line]


@pytest.mark.parametrize(
    ("runtime_version", "status"),
    [
        ("tpu-ubuntu2204-base", "failed"),
        ("tpu-vm-tf-2.18.0-pjrt", "failed"),
        ("our-own-with-python", "warning"),
    ],
)
def test_only_a_runtime_version_of_ones_own_may_do_without_an_image(
    world: CloudWorld, capsys: Capture, runtime_version: str, status: str
) -> None:
    world.set(tpu__container_image=None, tpu__runtime_version=runtime_version)
    _, checks = world.check(capsys)
    row = checks["tpu.container_image"]
    assert row["status"] == status
    assert runtime_version in row["found"]
    assert "paid for and given back unused" in row["found"]


def test_the_installed_airflow_and_the_environments_connections(
    world: CloudWorld, capsys: Capture
) -> None:
    world.patch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", "google-cloud-platform://")
    words = [word for word in world.command() if word not in ("--airflow-url", world.stub.url)]
    assert main([*words, "--json"]) == 0
    rows = {row["check"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    assert rows["Airflow"]["status"] == rows["cloud connection"]["status"] == "ok"
    assert rows["alerts"]["status"] == "not checked"


# Output


def test_the_table_has_a_row_for_each_check(world: CloudWorld, capsys: Capture) -> None:
    world.stub.state.denied.add("tpu.nodes.create")
    assert main(world.command()) == 1
    lines = capsys.readouterr().out.splitlines()
    index = next(i for i, line in enumerate(lines) if re.match(r"FAILED +roles +the account", line))
    assert lines[index + 1].strip().startswith("fix: gcloud projects add-iam-policy-binding")
    assert lines[-1] == "26 ok, 1 failed"


def test_no_secret_is_printed(world: CloudWorld, capsys: Capture, private_key: str) -> None:
    world.stub.state.refuses_tokens = True
    main(world.command())
    captured = capsys.readouterr()
    secret = private_key.splitlines()[3]
    assert secret not in captured.out + captured.err
    assert secret in world.key.read_text().replace("\\n", "\n")


def test_a_configuration_that_cannot_work_is_refused_first(
    world: CloudWorld, capsys: Capture
) -> None:
    world.set(tpu__accelerator_type="v5e")
    assert main(world.command()) == 1
    assert capsys.readouterr().out.startswith("tpu.accelerator_type: ")
    assert world.stub.state.requests == []
