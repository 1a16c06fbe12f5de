"""The Dockerfiles: clean, complete, and true to the code and the locks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.verification.container_images.closures import closure
from tpu_lifecycle.boot import bundle
from verification.container_images.catalogue import (
    AIRFLOW,
    DATA,
    DOCKER,
    IMAGES,
    REPOSITORY,
    TPU_TRAINER,
    TRAINER,
    copied,
    default_argument,
)
from verification.container_images.contents import locked_packages

DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))


def ignored() -> list[str]:
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


SITE = {"docs", "mkdocs.yml", "requirements-docs.txt", "scripts/mkdocs_hooks.py"}
"""What the documentation's site is made of, beside Airflow's code in its image."""
EXTRAS = {"requirements-mlflow.txt", "requirements-openlineage.txt"}
"""Locks of what only some installations use."""


def packages_of(dockerfile: Path) -> set[str]:
    return {path for path in copied(dockerfile) if not path.startswith("docker/")} - SITE - EXTRAS


def lint(*paths: Path) -> subprocess.CompletedProcess[str]:
    hadolint = Path(sys.executable).with_name("hadolint")
    return subprocess.run([hadolint, *paths], check=False, capture_output=True, text=True)


def test_hadolint_finds_nothing() -> None:
    assert {image.path for image in IMAGES} == set(DOCKERFILES)
    checked = lint(*DOCKERFILES)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_hadolint_would_find_something(tmp_path: Path) -> None:
    bad = tmp_path / "bad.Dockerfile"
    bad.write_text("FROM debian:latest\nRUN apt-get update && apt-get install curl\n")
    checked = lint(bad)
    assert checked.returncode == 1
    assert {"DL3007", "DL3008"} <= {word for word in checked.stdout.split() if word[:2] == "DL"}


@pytest.mark.parametrize(
    ("image", "needed"),
    [
        # The exporter is a service of the team server, in the same image.
        (AIRFLOW, closure("dags", "plugins", "pipeline_metrics") | set(bundle.PACKAGES)),
        (DATA, closure("beam_jobs")),
        (TRAINER, set()),  # its code comes as a bundle
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_an_image_has_the_packages_that_its_code_imports(image, needed) -> None:
    assert packages_of(image.path) == needed


def test_the_closure_follows_names_and_late_imports() -> None:
    # The operators start training.export_model by name; checks of tasks are imported late.
    assert {"training", "beam_jobs"} <= closure("plugins")
    assert "plugins" not in closure("training")


def test_the_build_context_is_what_the_dockerfiles_copy() -> None:
    everything, *rules = ignored()
    assert everything == "*"
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    needed = {path for dockerfile in DOCKERFILES for path in packages_of(dockerfile)}
    assert allowed == needed | SITE | EXTRAS | {"docker/requirements-*.txt", "docker/trim-packages"}
    assert {"**/__pycache__", "**/*.pyc"} == set(rules) - {f"!{path}" for path in allowed}


def test_what_is_copied_exists() -> None:
    for dockerfile in DOCKERFILES:
        for path in copied(dockerfile):
            chosen = path.replace("${REQUIREMENTS}", default_argument(TRAINER.path, "REQUIREMENTS"))
            assert (REPOSITORY / chosen).exists(), (dockerfile.name, path)


def test_all_begin_with_one_base_by_digest() -> None:
    [base] = {default_argument(dockerfile, "BASE") for dockerfile in DOCKERFILES}
    name, _, digest = base.partition("@sha256:")
    assert name
    assert len(digest) == 64


def test_the_worker_program_is_of_the_locked_beam() -> None:
    [beam] = [one for one in locked_packages(DATA.lock_path) if one.name == "apache-beam"]
    tagged, _, _ = default_argument(DATA.path, "BEAM_SDK_IMAGE").partition("@")
    assert tagged.endswith(f"_sdk:{beam.version}")


def test_images_use_the_lock_that_is_said() -> None:
    for image in (AIRFLOW, DATA):
        assert f"docker/{image.lock}" in copied(image.path)
    assert default_argument(TRAINER.path, "REQUIREMENTS") == TRAINER.lock
    assert TPU_TRAINER.arguments["REQUIREMENTS"] == TPU_TRAINER.lock


def test_for_tpus_one_tensorflow_takes_the_place_of_the_other() -> None:
    cpu = {one.name: one.version for one in locked_packages(TRAINER.lock_path)}
    tpu = {one.name: one.version for one in locked_packages(TPU_TRAINER.lock_path)}
    assert tpu.pop("libtpu") == "0.0.14"
    assert tpu.pop("tensorflow-tpu") == cpu.pop("tensorflow")
    assert tpu == cpu
