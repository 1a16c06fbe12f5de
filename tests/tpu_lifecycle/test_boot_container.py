"""The startup script that runs the boot script in a container, with a Docker that is played."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import pytest

from pipeline_config.rental_schema import TpuConfig
from pipeline_store.formats import ExitKind
from tests.tpu_agent import giving_back
from tests.tpu_agent.played_docker import HOST, IMAGE, PlayedDocker
from tests.tpu_agent.world import PATIENCE, World, wait_for
from tests.tpu_lifecycle.booting import (
    OWN_NODE_PATH,
    PATHS,
    QUEUED_PATH,
    TPU_NAME,
    MetadataServer,
    Vm,
    deletions,
    kill,
)
from tpu_lifecycle.boot import boot, launcher

PROGRAMS = "bash cat chmod curl date mkdir rm sed sh sleep timeout"
SCRIPT = launcher.CONTAINER_SCRIPT.read_text()
# Before each command the script reads the time that the test has written.
PLAYED_CLOCK = """unset EPOCHSECONDS
set -o functrace
trap 'read -r EPOCHSECONDS <"$CLOCK"' DEBUG
"""


class ContainerVm(Vm):
    """A machine with the programs that the script may count on, and no other Python."""

    def __init__(self, world: World, server: MetadataServer) -> None:
        self.docker = PlayedDocker(world.root / "docker")
        self.clock = world.root / "clock"
        for program in PROGRAMS.split():
            (self.docker.bin / program).symlink_to(str(shutil.which(program)))
        super().__init__(world, server, IMAGE, str(self.docker.bin))
        server.values["service-accounts/default/token"] = (
            '{"access_token": "vm-token", "expires_in": 3599, "token_type": "Bearer"}'
        )

    def become_real(self, **changes: str) -> None:
        """Let the TPU service be one that takes requests, on the metadata server."""
        asked = deletions(self.server, QUEUED_PATH, OWN_NODE_PATH)
        self.set({"tpu-api-endpoint": "", "tpu-deletions": asked})
        self.set({name.replace("_", "-"): value for name, value in changes.items()})

    def hurry(self) -> None:
        """Let the script's pauses be short, whatever it says of them."""
        sleep = self.docker.bin / "sleep"
        sleep.unlink()
        sleep.write_text("#!/bin/sh\nexec /bin/sleep 0.1\n")
        sleep.chmod(0o755)

    def set_clock(self, moment: datetime) -> None:
        """Let the time of the script be this one until the next call, however slow the machine."""
        new = self.clock.with_suffix(".new")
        new.write_text(f"{int(moment.timestamp())}\n")  # whole ones, as of the expiry
        new.replace(self.clock)
        script = self.server.values["attributes/startup-script"]
        if PLAYED_CLOCK not in script:
            first, _, rest = script.partition("\n")
            clock = f"readonly CLOCK={shlex.quote(str(self.clock))}\n{PLAYED_CLOCK}"
            self.set({"startup-script": f"{first}\n{clock}{rest}"})

    def orphans(self) -> list[psutil.Process]:
        """Return all processes of this VM, the container's included."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self.world.root) in word for word in process.info["cmdline"] or ()):
                found.append(process)
        return found

    def power_off(self) -> None:
        for process in self.boots:
            if process.poll() is None:
                children = psutil.Process(process.pid).children(recursive=True)
                process.kill()  # before them, or it would start others
                kill(children)
        super().power_off()


@pytest.fixture
def vm(tmp_path: Path, server: MetadataServer) -> Iterator[ContainerVm]:
    vm = ContainerVm(World(tmp_path), server)
    yield vm
    vm.power_off()


def test_a_job_runs_in_the_container(vm: ContainerVm) -> None:
    vm.world.add_job("010-train", "train")
    vm.boot()
    assert vm.world.wait_status("010-train").exit_kind is ExitKind.OK
    assert f"folder {vm.folder}/tpu-agent/bundle-" in vm.world.log("010-train")
    [call] = vm.docker.calls("run")
    assert call["arguments"][-2:] == [IMAGE, f"{vm.folder}/tpu-agent/boot.py"]
    [login] = vm.docker.calls("login")
    assert login["arguments"][-1] == f"https://{HOST}"
    assert login["input"].strip() == "vm-token", "by standard input, and by nothing else"
    assert "vm-token" not in str(login["arguments"])
    assert "vm-token" not in vm.log
    kept = {path.name for path in (vm.folder / "tpu-agent").iterdir()}
    assert kept == {"agent", "boot.py", f"bundle-{vm.world.bundle.sha256}"}


@pytest.mark.parametrize(
    "host",
    [
        "evil-docker.pkg.dev.example.com",
        pytest.param("gcr.io.example.com", marks=pytest.mark.thorough),
    ],
)
def test_a_registry_of_others_gets_no_token(vm: ContainerVm, host: str) -> None:
    image = IMAGE.replace(HOST, host)
    vm.set({"container-image": image})
    vm.boot()
    vm.hello()
    assert vm.docker.calls("login") == []
    assert [call["arguments"][-1] for call in vm.docker.calls("pull")] == [image]


def test_a_registry_that_refuses_is_asked_again(vm: ContainerVm) -> None:
    vm.docker.fail_pulls(2)
    vm.hurry()
    vm.boot()
    vm.hello()
    assert len(vm.docker.calls("pull")) == len(vm.docker.calls("login")) == 3
    assert vm.log.count(f"{IMAGE} could not be pulled (exit code 1)") == 2


def test_metadata_that_is_away_at_boot_is_waited_for(vm: ContainerVm) -> None:
    vm.server.failures = 2
    vm.hurry()
    vm.boot()
    vm.hello()
    assert "does not tell attributes/container-image; asking again in 2 s" in vm.log


def test_a_reboot_removes_the_earlier_container_and_needs_no_registry(vm: ContainerVm) -> None:
    vm.world.add_job("010-train", "waits")
    vm.boot()
    vm.world.wait_starts(1)
    vm.power_off()
    assert vm.docker.runs(), "a name that is taken"
    vm.docker.fail_pulls(99)
    vm.boot()
    vm.world.wait_starts(2)
    vm.world.go()
    status = vm.world.wait_status("010-train")
    assert (status.exit_kind, status.restarts) == (ExitKind.OK, 1)
    assert len(vm.docker.calls("pull")) == 1


def test_a_container_that_ends_is_started_again(vm: ContainerVm) -> None:
    vm.boot()
    vm.hello()
    [boot_script] = [
        process
        for process in vm.orphans()
        # As it was found: others of them have ended since.
        if process.info["cmdline"][1:] == [f"{vm.folder}/tpu-agent/boot.py"]
    ]
    children = boot_script.children()
    boot_script.kill()  # and what else is in the container, as the kernel does
    kill(children)
    vm.hello(starts=2)
    assert "the container ended with exit code 137; it is started again in 1 s" in vm.log


def test_sigterm_lets_the_job_save_before_the_vm_goes_down(vm: ContainerVm) -> None:
    vm.world.add_job("010-train", "waits")
    process = vm.boot()
    vm.world.wait_starts(1)
    # The played container does not end it with the script, so its words could be the last.
    wait_for("the switch's words", lambda: f"{TPU_NAME} expires at" in vm.log)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0, vm.log
    assert vm.world.wait_status("010-train").exit_kind is ExitKind.PREEMPTED
    assert not vm.docker.runs()
    assert vm.log.endswith("startup: the VM goes down\n")


def test_sigterm_ends_the_waiting_for_a_registry(vm: ContainerVm) -> None:
    vm.docker.fail_pulls(99)
    process = vm.boot()
    wait_for("a refusal", lambda: "could not be pulled" in vm.log)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0, vm.log


BAD_IMAGES = [
    "bert-trainer-tpu:latest",
    IMAGE[:-1],
    f"{IMAGE}0",
    f"--privileged@sha256:{'0' * 64}",
    f"$(touch /tmp/x)@sha256:{'0' * 64}",
    f"a b@sha256:{'0' * 64}",
    f"a;b@sha256:{'0' * 64}",
    f"x\n{IMAGE}",
    f"{IMAGE}\nx",
]


@pytest.mark.parametrize(
    "image",
    [
        *BAD_IMAGES[:3],
        *(pytest.param(image, marks=pytest.mark.thorough) for image in BAD_IMAGES[3:]),
    ],
)
def test_a_name_that_is_none_is_refused(vm: ContainerVm, image: str) -> None:
    vm.set({"container-image": image})
    vm.boot()
    wait_for("the refusal", lambda: "is refused: name it" in vm.log)
    assert not (vm.docker.folder / "calls.jsonl").exists()


@pytest.mark.parametrize("image", BAD_IMAGES)
def test_the_settings_refuse_it_before(image: str) -> None:
    with pytest.raises(ValueError, match="container_image"):
        TpuConfig(container_image=image)


def test_settings_and_script_take_the_same_names() -> None:
    [schema] = TpuConfig.model_json_schema()["properties"]["container_image"]["anyOf"][:1]
    assert f"IMAGE_PATTERN='{schema['pattern']}'" in SCRIPT


def test_an_image_that_never_comes_ends_with_the_expiry(vm: ContainerVm) -> None:
    vm.docker.fail_pulls(99)
    vm.become_real()
    vm.hurry()
    vm.set_clock(vm.world.expires_at - timedelta(seconds=1))
    vm.server.answers = [200]
    process = vm.boot()
    wait_for("two pulls", lambda: len(vm.docker.calls("pull")) >= 2)
    assert vm.server.deletions == []
    vm.set_clock(vm.world.expires_at)
    wait_for("a deletion", lambda: vm.server.deletions)
    assert vm.server.deletions == [QUEUED_PATH]
    assert process.poll() is None, "it asks again, until it is gone"
    assert "vm-token" not in vm.log


@pytest.mark.parametrize(
    "case",
    [
        # Each starts a machine; the rule is the same for every other answer.
        case if 403 in case.answers else pytest.param(case, marks=pytest.mark.thorough)
        for case in giving_back.CASES
    ],
    ids=str,
)
def test_a_vm_without_docker_gives_itself_back_when_its_lease_may_be_old(
    vm: ContainerVm, case: giving_back.Case
) -> None:
    (vm.docker.bin / "docker").unlink()
    asked = deletions(vm.server, *[QUEUED_PATH] * case.is_queued, OWN_NODE_PATH)
    vm.become_real(lease_timeout="1.5", tpu_deletions=asked, tpu_env="")
    vm.server.answers = list(case.answers)
    vm.boot()
    last = f": {case.answers[-1]}\n"
    wait_for("the last answer", lambda: last in vm.log and not vm.server.answers)
    assert vm.server.deletions == [PATHS[what] for what in case.asked]
    assert "there is no docker on PATH" in vm.log


def test_a_vm_without_docker_knows_its_node_of_a_slice(vm: ContainerVm) -> None:
    (vm.docker.bin / "docker").unlink()
    vm.become_real(lease_timeout="1.5", tpu_env="ZONE: 'z'\nNODE_ID: 'n-1'\n")
    vm.server.answers = [404, 404]
    vm.boot()
    wait_for("both answers", lambda: not vm.server.answers)
    assert vm.server.deletions == [QUEUED_PATH, "/v2/projects/p/locations/z/nodes/n-1"]


def test_containers_that_do_not_stay_are_no_reason_to_keep_the_tpu(vm: ContainerVm) -> None:
    vm.become_real(lease_timeout="600", boot_script="raise SystemExit(3)")
    begin = vm.world.expires_at - timedelta(hours=1)
    vm.set_clock(begin)
    vm.server.answers = [200]
    vm.boot()
    again = "the container ended with exit code 3; it is started again"
    wait_for("another start", lambda: again in vm.log)
    assert vm.server.deletions == []
    vm.set_clock(begin + timedelta(seconds=600))
    wait_for("a deletion", lambda: vm.server.deletions)


@pytest.mark.thorough
def test_a_container_that_hangs_ends_some_time_after_the_expiry(vm: ContainerVm) -> None:
    vm.become_real(boot_script="import time; time.sleep(600)")
    script = vm.server.values["attributes/startup-script"]
    vm.set({"startup-script": script.replace("LAST_RESORT_AFTER=600", "LAST_RESORT_AFTER=4")})
    vm.set_clock(vm.world.expires_at - timedelta(seconds=1))
    vm.server.answers = [200]
    vm.boot()
    wait_for("the container", vm.docker.runs)
    assert vm.server.deletions == []
    vm.set_clock(vm.world.expires_at)
    wait_for("a deletion", lambda: vm.server.deletions)
    assert not vm.docker.runs()


def test_an_emulators_tpu_is_left_to_others(vm: ContainerVm) -> None:
    vm.docker.fail_pulls(99)
    vm.set({"lease-timeout": "1"})
    assert vm.boot().wait(PATIENCE) == 1
    assert "its TPU is left to others" in vm.log


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tpu-name", ""),
        ("expires-at", ""),
        ("expires-at", "soon"),
        ("lease-timeout", "a[$(touch x)]"),
        ("lease-timeout", "08"),
    ],
)
def test_a_node_that_was_not_made_for_it_is_refused(vm: ContainerVm, name: str, value: str) -> None:
    vm.become_real()
    vm.set({name: value})
    assert vm.boot().wait(PATIENCE) == 1
    assert "this node was not made for this script" in vm.log
    assert vm.server.deletions == []
    assert not (vm.folder / "x").exists()


def test_the_script_is_bash() -> None:
    assert SCRIPT.startswith("#!/bin/bash\n")
    subprocess.run(["/bin/bash", "-n", launcher.CONTAINER_SCRIPT], check=True)
    assert launcher.CONTAINER_SCRIPT.stat().st_mode & 0o111
    assert "eval" not in re.findall(r"\w+", SCRIPT)


def test_both_scripts_wait_equally_long() -> None:
    assert f"LONGEST_PAUSE={boot.LONGEST_PAUSE:.0f}\n" in SCRIPT
    assert f"LAST_RESORT_AFTER={boot.LAST_RESORT_AFTER:.0f} " in SCRIPT
