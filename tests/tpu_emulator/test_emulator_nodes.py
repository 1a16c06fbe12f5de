from __future__ import annotations

from pathlib import Path

import pytest
from google.api_core import exceptions

from tests.tpu_emulator.support import Tpu, node_body, unique
from tpu_emulator.testing import wait_for

COUNT_BOOTS = '#!/bin/sh\necho boot >> "$HOME/boots"\nexec sleep 600\n'


def test_a_node_without_a_queue_is_created_and_deleted(tpu: Tpu) -> None:
    name = unique()
    node = tpu.create_node(name).result(timeout=20)
    assert node.state.name == "READY"
    assert node.queued_resource == ""
    tpu.client.delete_node(name=node.name).result(timeout=20)
    with pytest.raises(exceptions.NotFound):
        tpu.client.get_node(name=node.name)
    with pytest.raises(exceptions.NotFound):
        tpu.client.delete_node(name=node.name)


def test_stop_and_start_keep_the_folder_and_run_the_startup_script_again(tpu: Tpu) -> None:
    name = unique()
    tpu.create_node(name, node_body(COUNT_BOOTS)).result(timeout=20)
    boots = Path(tpu.worker(name)["directory"]) / "boots"
    wait_for(boots.exists)
    assert tpu.client.stop_node(request={"name": tpu.node_name(name)}).result(timeout=20)
    assert tpu.node_state(name) == "STOPPED"
    assert tpu.worker(name)["pids"] == []
    with pytest.raises(exceptions.FailedPrecondition, match="STOPPED"):
        tpu.client.stop_node(request={"name": tpu.node_name(name)})
    started = tpu.client.start_node(request={"name": tpu.node_name(name)}).result(timeout=20)
    assert started.state.name == "READY"
    wait_for(lambda: boots.read_text() == "boot\nboot\n")


def test_a_node_of_a_queued_resource_cannot_be_stopped(tpu: Tpu) -> None:
    name = tpu.active()
    with pytest.raises(exceptions.FailedPrecondition, match="queued resource"):
        tpu.client.stop_node(request={"name": tpu.node_name(name)})


def test_update_changes_the_masked_fields_only(tpu: Tpu) -> None:
    name = tpu.active(node=node_body(labels={"a": "1"}, description="old"))
    changed = tpu.client.update_node(
        node={"name": tpu.node_name(name), "labels": {"b": "2"}, "description": "new"},
        update_mask={"paths": ["labels"]},
    ).result(timeout=20)
    assert dict(changed.labels) == {"b": "2"}
    assert changed.description == "old"
    with pytest.raises(exceptions.InvalidArgument, match="update_mask"):
        tpu.client.update_node(
            node={"name": tpu.node_name(name)}, update_mask={"paths": ["runtime_version"]}
        )


def test_update_can_switch_external_addresses(tpu: Tpu) -> None:
    name = tpu.active()
    changed = tpu.client.update_node(
        node={"name": tpu.node_name(name), "network_config": {"enable_external_ips": True}},
        update_mask={"paths": ["network_config.enable_external_ips"]},
    ).result(timeout=20)
    assert changed.network_config.enable_external_ips


def test_a_configuration_names_the_accelerator_as_well(tpu: Tpu) -> None:
    name = unique()
    body = node_body(accelerator_config={"type_": "V5LITE_POD", "topology": "2x2"})
    del body["accelerator_type"]
    node = tpu.create_node(name, body).result(timeout=20)
    assert node.accelerator_type == "v5litepod-4"
