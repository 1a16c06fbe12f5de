"""The Cloud Build file: well-formed, and about the images that there are."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline_config import load_preset, with_overrides
from verification.container_images.catalogue import DOCKER, IMAGES, REPOSITORY, Image


@pytest.fixture(scope="module")
def build() -> dict[str, Any]:
    return yaml.safe_load((DOCKER / "cloudbuild.yaml").read_text())


def script(build: dict[str, Any], step: str) -> str:
    [found] = [one["script"] for one in build["steps"] if one["id"] == step]
    return found


def test_checks_come_first_and_pushing_last(build: dict[str, Any]) -> None:
    steps = [step["id"] for step in build["steps"]]
    assert steps == ["arguments", "check", "build", "try", "push"]
    targets = re.findall(r"^make (.+)$", script(build, "check"), re.MULTILINE)
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in targets[0].split():
        assert f"\n{target}:" in makefile


def test_scripts_are_shell(build: dict[str, Any]) -> None:
    for step in build["steps"]:
        checked = subprocess.run(["/bin/bash", "-n"], input=step["script"], text=True, check=False)
        assert checked.returncode == 0, step["id"]


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_each_image_is_built_tried_and_pushed(build: dict[str, Any], image: Image) -> None:
    [line] = re.findall(rf"^build {image.name} (.+)$", script(build, "build"), re.MULTILINE)
    words = line.split()
    assert words[:2] == ["-f", f"docker/{image.dockerfile}"]
    given = [f"{name}={value}" for name, value in image.arguments.items()]
    assert [word for word in words[2:] if word != "--build-arg"] == given
    assert f"$registry/{image.name}:" in script(build, "try")
    pushed = re.findall(r"^for name in (.+); do$", script(build, "push"), re.MULTILINE)
    assert image.name in pushed[0].split()


PLAYED_DOCKER = """#!/bin/bash
if test "$1" = inspect; then
  name=${4%:*}
  echo "${3%% *} $name@sha256:$(sha256sum <<< "$name" | cut -c-64)"
fi
"""


def test_pushing_prints_settings_that_the_pipeline_takes(
    build: dict[str, Any], tmp_path: Path
) -> None:
    docker = tmp_path / "docker"
    docker.write_text(PLAYED_DOCKER)
    docker.chmod(0o755)
    registry = "us-central1-docker.pkg.dev/my-project/bert-images"
    (tmp_path / ".registry").write_text(f"{registry}\n")
    done = subprocess.run(
        ["/bin/bash", "-c", script(build, "push").replace("/workspace", str(tmp_path))],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "_REVISION": "0a1b2c3"},
        capture_output=True,
        text=True,
        check=True,
    )
    printed = dict(line.split(" = ") for line in done.stdout.splitlines() if " = " in line)
    config = with_overrides(load_preset("bert_base_v5e"), printed)
    assert config.tpu.container_image is not None
    assert config.beam.sdk_container_image is not None
    assert config.tpu.container_image.startswith(f"{registry}/bert-trainer-tpu@")
    assert config.beam.sdk_container_image.startswith(f"{registry}/bert-data@")


def test_what_is_substituted_is_known(build: dict[str, Any]) -> None:
    own = set(build["substitutions"])
    text = (DOCKER / "cloudbuild.yaml").read_text()
    used = set(re.findall(r"\$\{?(_[A-Z]+)\b", text))
    assert used == own


def test_it_does_not_run_as_the_projects_default_account(build: dict[str, Any]) -> None:
    assert "${_BUILDER}@" in build["serviceAccount"]
    # Cloud Build asks for this with an account of one's own.
    assert build["options"]["logging"] == "CLOUD_LOGGING_ONLY"
