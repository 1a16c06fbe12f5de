"""Labelled tasks as a part of promotion: they are prepared, then both models are tried on them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from model_registry import gate
from operators.data_job import DataJobOperator
from operators.tpu import TpuRunOperator
from operators.tpu_failures import FailureKind, TpuTaskFailed
from pipeline_config import parse_config
from pipeline_store import uris
from pipeline_store.formats import TaskManifest

if TYPE_CHECKING:
    from airflow.sdk import Context


class ProbeDataOperator(DataJobOperator):
    """Turns the labelled tasks of ``promotion.probe_tasks`` into records, one after the other.

    Skipped when there are none. A task that is prepared already is left alone. Fails when one has
    too few test examples to say anything of a candidate.

    Returns ``manifests``, the URI of each task's TaskManifest.

    :param store_uri: root of the store.
    """

    template_fields: Sequence[str] = ("config_uri",)

    def __init__(self, *, store_uri: str, **kwargs: Any) -> None:
        super().__init__(
            module="beam_jobs.prepare_task", store_uri=store_uri, arguments=[], **kwargs
        )

    def execute(self, context: Context) -> dict[str, Any]:
        """Prepare each task in a process of its own."""
        config = parse_config(uris.read(self.config_uri), self.config_uri)
        tasks = config.promotion.probe_tasks
        if not tasks:
            raise AirflowSkipException(
                "promotion.probe_tasks is empty: the candidate is judged by its loss alone."
            )
        manifests = []
        for name in tasks:
            self.arguments = ["--config", self.config_uri, "--store", self.store_uri]
            self.arguments += ["--task", name]
            manifests.append(super().execute(context)["manifest"])
        problems = [gate.too_few_examples(TaskManifest.load(uri)) for uri in manifests]
        if found := [line for line in problems if line]:
            raise AirflowFailException("\n".join(found))
        return {"manifests": manifests}


class TpuProbeOperator(TpuRunOperator):
    """Fine-tunes candidate and model in use on labelled tasks, on the run's TPU.

    Fails without asking for a TPU when no task was prepared.

    :param arguments: command line of ``training.probe`` without the manifests. (templated)
    :param manifests: TaskManifest URIs, as :class:`ProbeDataOperator` returns them. (templated)
    """

    template_fields = (*TpuRunOperator.template_fields, "manifests")

    def __init__(self, *, manifests: Any, **kwargs: Any) -> None:
        super().__init__(entry_point="training.probe", **kwargs)
        self.manifests = manifests

    def execute(self, context: Context) -> Any:
        """Run the job, if there is something to probe on."""
        if not self.manifests:
            raise TpuTaskFailed(
                FailureKind.USER_ERROR,
                "No task of promotion.probe_tasks was prepared: probe_data has returned no "
                "manifests. Was it marked as success by hand? Clear it, with what comes after it. "
                "A run without probes needs an empty promotion.probe_tasks.",
            )
        return super().execute(context)

    def job_arguments(self) -> list[Any]:
        """Return the command line with the manifests."""
        named = [("--manifest", manifest) for manifest in self.manifests]
        return [*self.arguments, *chain.from_iterable(named)]
