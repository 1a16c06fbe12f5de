"""What Terraform prints is what the pipeline takes.

The real program works it out; it needs no provider for variables and outputs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline_config.loading import load_finetuning_preset, load_preset
from pipeline_config.settings import load_settings
from tests.infrastructure.tree import FOLDER, files

pytestmark = pytest.mark.skipif(
    shutil.which("terraform") is None, reason="needs the program terraform"
)

GIVEN: dict[str, Any] = {
    "project_id": "my-project-1",
    "region": "us-central1",
    "tpu_zones": ["us-central1-a", "us-central1-c"],
    "bucket_name": "my-company-bert",
    "billing_account": "012345-6789AB-CDEF01",
    "monthly_budget": 500,
    "alert_email": "ml-team@example.com",
}
IMAGE = f"us-central1-docker.pkg.dev/p/r/bert-data@sha256:{'0' * 64}"
# What the cloud would answer, in place of the resources.
ANSWERS = {
    "google_storage_bucket.store.name": '"my-company-bert"',
    "google_storage_bucket.temp.name": '"my-company-bert-temp"',
    "google_compute_network.pipeline.id": '"projects/my-project-1/global/networks/bert"',
    "google_compute_subnetwork.pipeline.id": (
        '"projects/my-project-1/regions/us-central1/subnetworks/bert"'
    ),
    "google_compute_subnetwork.pipeline.name": '"bert"',
    "google_service_account.airflow.email": '"bert-airflow@my-project-1.iam"',
    "google_service_account.tpu_vm.email": '"bert-tpu-vm@my-project-1.iam"',
    "google_service_account.data_job.email": '"bert-data-job@my-project-1.iam"',
    "google_artifact_registry_repository.images.name": '"bert-images"',
    "google_composer_environment.airflow": "[]",
}


def apply(folder: Path, given: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Let Terraform work out variables and outputs, with the cloud's answers filled in."""
    texts = files()
    outputs = texts["outputs.tf"]
    for reference, answer in ANSWERS.items():
        outputs = re.sub(rf"\b{re.escape(reference)}\b", answer.replace("\\", r"\\"), outputs)
    (folder / "outputs.tf").write_text(outputs)
    (folder / "variables.tf").write_text(texts["variables.tf"])
    (folder / "given.auto.tfvars.json").write_text(json.dumps(given))
    command = ["terraform", "apply", "-auto-approve", "-input=false", "-no-color"]
    # It would otherwise ask its maker for news, and wait for the answer.
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "CHECKPOINT_DISABLE": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def outputs(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    done = apply(folder, given)
    assert done.returncode == 0, done.stderr
    state = json.loads((folder / "terraform.tfstate").read_text())
    return {name: output["value"] for name, output in state["outputs"].items()}


def test_the_preset_is_one_that_the_pipeline_takes(tmp_path: Path) -> None:
    printed = outputs(tmp_path, GIVEN)
    preset = tmp_path / "repretraining.toml"
    preset.write_text(printed["preset"])
    config = load_preset(str(preset))
    assert config.tpu.zones == GIVEN["tpu_zones"]
    assert config.tpu.service_account == printed["tpu_vm_service_account"]
    assert config.tpu.subnetwork.endswith("/subnetworks/bert")
    assert config.tpu.container_image is None
    assert config.tpu.network_tags == []
    assert config.beam.runner == "FnApiRunner"
    assert config.training.train_steps == load_preset("bert_base_v5e").training.train_steps


def test_fine_tuning_rents_with_the_same_accounts(tmp_path: Path) -> None:
    printed = outputs(tmp_path, GIVEN | {"data_job_image": IMAGE, "trainer_image": IMAGE})
    for name in ("preset", "finetuning_preset"):
        (tmp_path / f"{name}.toml").write_text(printed[name])
    pretraining = load_preset(str(tmp_path / "preset.toml"))
    finetuning = load_finetuning_preset(str(tmp_path / "finetuning_preset.toml"))
    assert finetuning.beam == pretraining.beam
    for name in ("zones", "network", "subnetwork", "service_account", "container_image"):
        assert getattr(finetuning.tpu, name) == getattr(pretraining.tpu, name)
    base = load_finetuning_preset("finetuning_base_v5e")
    assert finetuning.finetuning == base.finetuning


def test_hosts_of_a_slice_have_the_tag_of_the_firewall_rule(tmp_path: Path) -> None:
    printed = outputs(tmp_path, GIVEN | {"tpu_slices_of_several_hosts": True})
    preset = tmp_path / "repretraining.toml"
    preset.write_text(printed["preset"])
    assert load_preset(str(preset)).tpu.network_tags == ["bert-tpu-vm"]


def test_with_an_image_the_data_job_runs_on_dataflow(tmp_path: Path) -> None:
    printed = outputs(tmp_path, GIVEN | {"data_job_image": IMAGE})
    preset = tmp_path / "repretraining.toml"
    preset.write_text(printed["preset"])
    beam = load_preset(str(preset)).beam
    assert (beam.runner, beam.region, beam.sdk_container_image) == (
        "DataflowRunner",
        "us-central1",
        IMAGE,
    )
    assert beam.temp_location == "gs://my-company-bert-temp/dataflow"
    assert beam.service_account_email == printed["data_job_service_account"]


def test_the_trainers_image_is_that_of_the_tpu_vm(tmp_path: Path) -> None:
    printed = outputs(tmp_path, GIVEN | {"data_job_image": IMAGE, "trainer_image": IMAGE})
    preset = tmp_path / "repretraining.toml"
    preset.write_text(printed["preset"])
    config = load_preset(str(preset))
    assert config.tpu.container_image == IMAGE
    assert config.tpu.service_account == printed["tpu_vm_service_account"]
    assert config.beam.sdk_container_image == IMAGE


def test_the_environment_is_one_that_the_pipeline_takes(tmp_path: Path) -> None:
    printed = outputs(tmp_path, GIVEN | {"owner": "team-a"})["environment"]
    environment = dict(line.split("=", 1) for line in printed.splitlines())
    settings = load_settings(environment)
    assert settings.store_uri == "gs://my-company-bert/store"
    assert settings.owner == "team-a"
    assert environment["GOOGLE_CLOUD_PROJECT"] == "my-project-1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("project_id", "My Project"),
        ("region", "US"),
        ("tpu_zones", []),
        ("tpu_zones", ["europe-west4-b"]),
        ("base_preset", "bert base"),
        ("base_finetuning_preset", "base.toml"),
        ("bucket_name", "Bucket"),
        ("store_prefix", "a/b"),
        ("noncurrent_days", 1),
        ("owner", "Team A"),
        ("account_prefix", "much-too-long-prefix"),
        ("subnetwork_range", "8.8.0.0/16"),
        ("data_job_image", "repository/bert-data:latest"),
        ("trainer_image", "repository/bert-trainer-tpu:latest"),
        ("billing_account", "mine"),
        ("monthly_budget", 0),
        ("alert_email", "ml-team"),
        ("reaper_image", "repository/airflow:latest"),
        ("reaper_schedule", "hourly"),
        ("composer_image_version", "composer-2-airflow-2.9.3"),
        ("labels", {"Team": "A"}),
    ],
)
def test_a_wrong_value_is_refused_by_name(tmp_path: Path, name: str, value: Any) -> None:
    refused = apply(tmp_path, GIVEN | {name: value})
    assert refused.returncode != 0
    assert "Invalid value for variable" in refused.stderr
    assert name in refused.stderr.split("Invalid value for variable")[1]


def test_every_reference_of_the_outputs_has_an_answer() -> None:
    text = (FOLDER / "outputs.tf").read_text()
    found = re.findall(r"\bgoogle_\w+\.\w+(?:\.(?:name|id|email))?", text)
    assert set(found) == set(ANSWERS)
