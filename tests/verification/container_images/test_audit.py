"""The look into an image finds what must not be there, and nothing in one that is right."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.verification.container_images.trees import (
    REVISION,
    description,
    install,
    make_tree,
    write,
)
from verification.container_images.audit import audit
from verification.container_images.catalogue import DATA, TRAINER, Image
from verification.container_images.contents import (
    SITE_PACKAGES,
    Package,
    debian_packages,
    locked_packages,
    python_packages,
)

INDEX = "https://name:word@packages.example/simple"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_tree(tmp_path, TRAINER)
    return tmp_path


def problems(
    root: Path, described: dict[str, Any] | None = None, image: Image = TRAINER
) -> list[str]:
    return audit(image, root, described or description(), revision=REVISION, private={INDEX})


def test_a_right_image_has_no_problems(root: Path) -> None:
    assert problems(root) == []


@pytest.mark.parametrize("user", ["", "root", "0", "0:0"])
def test_root_needs_a_reason(root: Path, user: str) -> None:
    assert "its processes are root" in problems(root, description(User=user))[0]


def test_root_with_a_reason(tmp_path: Path) -> None:
    make_tree(tmp_path, DATA)
    assert problems(tmp_path, description(User=""), DATA) == []


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (
            {"Env": [f"PIP_INDEX_URL={INDEX}"]},
            ["PIP_INDEX_URL is kept", "configuration or history"],
        ),
        ({"Env": ["API_TOKEN=x"]}, ["API_TOKEN is kept"]),
        ({"Labels": None}, ["image.version is None", "image.revision is", "image.created is"]),
    ],
)
def test_what_a_configuration_must_not_say(
    root: Path, config: dict[str, Any], found: list[str]
) -> None:
    for problem, words in zip(problems(root, description(**config)), found, strict=True):
        assert words in problem


def test_history_must_not_name_a_registry(root: Path) -> None:
    described = description()
    described["history"].append({"created_by": f"RUN pip install --index-url {INDEX}"})
    assert "configuration or history" in problems(root, described)[0]


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("etc/pip.conf", "[global]", "may hold a secret"),
        ("home/trainer/.netrc", "machine", "may hold a secret"),
        ("root/notes", f"from {INDEX}", "an address of a package registry"),
        ("opt/venv/bin/pip", "", "for building"),
        ("usr/bin/gcc", "", "for building"),
        ("var/lib/apt/lists/mirror_main_binary-amd64_Packages", "", "left from building"),
        ("root/.cache/pip/http", "", "left from building"),
        (f"{SITE_PACKAGES}/numpy/tests/test_a.py", "", "is for tests"),
    ],
)
def test_what_must_not_be_there(root: Path, path: str, text: str, found: str) -> None:
    write(root, path, text)
    [problem] = problems(root)
    assert found in problem
    assert problem.startswith("bert-trainer: /")


def test_an_empty_file_on_which_a_secret_was_mounted_is_none(root: Path) -> None:
    write(root, "etc/pip.conf")
    assert problems(root) == []


def test_packages_are_those_of_the_lock(root: Path) -> None:
    install(root, "left-over", "1.0")
    [absl] = [
        package for package in locked_packages(TRAINER.lock_path) if package.name == "absl-py"
    ]
    shutil.rmtree(install(root, "absl-py", absl.version).parent)
    more, missing = problems(root)
    assert (
        more
        == "bert-trainer: left-over 1.0 is installed, but not in docker/requirements-training.txt."
    )
    assert f"absl-py {absl.version} of docker/requirements-training.txt is not installed" in missing


def test_contents(tmp_path: Path) -> None:
    make_tree(tmp_path, TRAINER)
    assert debian_packages(tmp_path) == [Package("deb", "base-files", "12.4+deb12u11")]
    found = python_packages(tmp_path)
    assert [(one.name, one.version) for one in found] == [
        (one.name, one.version) for one in locked_packages(TRAINER.lock_path)
    ]
    assert {one.license for one in found} == {"MIT"}
