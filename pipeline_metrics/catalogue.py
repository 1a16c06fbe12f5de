"""Defines the metrics: name, type, unit, help, labels, and the function that reads each.

The exporter, the table in docs/operate/metrics.md and some tests are made from this list. Rules and
dashboards use metrics from it, and a test checks that they use no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from pipeline_metrics import reads
from pipeline_metrics.snapshot import Snapshot

PREFIX = "repretrain_"

Sample = tuple[tuple[str, ...], float]
"""Values of the labels, in their order, and the value of the metric."""


class Kind(StrEnum):
    """A Prometheus metric type."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True)
class Metric:
    """One metric.

    :ivar name: name without the prefix; ends in the unit, and in ``_total`` if it only grows.
    :ivar unit: unit in words; empty: a count, or a number without a unit.
    """

    name: str
    unit: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[Snapshot], Iterable[Sample]]
    kind: Kind = Kind.GAUGE

    @property
    def full_name(self) -> str:
        """Return the name in Prometheus, with the prefix."""
        return PREFIX + self.name


RUN = ("lineage", "dag")
TIME = "seconds since 1970"

METRICS = (
    Metric(
        "runs",
        "",
        "Runs that began within the window, by how they ended; going_on: they have not, refused: "
        "the first task refused what was asked for.",
        (*RUN, "outcome"),
        reads.runs,
    ),
    Metric(
        "runs_failed_in_a_row",
        "",
        "How many of the newest runs that have ended failed or were cancelled, without a break.",
        RUN,
        reads.failed_in_a_row,
    ),
    Metric(
        "runs_rejected_in_a_row",
        "",
        "How many of the newest runs that have ended were rejected, without a break.",
        RUN,
        reads.rejected_in_a_row,
    ),
    Metric(
        "run_oldest_start_timestamp_seconds",
        TIME,
        "When the oldest of the runs that have not ended began.",
        RUN,
        reads.oldest_start,
    ),
    Metric(
        "job_heartbeat_timestamp_seconds",
        TIME,
        "Last heartbeat of a TPU that a job runs on; of several the one that is silent longest.",
        RUN,
        reads.heartbeat,
    ),
    Metric(
        "job_progress_ratio",
        "share",
        "Steps done of those planned, by the job that was heard of last.",
        RUN,
        reads.progress,
    ),
    Metric(
        "job_step_duration_seconds",
        "seconds",
        "Smoothed time of a step, by the job that was heard of last.",
        RUN,
        reads.step_duration,
    ),
    Metric(
        "job_tokens_per_second",
        "tokens per second",
        "Real tokens that are trained on, padding left out, by the job that was heard of last.",
        RUN,
        reads.tokens_per_second,
    ),
    Metric(
        "job_remaining_seconds",
        "seconds",
        "What the job that was heard of last still expects to take.",
        RUN,
        reads.remaining,
    ),
    Metric(
        "job_loss_nats",
        "nats per token",
        "Loss of the job that was heard of last, on training rows and on held-out ones.",
        (*RUN, "rows"),
        reads.job_loss,
    ),
    Metric(
        "tpu_chips",
        "",
        "Chips that are not known to be gone, by what their TPU is doing.",
        ("lineage", "state"),
        reads.chips,
    ),
    Metric(
        "tpu_state_oldest_timestamp_seconds",
        TIME,
        "Since when the TPU that is in a state longest is in it; queued: since its run asks for "
        "one, over all attempts.",
        ("lineage", "state"),
        reads.oldest_in_state,
    ),
    Metric(
        "tpu_chip_seconds",
        "seconds",
        "Billed chip-seconds of the runs of the window, by what they were spent on.",
        ("lineage", "spent_on"),
        reads.chip_seconds,
    ),
    Metric(
        "tpu_goodput_ratio",
        "share",
        "Chip-seconds of the window in steps that were kept, of all that were billed.",
        ("lineage",),
        reads.goodput,
    ),
    Metric(
        "tpu_cost",
        "of label currency",
        "What the chip-seconds of the window cost at most, by the configured price.",
        ("lineage", "currency"),
        reads.cost,
    ),
    Metric(
        "tpu_lost_cost",
        "of label currency",
        "The part of it that losses of TPUs cost: work done again, and the next start.",
        ("lineage", "currency", "to"),
        reads.lost_cost,
    ),
    Metric(
        "tpu_rejected_cost",
        "of label currency",
        "The part of it that went into candidates that were rejected.",
        ("lineage", "currency"),
        reads.rejected_cost,
    ),
    Metric(
        "tpu_saved_cost",
        "of label currency",
        "What spot TPUs saved in the window against budget.on_demand_price_per_chip_hour.",
        ("lineage", "currency"),
        reads.saved_cost,
    ),
    Metric(
        "data_documents",
        "",
        "Documents of the partitions that were prepared within the window, each partition once: "
        "used, or dropped for a reason.",
        ("lineage", "fate"),
        reads.documents,
    ),
    Metric(
        "data_tokens",
        "",
        "Tokens of their rows of the main length, by side.",
        ("lineage", "split"),
        reads.tokens,
    ),
    Metric(
        "data_newest_dropped_ratio",
        "share",
        "Documents of the partition prepared last that are not used, copies not counted as such.",
        ("lineage",),
        reads.newest_dropped,
    ),
    Metric(
        "data_newest_unknown_ratio",
        "share",
        "Tokens of the partition prepared last that the vocabulary does not know.",
        ("lineage",),
        reads.newest_unknown,
    ),
    Metric(
        "lineage_lease_held",
        "",
        "1 while a run holds the lineage, else 0.",
        ("lineage",),
        reads.lease_held,
    ),
    Metric(
        "lineage_lease_acquired_timestamp_seconds",
        TIME,
        "Since when the run that holds the lineage has it.",
        ("lineage",),
        reads.lease_acquired,
    ),
    Metric(
        "lineage_lease_expiry_timestamp_seconds",
        TIME,
        "When the run that holds the lineage should be done with it.",
        ("lineage",),
        reads.lease_expiry,
    ),
    Metric(
        "lineage_waiting_runs",
        "",
        "Runs that wait for the lineage.",
        ("lineage",),
        reads.waiting_runs,
    ),
    Metric(
        "lineage_waiting_oldest_timestamp_seconds",
        TIME,
        "Since when the run that waits longest for the lineage does.",
        ("lineage",),
        reads.waiting_oldest,
    ),
    Metric(
        "model_info",
        "",
        "1, with the version that is in use.",
        ("lineage", "version"),
        reads.model_info,
    ),
    Metric(
        "model_promotion_timestamp_seconds",
        TIME,
        "When the version in use came into use.",
        ("lineage",),
        reads.promoted,
    ),
    Metric(
        "model_partitions",
        "",
        "Partitions that the version in use has seen.",
        ("lineage",),
        reads.partitions,
    ),
    Metric(
        "model_loss_nats",
        "nats per token",
        "Losses around the version in use: in_use, baseline and unigram on the held-out documents "
        "that it won on, training at the end of its training.",
        ("lineage", "of"),
        reads.model_loss,
    ),
    Metric(
        "corpus_waiting_partitions",
        "",
        "Partitions of the corpus, new or changed, that no run was started for as they are now.",
        (),
        reads.waiting_partitions,
    ),
    Metric(
        "corpus_waiting_oldest_timestamp_seconds",
        TIME,
        "Since when the one of them that waits longest does.",
        (),
        reads.waiting_partition_oldest,
    ),
    Metric(
        "corpus_grown_timestamp_seconds",
        TIME,
        "When the watch last saw a partition that was not there before.",
        (),
        reads.corpus_grown,
    ),
    Metric(
        "watch_pass_timestamp_seconds",
        TIME,
        "Last pass of pipeline_watch, which tells people what is wrong.",
        (),
        reads.watch_pass,
    ),
    Metric(
        "watch_problems",
        "",
        "What that pass could not look at.",
        (),
        reads.watch_problems,
    ),
    Metric(
        "reaper_pass_timestamp_seconds",
        TIME,
        "Last pass of the reaper, which deletes TPUs that nobody releases.",
        ("owner", "project"),
        reads.reaper_pass,
    ),
    Metric(
        "reaper_problems",
        "",
        "What that pass could not do.",
        ("owner", "project"),
        reads.reaper_problems,
    ),
    Metric(
        "alerts_open",
        "",
        "Alerts that have not cleared; of causes whose end nobody records those of the last day.",
        ("cause", "severity", "lineage", "dag"),
        reads.alerts_open,
    ),
    Metric(
        "store_read_errors_total",
        "",
        "Files of the store that could not be read since the exporter began, by what for.",
        ("source",),
        reads.read_errors,
        Kind.COUNTER,
    ),
    Metric(
        "store_unreadable",
        "",
        "The same of the last reading alone.",
        ("source",),
        reads.unreadable,
    ),
    Metric(
        "store_read_duration_seconds",
        "seconds",
        "How long the last reading of the store took.",
        (),
        reads.read_duration,
    ),
    Metric(
        "store_read_timestamp_seconds",
        TIME,
        "When it began.",
        (),
        reads.read_time,
    ),
)
