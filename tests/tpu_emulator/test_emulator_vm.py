from __future__ import annotations

import json
import os
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.tpu_emulator.support import (
    Tpu,
    alive,
    metadata,
    metadata_headers,
    metadata_json,
    node_body,
    unique,
)
from tpu_emulator.testing import wait_for

# Children in sessions of their own, children that shed the marker, one that ignores SIGTERM, and
# a parent that exits, so that they are orphans.
NESTED = """#!/bin/bash
(setsid sleep 600 &)
(env -i /bin/sleep 600 &)
setsid bash -c 'trap "" TERM; while :; do sleep 600; done' &
bash -c 'bash -c "sleep 600" & wait' &
echo $! > started
wait
"""
READ_METADATA = """#!/bin/sh
python3 - <<'EOF'
import os, urllib.request
host = os.environ["GCE_METADATA_HOST"]
url = f"http://{host}/computeMetadata/v1/instance/attributes/mailbox-uri"
request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
print("mailbox is", urllib.request.urlopen(request).read().decode())
EOF
env | sort > environment
pwd > folder
echo to stderr >&2
"""


def _folder(tpu: Tpu, node_id: str, worker: int = 0) -> Path:
    return Path(tpu.worker(node_id, worker)["directory"])


def _pids(tpu: Tpu, node_id: str, at_least: int = 1) -> list[int]:
    """The processes on all workers of the node, as soon as there are so many."""

    def found() -> list[int]:
        return [pid for worker in tpu.entry(node_id)["workers"] for pid in worker["pids"]]

    wait_for(lambda: len(found()) >= at_least)
    return found()


def test_the_startup_script_runs_and_reads_its_metadata(tpu: Tpu) -> None:
    body = node_body(READ_METADATA)
    body["metadata"]["mailbox-uri"] = "/store/mailbox"
    name = tpu.active(node=body)
    wait_for(lambda: tpu.worker(name)["startup_script_exit"] == 0)
    folder = _folder(tpu, name)
    assert folder == tpu.emulator.state_dir / "vms" / "us-central1-a" / name / "w0"
    log = (folder / "serial.log").read_text()
    assert "mailbox is /store/mailbox" in log
    assert "to stderr" in log
    assert (folder / "folder").read_text().strip() == str(folder)
    environment = dict(
        line.split("=", 1) for line in (folder / "environment").read_text().splitlines()
    )
    port = tpu.worker(name)["metadata_port"]
    assert environment["GCE_METADATA_HOST"] == f"127.0.0.1:{port}"
    assert environment["TPU_EMULATOR_VM"] == f"us-central1-a/{name}/w0"
    assert environment["HOME"] == str(folder)
    assert environment["TMPDIR"].startswith(str(folder))
    assert "PYTEST_CURRENT_TEST" in os.environ
    assert "PYTEST_CURRENT_TEST" not in environment


def test_a_script_without_a_shebang_is_run_by_sh(tpu: Tpu) -> None:
    name = tpu.active(node=node_body("echo plain; exit 3\n"))
    wait_for(lambda: tpu.worker(name)["startup_script_exit"] == 3)
    assert "plain" in (_folder(tpu, name) / "serial.log").read_text()
    assert tpu.node_state(name) == "READY"


def test_a_script_that_cannot_be_executed_is_said_in_the_log(tpu: Tpu) -> None:
    name = tpu.active(node=node_body("#!/no/such/interpreter\n"))
    log = _folder(tpu, name) / "serial.log"
    wait_for(lambda: "cannot execute the startup-script" in log.read_text())
    assert tpu.node_state(name) == "READY"


def test_a_node_without_a_script_has_a_metadata_server(tpu: Tpu) -> None:
    name = tpu.active(node=node_body(script=""))
    assert metadata(tpu.worker(name)["metadata_port"], "instance/name") == f"{name}-w-0"


def test_the_metadata_server_answers_like_the_real_one(tpu: Tpu) -> None:
    body = node_body(service_account={"email": "trainer@example.test", "scope": ["a", "b"]})
    body["metadata"]["key"] = "value"
    name = tpu.active(node=body)
    port = tpu.worker(name)["metadata_port"]
    assert metadata(port, "project/project-id") == "local-project"
    assert metadata(port, "universe/universe-domain") == "googleapis.com"
    assert metadata(port, "instance/zone").endswith("/zones/us-central1-a")
    assert metadata(port, "instance/attributes/key") == "value"
    assert "startup-script\n" in metadata(port, "instance/attributes/")
    assert metadata(port, "instance/attributes/agent-worker-number") == "0"
    environment = metadata(port, "instance/attributes/tpu-env")
    assert f"NODE_ID: '{name}'\n" in environment
    assert "ACCELERATOR_TYPE: 'v5litepod-8'\n" in environment
    assert "CONSUMER_PROJECT_ID: 'local-project'\n" in environment
    assert metadata(port, "instance/preempted") == "FALSE"
    assert metadata(port, "instance/maintenance-event") == "NONE"
    account = "instance/service-accounts/default"
    assert metadata(port, f"{account}/email") == "trainer@example.test"
    assert metadata(port, f"{account}/scopes") == "a\nb"
    assert metadata_json(port, f"{account}/?recursive=true")["scopes"] == ["a", "b"]
    assert metadata_json(port, f"{account}/token")["access_token"].startswith("fake")
    assert metadata_json(port, "instance/?recursive=true")["maintenanceEvent"] == "NONE"
    # A folder without the slash is redirected to the one with it.
    assert "default/\n" in metadata(port, "instance/service-accounts")
    for path, header, code in (
        ("instance/attributes/missing", True, 404),
        ("instance/attributes/key/below", True, 404),
        ("instance/attributes/key", False, 403),
        ("instance/id?wait_for_change=true&timeout_sec=soon", True, 400),
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            metadata(port, path, header=header)
        assert caught.value.code == code
        assert caught.value.headers["Metadata-Flavor"] == "Google"


def test_changed_metadata_is_visible_at_once(tpu: Tpu) -> None:
    name = tpu.active()
    tpu.client.update_node(
        node={"name": tpu.node_name(name), "metadata": {"drain": "yes"}},
        update_mask={"paths": ["metadata"]},
    )
    assert metadata(tpu.worker(name)["metadata_port"], "instance/attributes/drain") == "yes"


def test_a_client_can_wait_for_a_change(tpu: Tpu) -> None:
    body = node_body()
    body["metadata"]["drain"] = "no"
    name = tpu.active(node=body)
    port = tpu.worker(name)["metadata_port"]
    path = "instance/attributes/drain"
    tag = metadata_headers(port, path)["ETag"]
    wait = f"{path}?wait_for_change=true&last_etag={tag}"
    assert metadata(port, f"{wait}&timeout_sec=0") == "no"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(metadata, port, wait)
        tpu.client.update_node(
            node={"name": tpu.node_name(name), "metadata": {"drain": "yes"}},
            update_mask={"paths": ["metadata"]},
        )
        assert waiting.result(timeout=20) == "yes"


def test_google_auth_finds_credentials_and_project_on_the_vm(tpu: Tpu) -> None:
    import sys

    script = f"""#!{sys.executable}
import json, os
import google.auth, google.auth.transport.requests
credentials, project = google.auth.default()
credentials.refresh(google.auth.transport.requests.Request())
print(json.dumps([project, credentials.token, credentials.service_account_email]))
"""
    name = tpu.active(node=node_body(script))
    wait_for(lambda: tpu.worker(name)["startup_script_exit"] is not None)
    log = (_folder(tpu, name) / "serial.log").read_text()
    [line] = [line for line in log.splitlines() if line.startswith("[")]
    project, token, email = json.loads(line)
    assert project == "local-project"
    assert token.startswith("fake")
    assert email == "default@tpu-emulator.invalid"


def test_a_slice_boots_one_process_and_metadata_server_per_worker(tpu: Tpu) -> None:
    name = tpu.active(node=node_body(accelerator_type="v5litepod-16"))
    node = tpu.client.get_node(name=tpu.node_name(name))
    assert len({endpoint.ip_address for endpoint in node.network_endpoints}) == 4
    workers = tpu.entry(name)["workers"]
    assert len({worker["metadata_port"] for worker in workers}) == 4
    for number, worker in enumerate(workers):
        path = "instance/attributes/agent-worker-number"
        assert metadata(worker["metadata_port"], path) == str(number)
        assert Path(worker["directory"]).name == f"w{number}"
    pids = _pids(tpu, name, at_least=4)
    tpu.delete_queued(name)
    tpu.wait_gone(name)
    assert not alive(pids)


@pytest.mark.parametrize("by", ["delete", "preempt"])
def test_every_process_ends_whatever_session_it_made(tpu: Tpu, by: str) -> None:
    name = tpu.active(node=node_body(NESTED))
    wait_for((_folder(tpu, name) / "started").exists)
    pids = _pids(tpu, name, at_least=7)
    if by == "delete":
        tpu.delete_queued(name)
        tpu.wait_gone(name)
    else:
        tpu.admin.preempt(name)
        tpu.wait_queued(name, "SUSPENDED")
    assert not alive(pids)
    assert tpu.admin.table()["orphan_pids"] == []


def test_the_node_is_there_until_its_processes_are_gone(tpu: Tpu) -> None:
    stubborn = "#!/bin/sh\ntrap '' TERM\ntouch started\nwhile :; do sleep 0.05; done\n"
    name = tpu.active(node=node_body(stubborn))
    wait_for((_folder(tpu, name) / "started").exists)
    [pid, *_] = _pids(tpu, name)
    tpu.delete_queued(name)
    seen = set()

    def gone() -> bool:
        # The order matters: if the node is gone in this table, the process must have been.
        states = {row["node_id"]: row["state"] for row in tpu.admin.table()["nodes"]}
        if name in states:
            seen.add(states[name])
            return False
        return True

    wait_for(gone)
    assert not alive([pid])
    assert "DELETING" in seen


def test_the_shutdown_script_runs_before_the_processes_end(tpu: Tpu) -> None:
    body = node_body("#!/bin/sh\ntrap 'echo got TERM; exit' TERM\ntouch up\nsleep 600 & wait\n")
    body["metadata"]["shutdown-script"] = "#!/bin/sh\necho shutting down $TPU_EMULATOR_VM\n"
    name = tpu.active(node=body)
    wait_for((_folder(tpu, name) / "up").exists)
    tpu.delete_queued(name)
    tpu.wait_gone(name)
    log = (tpu.emulator.state_dir / "logs" / f"us-central1-a_{name}_w0.log").read_text()
    assert f"shutting down us-central1-a/{name}/w0" in log
    assert log.index("shutting down") < log.index("got TERM")


def test_what_cleans_up_after_sigterm_is_left_in_peace(tpu: Tpu) -> None:
    clean_up = "trap 'sleep 0.8 && echo cleaned up; exit' TERM"
    script = f"#!/bin/bash\n{clean_up}\ntouch up\nsleep 600 & wait\n"
    name = tpu.active(node=node_body(script))
    wait_for((_folder(tpu, name) / "up").exists)
    tpu.delete_queued(name)
    tpu.wait_gone(name)
    log = tpu.emulator.state_dir / "logs" / f"us-central1-a_{name}_w0.log"
    assert "cleaned up" in log.read_text()


def test_a_new_node_of_the_same_name_starts_with_an_empty_folder(tpu: Tpu) -> None:
    name = unique()
    script = "#!/bin/sh\ntest -e mark && echo dirty > found\ntouch mark\nexec sleep 600\n"
    for _ in range(2):
        tpu.active(name, node_body(script))
        folder = _folder(tpu, name)
        wait_for((folder / "mark").exists)
        assert not (folder / "found").exists()
        tpu.delete_queued(name)
        tpu.wait_gone(name)
        assert not folder.exists()


def test_a_reboot_runs_the_startup_script_again_in_the_same_folder(tpu: Tpu) -> None:
    name = tpu.active(node=node_body("#!/bin/sh\necho boot >> boots\nexec sleep 600\n"))
    boots = _folder(tpu, name) / "boots"
    wait_for(boots.exists)
    before = _pids(tpu, name)
    port = tpu.worker(name)["metadata_port"]
    tpu.admin.reboot(name)
    wait_for(lambda: boots.read_text() == "boot\nboot\n")
    assert not alive(before)
    assert tpu.worker(name)["metadata_port"] == port
    assert tpu.worker(name)["boots"] == 2
