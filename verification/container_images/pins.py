"""Pins external images by digest: queries their registries and writes the digests into ``docker/``.

``python -m verification.container_images.pins`` queries every image that the Dockerfiles, Cloud
Build, the compose file and its example name, and appends ``@sha256:…`` to its tag; an existing
digest is updated. ``--check`` makes no requests, and refuses an image without a digest: a tag can
be moved to other bytes between two builds.

Exit code: 0 if all have a digest; 1 if some have none, or a registry fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from verification.container_images.catalogue import DOCKER
from verification.container_images.commands import ImageError

_PLACES = ("*.Dockerfile", "cloudbuild.yaml", "compose/.env.example", "compose/compose.yaml")
_NAMED = re.compile(
    r"^(?:ARG \w*(?:BASE|IMAGE)=|    name: |    image: (?:&\S+ )?|POSTGRES_IMAGE=)(\S+)$",
    re.MULTILINE,
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DOCKER_HUB = "docker.io"
_HOSTS = {_DOCKER_HUB: "https://registry-1.docker.io"}
_KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_SECONDS = 30
_MOST_BYTES = 4 << 20


class Reference(NamedTuple):
    """An image as a file names it: ``[REGISTRY/]NAME[:TAG][@DIGEST]``."""

    registry: str
    repository: str
    tag: str
    digest: str
    written: str

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Return the parsed name. The default registry is Docker Hub, the default tag ``latest``.

        :raises ImageError: it is not a valid image name.
        """
        plain, _, digest = text.partition("@")
        folder, slash, last = plain.rpartition("/")
        last, _, tag = last.partition(":")
        first, _, rest = f"{folder}{slash}{last}".partition("/")
        has_registry = bool(rest) and ("." in first or ":" in first or first == "localhost")
        registry, name = (first, rest) if has_registry else (_DOCKER_HUB, f"{folder}{slash}{last}")
        if registry == _DOCKER_HUB and "/" not in name:
            name = f"library/{name}"
        if not re.fullmatch(r"[a-z0-9._/-]+", name) or (digest and not _DIGEST.fullmatch(digest)):
            raise ImageError(f"{text!r} names no image; write [REGISTRY/]NAME[:TAG][@sha256:…].")
        return cls(registry, name, tag or "latest", digest, plain)


def named_images(folder: Path = DOCKER) -> dict[Path, list[str]]:
    """Return the external images that each file below ``docker/`` names, as written."""
    files = [path for place in _PLACES for path in sorted(folder.glob(place))]
    return {path: list(dict.fromkeys(_NAMED.findall(path.read_text()))) for path in files}


def unpinned(folder: Path = DOCKER) -> Iterator[str]:
    """Yield a line for each image without a digest."""
    for path, images in named_images(folder).items():
        for image in images:
            if not Reference.parse(image).digest:
                yield (
                    f"{path.relative_to(folder.parent)}: {image} has no digest, so a build may get "
                    "other bytes than the one before. Run make pin-images where its registry can "
                    "be reached, and commit what it writes."
                )


def resolve(image: str, mirrors: Mapping[str, str]) -> str:
    """Return an image's name with the registry's current digest for the tag.

    :param mirrors: URLs to query instead, by registry name.
    :raises ImageError: the registry cannot be reached, does not know the image, or contradicts
        itself.
    """
    found = Reference.parse(image)
    base = mirrors.get(found.registry, _HOSTS.get(found.registry, f"https://{found.registry}"))
    url = f"{base}/v2/{found.repository}/manifests/{found.tag}"
    try:
        body, said = _manifest(url, found.repository)
    except (OSError, ValueError, KeyError) as error:
        raise ImageError(
            f"{image}: {url} does not tell its digest ({error}). Run this where the registry can "
            "be reached, or name a mirror by --mirror REGISTRY=URL."
        ) from error
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if said not in (None, digest):
        raise ImageError(f"{image}: {url} says {said}, and what it sends is {digest}.")
    return f"{found.written}@{digest}"


def _manifest(url: str, repository: str) -> tuple[bytes, str | None]:
    """Return a manifest's bytes, and the digest that the registry states for them."""
    headers = {"Accept": ", ".join(_KINDS)}
    try:
        return _get(url, headers)
    except urllib.error.HTTPError as error:
        challenge = error.headers.get("WWW-Authenticate", "")
        if error.code != 401 or not challenge.startswith("Bearer "):
            raise
    # Even anonymous access requires fetching a token first.
    words = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = {"service": words.get("service", ""), "scope": f"repository:{repository}:pull"}
    answer = json.loads(_get(f"{words['realm']}?{urllib.parse.urlencode(query)}", {})[0])
    token = answer.get("token") or answer["access_token"]
    return _get(url, headers | {"Authorization": f"Bearer {token}"})


def _get(url: str, headers: Mapping[str, str]) -> tuple[bytes, str | None]:
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{url!r} is no web address")
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 - looked at above
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
        return answer.read(_MOST_BYTES), answer.headers.get("Docker-Content-Digest")


def pin(folder: Path, mirrors: Mapping[str, str]) -> Iterator[str]:
    """Append digests to the images in ``docker/``; yield a line for each that fails."""
    known: dict[str, str] = {}
    for path, images in named_images(folder).items():
        text = path.read_text()
        for image in images:
            try:
                name = Reference.parse(image).written
                known[name] = known.get(name) or resolve(image, mirrors)
            except ImageError as error:
                yield str(error)
                continue
            text = _renamed(text, image, known[name])
        path.write_text(text)


def _renamed(text: str, image: str, pinned: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        return found[0].removesuffix(image) + pinned if found[1] == image else found[0]

    return _NAMED.sub(replaced, text)


def main(argv: Sequence[str] | None = None) -> int:
    """Pin or check; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="verification.container_images.pins",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="ask no registry and write nothing")
    parser.add_argument("--folder", type=Path, default=DOCKER, help="default: %(default)s")
    parser.add_argument(
        "--mirror",
        action="append",
        default=[],
        metavar="REGISTRY=URL",
        help="ask this address instead, such as docker.io=https://mirror.example.com",
    )
    options = parser.parse_args(argv)
    mirrors = dict(word.split("=", 1) for word in options.mirror if "=" in word)
    if not options.check:
        for problem in (problems := list(pin(options.folder, mirrors))):
            print(f"error: {problem}", file=sys.stderr)
    left = list(unpinned(options.folder))
    for line in left:
        print(f"error: {line}", file=sys.stderr)
    return 1 if left or (not options.check and problems) else 0


if __name__ == "__main__":
    sys.exit(main())
