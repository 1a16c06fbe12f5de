"""Detects new partitions of the corpus, and starts one run of the main DAG for each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from corpus.arrivals import CorpusArrivals
from corpus.errors import UserError
from operators.pipeline_assets import CORPUS_PARTITION
from pipeline_config import ConfigError, load_preset
from pipeline_store import identity
from pipeline_store.layout import StoreLayout

if TYPE_CHECKING:
    from airflow.sdk import Context


class WatchCorpusOperator(BaseOperator):
    """Lists the corpus and announces each partition that is new or changed, and has settled.

    An announcement is an event of the asset ``corpus_partition`` with the partition as its key. It
    is repeated at every pass until a run has been started: Airflow drops an event for a paused DAG.
    The task is skipped when there is nothing to announce.

    Returns the announced partitions.

    :param store_uri: root of the store.
    :param preset: configuration whose ``corpus.input_pattern`` says where the corpus is.
    :param settle: how long the files of a partition without a marker must stay unchanged.
    """

    def __init__(self, *, store_uri: str, preset: str, settle: timedelta, **kwargs: Any) -> None:
        super().__init__(outlets=[CORPUS_PARTITION], **kwargs)
        self.store_uri = store_uri
        self.preset = preset
        self.settle = settle

    def execute(self, context: Context) -> list[str]:
        """Make one pass."""
        look = _corpus(self.store_uri, self.preset).look(datetime.now(UTC), self.settle)
        for partition, reason in look.waiting.items():
            self.log.info("Partition %s waits: %s", partition, reason)
        for line in look.overlooked:
            self.log.warning("Not seen as a partition: %s", line)
        if not look.arrived:
            raise AirflowSkipException(look.summary)
        self.log.info("%s Announced: %s", look.summary, ", ".join(look.arrived))
        context["outlet_events"][CORPUS_PARTITION].add_partitions(look.arrived)
        return look.arrived


class ReceivePartitionOperator(BaseOperator):
    """Determines the run of the main DAG that an announced partition starts.

    The same partition with the same files always gives the same run, so that a repeated
    announcement starts no second run.

    Returns ``partition`` and ``run_id``.

    :param store_uri: root of the store.
    :param preset: configuration whose ``corpus.input_pattern`` says where the corpus is.
    """

    def __init__(self, *, store_uri: str, preset: str, **kwargs: Any) -> None:
        super().__init__(multiple_outputs=True, **kwargs)
        self.store_uri = store_uri
        self.preset = preset

    def execute(self, context: Context) -> dict[str, str]:
        """List the partition that is this run's key, and return its run."""
        key = context["dag_run"].partition_key
        if key is None:
            raise AirflowFailException(
                "This run has no partition key, so there is nothing to start. Trigger the main DAG "
                "by hand, or send an event of the asset corpus_partition with a partition key."
            )
        corpus = _corpus(self.store_uri, self.preset)
        try:
            listing = corpus.listing(identity.check_partition(key))
        except (UserError, ValueError) as error:
            raise AirflowFailException(f"Partition {key!r} was announced, but: {error}") from error
        corpus.see(listing, datetime.now(UTC))
        self.log.info(
            "Partition %s: %s files, %s bytes; run %s",
            key,
            len(listing.sizes),
            sum(listing.sizes.values()),
            listing.run_id,
        )
        return {"partition": key, "run_id": listing.run_id}


class RememberStartOperator(BaseOperator):
    """Remembers that an announced partition has its run, which ends the announcements.

    :param store_uri: root of the store.
    :param preset: configuration whose ``corpus.input_pattern`` says where the corpus is.
    :param partition: the partition. (templated)
    :param run_id: run of the main DAG, which exists. (templated)
    """

    template_fields: Sequence[str] = ("partition", "run_id")

    def __init__(
        self, *, store_uri: str, preset: str, partition: Any, run_id: Any, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri
        self.preset = preset
        self.partition = partition
        self.run_id = run_id

    def execute(self, context: Context) -> None:
        """Record the run."""
        _corpus(self.store_uri, self.preset).started(self.partition, self.run_id)


def _corpus(store_uri: str, preset: str) -> CorpusArrivals:
    """Return the watched corpus.

    :raises AirflowFailException: the configuration is wrong, which another try cannot fix.
    """
    try:
        pattern = load_preset(preset).corpus.input_pattern
        return CorpusArrivals(StoreLayout(store_uri), pattern)
    except (ConfigError, UserError) as error:
        raise AirflowFailException(str(error)) from error
