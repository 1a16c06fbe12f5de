"""What a request may set, and that no setting slips through which names a file."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from pipeline_config import (
    ConfigError,
    FinetuningConfig,
    PipelineConfig,
    TaskConfig,
    load_preset,
)
from pipeline_config.loading import fields
from pipeline_config.requests import locked_settings, marked, named_paths, with_request
from pipeline_config.sections import Mark

PRESET = load_preset("bert_base_v5e")
IMAGE = f"registry/image@sha256:{'0' * 64}"
PATHS = ("/etc/shadow", "gs://other/file", "../../secret")
WORDS = {
    "corpus.partition": "checked by identity.check_partition",
    "corpus.text_field": "name of a field",
    "corpus.group_field": "name of a field",
    "evaluation.general_partition": "part of a path below a lineage, which cannot leave it",
    "evaluation.pattern": "compared with names of partitions that are there",
    "beam.worker_machine_type": "a name of Dataflow's",
}
"""Settings that take any text and name no file, with the reason."""
TASK_WORDS = {
    "columns",
    "text_column",
    "text_pair_column",
    "label_column",
    "label_separator",
    "labels",
}


@pytest.mark.parametrize("schema", [PipelineConfig, FinetuningConfig])
def test_every_setting_that_takes_a_path_is_marked(
    schema: type[PipelineConfig | FinetuningConfig],
) -> None:
    known = set(marked(schema, *Mark)) | set(WORDS)
    for name, _ in fields(schema):
        section, _, key = name.partition(".")
        model: Any = schema.model_fields[section].annotation
        assert name in known or not _takes_a_path(model, key), (
            f"{name} takes any text. Mark it in the schema: TEXT_PATH, MODEL_PATH or "
            "BY_INSTALLATION; or say here why it can name no file."
        )


def test_every_setting_of_a_task_that_takes_a_path_is_marked() -> None:
    for name, field in TaskConfig.model_fields.items():
        is_marked = Mark.TEXT_PATH in field.metadata or name in TASK_WORDS
        assert is_marked or not _takes_a_path(TaskConfig, name), name


def _takes_a_path(model: type[BaseModel], key: str) -> bool:
    for path in PATHS:
        for value in (path, [path]):
            try:
                model.model_validate({key: value})
            except ValidationError:
                continue
            return True
    return False


def test_the_paths_of_a_configuration_are_found() -> None:
    config = with_request(
        PRESET, {"corpus.input_pattern": "a/*, b/*", "model.init_checkpoint": "imports/x,y"}, []
    )
    assert named_paths(config, Mark.TEXT_PATH) == {"corpus.input_pattern": ["a/*", "b/*"]}
    assert named_paths(config, Mark.MODEL_PATH) == {"model.init_checkpoint": ["imports/x,y"]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tpu.container_image", IMAGE),
        ("tpu.service_account", "other@project.iam.gserviceaccount.com"),
        ("tpu.network_tags", ["open"]),
        ("tpu.enable_external_ips", True),
        ("beam.sdk_container_image", IMAGE),
        ("beam.temp_location", "gs://other/temp"),
        ("budget.price_per_chip_hour", 0.0),
        ("promotion.approvers", ["me"]),
    ],
)
def test_what_only_the_installation_sets_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        with_request(PRESET, {name: value}, [])
    [line] = refused.value.violations
    assert line.startswith(f"{name}: only the installation sets this")


def test_no_request_rents_from_somebodys_reservation() -> None:
    theirs = "projects/another/locations/us-central1-a/reservations/theirs"
    conf = {"tpu.reservation_name": theirs, "tpu.provisioning_model": "reserved"}
    with pytest.raises(ConfigError, match=r"tpu\.reservation_name: only the installation"):
        with_request(PRESET, conf, [])


def test_the_installations_own_value_may_be_named() -> None:
    same = PRESET.tpu.enable_external_ips
    assert with_request(PRESET, {"tpu.enable_external_ips": same}, []) == PRESET


def test_an_installation_can_lock_more() -> None:
    conf = {"promotion.min_improvement": 0.0, "promotion.max_forgetting": 99.0}
    assert with_request(PRESET, conf, []).promotion.max_forgetting == 99.0
    with pytest.raises(ConfigError) as refused:
        with_request(PRESET, conf, ["promotion.*"])
    assert [line.partition(":")[0] for line in refused.value.violations] == sorted(conf)
    assert "promotion.probe_tasks" in locked_settings(PipelineConfig, ["promotion.*"])
