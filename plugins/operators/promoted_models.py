"""Starts one fine-tuning run for each model that comes into use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from model_registry.errors import RegistryError
from model_registry.production import production
from model_registry.versions import load_version
from pipeline_config import ConfigError, FinetuningConfig, load_finetuning_preset
from pipeline_store import identity
from pipeline_store.formats import ModelVersion
from pipeline_store.layout import StoreLayout
from preflight.run.finetuning import idle_reason

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReceiveModelOperator(BaseOperator):
    """Determines the fine-tuning run that a model that came into use starts.

    Skipped, with the reason, if there is nothing to do: the preset names no task, or another
    lineage. The same model always gives the same run, so that a repeated event starts no second
    run.

    Returns ``run_id`` and ``conf`` of the run of ``bert_finetuning``.

    :param store_uri: root of the store.
    :param preset: the preset of that run.
    """

    def __init__(self, *, store_uri: str, preset: str, **kwargs: Any) -> None:
        super().__init__(multiple_outputs=True, **kwargs)
        self.store_uri = store_uri
        self.preset = preset

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the run for the model that is this run's partition key."""
        key = context["dag_run"].partition_key
        if key is None:
            raise AirflowFailException(
                "This run has no partition key, so there is nothing to start. Trigger "
                "bert_finetuning by hand."
            )
        lineage_id, _, version_id = key.partition(".")
        store = StoreLayout(self.store_uri)
        try:
            config = load_finetuning_preset(self.preset)
            reason = idle_reason(config, store)
            if config.text_to_text.init_checkpoint is not None:
                reason = "this installation's preset fine-tunes a T5, and no model of a lineage."
            elif lineage_id != config.encoder.lineage_id:
                reason = (
                    f"{version_id} is of lineage {lineage_id}, and this installation fine-tunes "
                    f"those of {config.encoder.lineage_id} (encoder.lineage_id)."
                )
            if reason is not None:
                # Airflow's log of a skipped task does not say why.
                self.log.info("Nothing to do: %s", reason)
                raise AirflowSkipException(f"Nothing to do: {reason}")
            version = load_version(store.lineage(identity.check_lineage(lineage_id)), version_id)
        except (ConfigError, RegistryError, ValueError) as error:
            raise AirflowFailException(f"Model {key!r} came into use, but: {error}") from error
        conf = conf_of(config, version)
        if "encoder.compare_with" in conf:
            self.log.info("%s was trained from no other version: not compared with one", version_id)
        return {"run_id": f"promotion__{version_id}", "conf": conf}


def conf_of(preset: FinetuningConfig, version: ModelVersion) -> dict[str, Any]:
    """Return the conf of a model's fine-tuning run."""
    conf: dict[str, Any] = {"encoder.version": version.version_id}
    compared = preset.encoder.compare_with
    if version.parent is None and "previous" in compared:
        conf["encoder.compare_with"] = [name for name in compared if name != "previous"]
    return conf


def conf_in_use(preset: FinetuningConfig, store: StoreLayout) -> dict[str, Any] | None:
    """Return the conf of the fine-tuning run of the model in use; None: no model is in use."""
    in_use = production(store.lineage(preset.encoder.lineage_id))
    return None if in_use is None else conf_of(preset, in_use)
