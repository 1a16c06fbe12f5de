"""Rules that combine settings of the TPU, the data job and the budget, for all kinds of runs."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_config.accelerators import chips, region_of
from pipeline_config.rental_schema import RentalConfig
from pipeline_config.schema import PipelineConfig

_ROUNDED = 1 + 1e-9
"""Tolerance for rounding when a cost is compared with the limit it was derived from."""


def _dataflow_is_complete(config: RentalConfig) -> Iterator[str]:
    """Dataflow has its region, image and folder."""
    if config.beam.runner != "DataflowRunner":
        return
    for name in ("region", "temp_location", "sdk_container_image"):
        if getattr(config.beam, name) is None:
            yield f"beam.{name}: DataflowRunner needs it; see docs/reference/data.md."


def _one_region(config: RentalConfig) -> Iterator[str]:
    """Dataflow works in the TPU's region, as the bucket does, unless others are allowed."""
    region = config.beam.region
    away = [zone for zone in config.tpu.zones if region_of(zone) != region]
    is_allowed = config.tpu.allow_other_regions
    if config.beam.runner == "DataflowRunner" and region is not None and away and not is_allowed:
        yield (
            f"beam.region: {region} is not the region of tpu.zones {', '.join(away)}; reading "
            "records across regions is slow and billed."
        )


def _silence_is_longer_than_a_beat(config: RentalConfig) -> Iterator[str]:
    """A single late heartbeat is not a lost worker."""
    tpu = config.tpu
    if tpu.heartbeat_timeout_seconds < 3 * tpu.heartbeat_interval_seconds:
        yield (
            f"tpu.heartbeat_timeout_seconds: {tpu.heartbeat_timeout_seconds} is less than three "
            f"times tpu.heartbeat_interval_seconds={tpu.heartbeat_interval_seconds}; one late "
            "heartbeat would count as a lost worker."
        )


def _lease_outlasts_a_look(config: RentalConfig) -> Iterator[str]:
    """A TPU that somebody waits for does not delete itself between two looks."""
    tpu = config.tpu
    if tpu.lease_timeout_seconds < 3 * tpu.poll_interval:
        yield (
            f"tpu.lease_timeout_seconds: {tpu.lease_timeout_seconds} is less than three times "
            f"tpu.poll_interval={tpu.poll_interval}; the TPU VM could delete its TPU between two "
            "looks at it."
        )


def _zones_are_different(config: RentalConfig) -> Iterator[str]:
    """No zone is listed twice."""
    zones = config.tpu.zones
    if twice := sorted({zone for zone in zones if zones.count(zone) > 1}):
        yield (
            f"tpu.zones: {', '.join(twice)} is listed more than once; each zone is asked once a "
            "round, so name it once."
        )


def _disks_are_in_the_zone(config: RentalConfig) -> Iterator[str]:
    """Attached disks are in the one zone that is asked."""
    tpu = config.tpu
    places = {disk.split("/")[3] for disk in tpu.data_disks}
    if places and places != set(tpu.zones):
        yield (
            f"tpu.data_disks: disks in {', '.join(sorted(places))}, but tpu.zones asks for "
            f"{', '.join(tpu.zones)}; a TPU can only use disks of its own zone, so name that zone "
            "alone."
        )


def _reservation_is_asked_for(config: RentalConfig) -> Iterator[str]:
    """Reserved TPUs of the queue need the reservation's name, and nothing else has one."""
    tpu = config.tpu
    if tpu.reservation_name and tpu.provisioning_model != "reserved":
        yield (
            f"tpu.reservation_name: {tpu.reservation_name} is named, but tpu.provisioning_model="
            f"{tpu.provisioning_model}; set it to reserved, or leave the name empty."
        )
    if tpu.provisioning_model == "reserved" and not tpu.reservation_name and tpu.api != "nodes":
        yield (
            "tpu.reservation_name: empty, so that tpu.provisioning_model=reserved would ask the "
            "queue for capacity at the price of on-demand; name the reservation, or use "
            "tpu.api=nodes, which takes from any."
        )
    if tpu.reservation_name and tpu.api == "nodes":
        yield (
            f"tpu.reservation_name: {tpu.reservation_name} cannot be named with tpu.api=nodes; use "
            "queued-resources, or leave the name empty."
        )


def _waiting_leaves_time_to_train(config: RentalConfig) -> Iterator[str]:
    """Waiting for one TPU does not use up budget.max_hours."""
    tpu, seconds = config.tpu, config.budget.max_hours * 3600
    waiting = tpu.queue_timeout_seconds + tpu.boot_timeout_seconds
    if waiting >= seconds:
        yield (
            f"tpu.queue_timeout_seconds: {tpu.queue_timeout_seconds} s in the queue and "
            f"tpu.boot_timeout_seconds={tpu.boot_timeout_seconds} leave nothing of "
            f"budget.max_hours={config.budget.max_hours} ({seconds:.0f} s); shorten the waits or "
            "raise budget.max_hours."
        )


def _cost_stays_in_budget(config: RentalConfig) -> Iterator[str]:
    """The dearest possible outcome is within budget.max_cost, unless steps are decided by it."""
    budget = config.budget
    worst = worst_case_cost(config)
    # With auto steps, max_cost decides their number and limits the chip-hours.
    is_auto = isinstance(config, PipelineConfig) and config.training.train_steps == "auto"
    if budget.max_cost is not None and worst > _ROUNDED * budget.max_cost and not is_auto:
        yield (
            f"budget.max_cost: {budget.max_hours} hours of {config.tpu.accelerator_type} (or "
            f"budget.max_chip_hours={budget.max_chip_hours}) at "
            f"{budget.price_per_chip_hour} {budget.currency} a chip-hour ({budget.price_date}) "
            f"can cost {worst:.2f}, over the limit of {budget.max_cost:.2f}; lower "
            "budget.max_hours or raise the limit."
        )


def worst_case_cost(config: RentalConfig) -> float:
    """Return the most that the run's TPUs can cost: an upper estimate.

    The whole of budget.max_hours, or budget.max_chip_hours if that is less.
    """
    budget = config.budget
    chip_hours = budget.max_hours * chips(config.tpu.accelerator_type) * config.tpu.slice_count
    if budget.max_chip_hours is not None:
        chip_hours = min(chip_hours, budget.max_chip_hours)
    return chip_hours * budget.price_per_chip_hour


# The first line of each rule's docstring is its entry in docs/reference/config.md.
RENTAL_RULES = (
    _dataflow_is_complete,
    _one_region,
    _silence_is_longer_than_a_beat,
    _lease_outlasts_a_look,
    _zones_are_different,
    _disks_are_in_the_zone,
    _reservation_is_asked_for,
    _waiting_leaves_time_to_train,
    _cost_stays_in_budget,
)
