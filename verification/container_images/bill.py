"""Bills of materials: what an image is made of, in CycloneDX's format."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from verification.container_images.contents import Package
from verification.container_images.revision import Revision

_NAMESPACES = {"pypi": None, "deb": "debian"}


def bill_of_materials(name: str, revision: Revision, packages: Iterable[Package]) -> str:
    """Return an image's bill of materials as CycloneDX 1.6 JSON; equal input gives equal text."""
    packages = sorted(packages)
    image = Component(
        name=name,
        version=revision.version,
        type=ComponentType.CONTAINER,
        bom_ref=name,
        purl=PackageURL("oci", None, name, revision.revision),
    )
    components = [_component(package) for package in packages]
    identity = f"{name} {revision} {packages}"
    bill = Bom(components=components, serial_number=uuid.uuid5(uuid.NAMESPACE_OID, identity))
    bill.metadata.component = image
    bill.metadata.timestamp = revision.created
    bill.register_dependency(image, components)
    return str(JsonV1Dot6(bill).output_as_string(indent=2))


def _component(package: Package) -> Component:
    url = PackageURL(package.kind, _NAMESPACES[package.kind], package.name, package.version)
    licenses = [LicenseFactory().make_from_string(package.license)] if package.license else []
    return Component(
        name=package.name,
        version=package.version,
        purl=url,
        bom_ref=url.to_string(),
        licenses=licenses,
    )
