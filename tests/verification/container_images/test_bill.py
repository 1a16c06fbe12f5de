"""Bills of materials."""

from __future__ import annotations

import json

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.verification.container_images.trees import REVISION
from verification.container_images.contents import Package
from verification.container_images.revision import bill_of_materials

PACKAGES = [
    Package("pypi", "numpy", "2.4.1", "BSD-3-Clause AND 0BSD"),
    Package("pypi", "odd", "1.0", "as one likes"),
    Package("deb", "libc6", "2.36-9+deb12u13"),
]


def test_a_bill_names_what_is_in_the_image() -> None:
    bill = json.loads(bill_of_materials("bert-trainer", REVISION, PACKAGES))
    assert bill["metadata"]["component"]["name"] == "bert-trainer"
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    found = {component["purl"]: component for component in bill["components"]}
    assert set(found) == {
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u13",
        "pkg:pypi/numpy@2.4.1",
        "pkg:pypi/odd@1.0",
    }
    assert found["pkg:pypi/numpy@2.4.1"]["licenses"] == [{"expression": "BSD-3-Clause AND 0BSD"}]


def test_a_bill_is_valid_cyclonedx() -> None:
    text = bill_of_materials("bert-trainer", REVISION, PACKAGES)
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"library"', '"thing"')) is not None


def test_equal_images_have_equal_bills() -> None:
    first = bill_of_materials("bert-trainer", REVISION, PACKAGES)
    assert bill_of_materials("bert-trainer", REVISION, reversed(PACKAGES)) == first
    assert bill_of_materials("bert-trainer", REVISION, PACKAGES[:1]) != first
