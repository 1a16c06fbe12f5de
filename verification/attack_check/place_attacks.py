"""Attacks on a machine's files and servers: by other users, other host names, flipped bits."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from werkzeug.test import Client

from local.stack.paths import RuntimePaths, StatePaths
from pipeline_store import uris
from pipeline_store.formats import FileDigest, FormatError, ShardManifest, SignatureFile
from tests.model_registry.retained import line_of_models
from trained_models import artifacts
from training.reporting import board
from verification.attack_check.crashes import in_child
from verification.attack_check.rows import Row, Tally

_NOBODY = 65534
_HOSTS = (
    "attacker.example",
    "attacker.example:6006",
    "localhost.attacker.example",
    "127.0.0.1.nip.io",
    "127.0.0.1.attacker.example:6006",
    "0x7f000001",
    "2130706433",
    "[::ffff:7f00:1]",
    "localhost@attacker.example",
    "",
)
"""Foreign host names, some of which resolve to this machine."""


def other_users(_: Path, times: int) -> Tally:
    """Read state, secrets and sockets of a local stack as another user of the machine."""
    tally = Tally()
    for _number in range(times):
        # Not below the check's own folder, which may be closed to others: the folder above a state
        # folder is often open.
        with tempfile.TemporaryDirectory(prefix="state-of-a-stack-") as above:
            Path(above).chmod(0o755)
            _try_as_nobody(Path(above), tally)
    return tally


def _try_as_nobody(above: Path, tally: Tally) -> None:
    state, runtime = StatePaths(above / "state"), RuntimePaths(above / "run")
    state.create()
    runtime.create()
    secrets = (state.passwords, state.airflow_config, state.logs / "api-server.log")
    for path in secrets:
        path.write_text("secret")
    with ExitStack() as stack:
        for path in runtime.sockets:
            path.parent.mkdir(exist_ok=True)
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(str(path))
            server.listen()
        tries: dict[str, Callable[[], Any]] = {
            **{f"{path.name} is read": path.read_bytes for path in secrets},
            **{f"{path} answers": _connects(path) for path in runtime.sockets},
            "the state folder is listed": partial(os.listdir, state.root),
            "the store is listed": partial(os.listdir, state.store),
            "a file is put beside the sockets": (runtime.root / "x").touch,
        }
        for harm, attempt in tries.items():
            tally.add(*([harm] if _succeeds_as_nobody(attempt) else []))


def _connects(path: Path) -> Callable[[], None]:
    def connect() -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))

    return connect


def _succeeds_as_nobody(attempt: Callable[[], Any]) -> bool:
    def tried() -> None:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
        attempt()

    return in_child(tried) == 0


def _open_folders() -> Any:
    """Create folders with permissions for everyone."""
    make, change = Path.mkdir, Path.chmod

    def makes(self: Path, mode: int = 0o777, **options: Any) -> None:
        make(self, **options)
        change(self, 0o777)

    stack = ExitStack()
    stack.enter_context(mock.patch.object(Path, "mkdir", makes))
    stack.enter_context(
        mock.patch.object(Path, "chmod", lambda self, mode: change(self, mode | 0o777))
    )
    return stack


def other_names(_: Path, times: int) -> Tally:
    """Send TensorBoard requests for foreign host names, as a page of another site can."""
    tally = Tally()

    def everything(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b"runs and paths"]

    client = Client(board.only_for(("localhost", "127.0.0.1"), everything))
    for number in range(times):
        host = _HOSTS[number % len(_HOSTS)]
        answer = client.get("/data/runs", headers={"Host": host})
        is_refused = answer.status_code == 403 and b"runs and paths" not in answer.data
        tally.add(*([] if is_refused else [f"{host!r} is answered"]))
    return tally


def flipped_bits(folder: Path, times: int) -> Tally:
    """Flip a bit of records, indexes and signatures, and fetch them as a trainer does."""
    tally = Tally()
    store = folder / "store"
    line_of_models(str(store), 4)
    listed = list(_listed(str(store)))
    for number in range(times):
        uri, digest = listed[number % len(listed)]
        path = Path(uri)
        whole = path.read_bytes()
        place = number * 7919 % len(whole)
        changed = bytearray(whole)
        changed[place] ^= 1 << number % 8
        path.write_bytes(changed)
        harm = [f"{digest.path}: bit {number % 8} of byte {place} is not noticed"]
        with suppress(FormatError):
            artifacts.fetch_file(uri, digest, folder / "fetched")
            tally.add(*harm)
            harm = []
        if harm:
            tally.add()
        path.write_bytes(whole)
    return tally


def _listed(store: str) -> Iterator[tuple[str, FileDigest]]:
    """Yield each file that a record of shards or signatures lists, with its digest."""
    for uri in uris.list_files(store):
        folder = uri.rpartition("/")[0]
        if uri.endswith("/shard.json"):
            for digest in ShardManifest.load(uri).digests():
                yield uris.join(folder, digest.path), digest
        elif "/signatures/" in uri and uri.endswith(".json"):
            data = SignatureFile.load(uri).data
            yield uris.join(folder, data.path), data


ROWS = (
    Row("state and sockets as another user", other_users, 1, _open_folders),
    Row(
        "TensorBoard by another name",
        other_names,
        3 * len(_HOSTS),
        lambda: mock.patch("werkzeug.sansio.utils.host_is_trusted", return_value=True),
        len(_HOSTS),
    ),
    Row(
        "flipped bits of records, indexes and signatures",
        flipped_bits,
        128,
        lambda: mock.patch.object(artifacts, "_check_sha256"),
        4,
    ),
)
