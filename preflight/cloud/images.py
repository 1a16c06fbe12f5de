"""Checks that the container images of Dataflow's workers and of TPU VMs are in their registries.

Artifact Registry is queried by its own API with the account's credentials; other registries by the
Docker Registry HTTP API without credentials.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

import requests

from preflight.cloud.apis import TIMEOUT_SECONDS, ApiError, ApiUnavailableError
from preflight.cloud.site import Site
from preflight.findings import Finding, failed, not_checked, ok, warning
from tpu_lifecycle.service import connecting

_REFERENCE = re.compile(
    r"(?:(?P<host>[^/]+[.:][^/]*|localhost)/)?(?P<path>[a-z0-9._/-]+)"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?@(?P<digest>sha256:[0-9a-f]{64})"
)
_ARTIFACT_REGISTRY = "-docker.pkg.dev"
_MULTI_REGIONS = ("asia", "europe", "us")
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.docker.distribution.manifest.v2+json"
)


@dataclass(frozen=True)
class Image:
    """The parts of an image's name."""

    host: str
    path: str
    digest: str

    @property
    def name(self) -> str:
        """Return the name without the digest."""
        return f"{self.host}/{self.path}"

    @property
    def is_artifact(self) -> bool:
        """Return whether its registry is Artifact Registry."""
        return self.host.endswith(_ARTIFACT_REGISTRY) and self.path.count("/") >= 2

    @property
    def location(self) -> str:
        """Return the region or multi-region of its Artifact Registry."""
        return self.host.removesuffix(_ARTIFACT_REGISTRY)


def parse_image(reference: str) -> Image | None:
    """Return the parts of an image's name; None if it is not a valid one."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        return None
    host, path = match["host"] or "registry-1.docker.io", match["path"]
    if match["host"] is None and "/" not in path:
        path = f"library/{path}"
    return Image(host, path, match["digest"])


def is_of_project(reference: str | None, project_id: str) -> bool:
    """Return whether an image is in the Artifact Registry of a project."""
    image = parse_image(reference or "")
    if image is None or not image.is_artifact:
        return False
    return image.path.partition("/")[0] == project_id


def data_image_finding(site: Site) -> Finding | None:
    """Check ``beam.sdk_container_image``; None if no job runs on Dataflow."""
    reference = site.config.beam.sdk_container_image
    if not site.uses_dataflow or reference is None:
        return None
    return _finding(site, reference, "docker/beam.Dockerfile")


def trainer_image_finding(site: Site) -> Finding:
    """Check ``tpu.container_image``: no bare TPU VM can train without one.

    A runtime version that is not Google's may already contain everything that agent and trainer
    need.
    """
    tpu = site.config.tpu
    reference = tpu.container_image
    if reference is None:
        fix = (
            "build and push bert-trainer-tpu as docs/guides/containers.md says, and set "
            "tpu.container_image=NAME@sha256:DIGEST"
        )
        if tpu.runtime_version.startswith(tuple(connecting.facts().bare_images)):
            return failed(
                f"it is empty, and {tpu.runtime_version} is a runtime version of Google's: none "
                "has the Python and the packages that agent and trainer need. The TPU would be "
                "paid for and given back unused.",
                fix,
            )
        return warning(
            f"it is empty: unless {tpu.runtime_version} has the Python and the packages that agent "
            "and trainer need, the TPU would be paid for and given back unused.",
            fix,
        )
    return _finding(
        site, reference, "docker/trainer.Dockerfile --build-arg REQUIREMENTS=requirements-tpu.txt"
    )


def _finding(site: Site, reference: str, build: str) -> Finding:
    """Check that an image is in its registry, and that the registry is near the TPUs.

    :param build: arguments of ``docker build`` that build such an image.
    """
    image = parse_image(reference)
    if image is None:
        return failed(
            f"{reference} is no image's name.",
            "name it as us-central1-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE@sha256:DIGEST",
        )
    is_there = _is_in_artifact_registry(site, image) if image.is_artifact else _is_public(image)
    if is_there is None:
        return not_checked(f"{image.host} does not show {reference} to everybody")
    if not is_there:
        return failed(
            f"there is no image {reference}.",
            f"docker build -f {build} -t {image.name}:1 . && "
            f"docker push {image.name}:1, and set the digest that it prints",
        )
    away = [region for region in site.regions if not _is_near(image, region)]
    if away:
        return warning(
            f"{image.name} is in {image.location}, and the TPUs are in {', '.join(away)}: pulling "
            "it across regions is slow and billed.",
            f"push it to {away[0]}{_ARTIFACT_REGISTRY}/{image.path}",
        )
    return ok(reference)


def _is_near(image: Image, region: str) -> bool:
    """Return whether an image is pulled from within a region, as far as its name shows."""
    if not image.is_artifact:
        return True
    area = region.partition("-")[0] if image.location in _MULTI_REGIONS else region
    return image.location == area


def _is_in_artifact_registry(site: Site, image: Image) -> bool:
    """Return whether an image is in Artifact Registry.

    Source: https://cloud.google.com/artifact-registry/docs/reference/rest
    """
    project, repository, name = image.path.split("/", 2)
    quoted = urllib.parse.quote(name, safe="")
    parent = f"v1/projects/{project}/locations/{image.location}/repositories/{repository}"
    try:
        site.apis.get("artifactregistry", f"{parent}/dockerImages/{quoted}@{image.digest}")
    except ApiError as error:
        if error.is_absent:
            return False
        raise
    return True


def _is_public(image: Image) -> bool | None:
    """Return whether an image is in another registry; None if that requires a login.

    Source: https://distribution.github.io/distribution/spec/api/
    """
    # As in Docker, a registry on this machine uses plain HTTP.
    is_local = image.host.partition(":")[0] in ("localhost", "127.0.0.1")
    scheme = "http" if is_local else "https"
    url = f"{scheme}://{image.host}/v2/{image.path}/manifests/{image.digest}"
    headers = {"Accept": _MANIFESTS}
    try:
        answer = requests.head(url, headers=headers, timeout=TIMEOUT_SECONDS)
        if answer.status_code == 401:
            token = _anonymous_token(answer.headers.get("WWW-Authenticate", ""), scheme)
            if not token:
                return None
            headers["Authorization"] = f"Bearer {token}"
            answer = requests.head(url, headers=headers, timeout=TIMEOUT_SECONDS)
    except requests.RequestException as error:
        raise ApiUnavailableError(f"{image.host} does not answer: {error}") from error
    if answer.status_code == 404:
        return False
    if answer.status_code in (401, 403):
        return None
    if not answer.ok:
        raise ApiUnavailableError(f"{image.host} answers {answer.status_code}")
    return True


def _anonymous_token(challenge: str, scheme: str) -> str:
    """Return the registry's anonymous token; empty if it issues none."""
    kind, _, rest = challenge.partition(" ")
    values: Mapping[str, str] = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    realm = values.get("realm", "")
    if kind.lower() != "bearer" or not realm.startswith(f"{scheme}://"):
        return ""
    params = {name: values[name] for name in ("service", "scope") if name in values}
    answer = requests.get(realm, params=params, timeout=TIMEOUT_SECONDS)
    if not answer.ok:
        return ""
    content = answer.json()
    return str(content.get("token") or content.get("access_token") or "")
