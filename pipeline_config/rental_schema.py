"""Settings of the TPU that a run rents: type, budget and hang limits."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

from pydantic import Field

from pipeline_config import patterns
from pipeline_config.data_schema import BeamConfig
from pipeline_config.sections import Fraction, Mark, Section


class TpuConfig(Section):
    """The TPU to rent (names as in the Cloud TPU API)."""

    accelerator_type: str = Field(
        "v5litepod-8",
        pattern=patterns.ACCELERATOR_TYPE,
        description="Such as v5litepod-8. v5litepod-1, -4 and -8 are one host.",
    )
    runtime_version: str = Field(
        "v2-alpha-tpuv5-lite",
        pattern=patterns.RUNTIME_VERSION,
        description="Software image of the TPU VM, such as v2-alpha-tpuv5-lite.",
    )
    container_image: Annotated[str | None, Mark.BY_INSTALLATION] = Field(
        None,
        pattern=patterns.TPU_IMAGE,
        description="Image that agent and trainer run in, bert-trainer-tpu, by its digest: "
        "NAME@sha256:DIGEST. Empty: the VM's own Python has all they need, as an emulator's.",
    )
    zones: list[Annotated[str, Field(pattern=patterns.ZONE)]] = Field(
        ["us-central1-a"],
        min_length=1,
        max_length=20,
        description="Zones to try, in order, such as us-central1-a. Asked again after a round, "
        "those that had none are asked in random order. All in the bucket's region, but with "
        "tpu.allow_other_regions.",
    )
    allow_other_regions: bool = Field(
        False,
        description="Rent outside the bucket's region too: slower, and each byte that crosses is "
        "paid, at budget.price_per_egress_gb.",
    )
    zone_cooldown_seconds: float = Field(
        600.0,
        ge=0.0,
        le=86_400.0,
        description="After a stockout a zone is asked last for so long, by other runs too.",
    )
    api: Literal["queued-resources", "nodes"] = Field(
        "queued-resources",
        description="How to ask: queued-resources wait for capacity; nodes (the older way) come at "
        "once or not at all.",
    )
    slice_count: int = Field(
        1, ge=1, le=256, description="Slices of this type in one request; more than 1: multislice."
    )
    provisioning_model: Literal["on-demand", "spot", "reserved"] = Field(
        "on-demand", description="spot is cheaper and may be taken away at any time."
    )
    reservation_name: Annotated[str | None, Mark.BY_INSTALLATION] = Field(
        None,
        pattern=patterns.RESERVATION,
        description="Reservation to rent from, with provisioning_model reserved; empty only with "
        "api nodes, which takes from any.",
    )
    network: Annotated[str | None, Mark.BY_INSTALLATION] = Field(
        None, description="VPC network; empty: the project's default."
    )
    subnetwork: Annotated[str | None, Mark.BY_INSTALLATION] = Field(
        None, description="Subnetwork; needs Private Google Access."
    )
    enable_external_ips: Annotated[bool, Mark.BY_INSTALLATION] = Field(
        False, description="Give the TPU VM public addresses."
    )
    service_account: Annotated[str | None, Mark.BY_INSTALLATION] = Field(
        None, description="Account of the TPU VM; empty: the project's default compute account."
    )
    network_tags: Annotated[
        list[Annotated[str, Field(pattern=patterns.NETWORK_TAG)]],
        Mark.BY_INSTALLATION,
    ] = Field([], max_length=64, description="Network tags of the TPU VM, for firewall rules.")
    data_disks: Annotated[
        list[Annotated[str, Field(pattern=patterns.DISK)]],
        Mark.BY_INSTALLATION,
    ] = Field(
        [],
        max_length=8,
        description="Existing disks to attach, read-only, such as projects/p/zones/z/disks/d. A "
        "disk is of one zone, so they need a single entry in tpu.zones.",
    )
    disk_gigabytes: Annotated[int, Mark.BY_INSTALLATION] = Field(
        100,
        ge=10,
        le=100_000,
        description="Size of a TPU VM's own disk, which the API lets nobody choose; what a run "
        "copies there has to fit.",
    )
    queue_timeout_seconds: int = Field(
        3600, ge=60, le=604_800, description="Longest wait for capacity in one zone."
    )
    boot_timeout_seconds: int = Field(
        900, ge=10, le=7200, description="Longest time from READY to the agent's first sign."
    )
    heartbeat_interval_seconds: float = Field(
        30.0, ge=0.5, le=300.0, description="Seconds between two signs of life of the agent."
    )
    heartbeat_timeout_seconds: float = Field(
        300.0, ge=5.0, le=7200.0, description="Silence after which a worker counts as lost."
    )
    poll_interval: float = Field(
        30.0, ge=0.5, le=600.0, description="Seconds between two looks at TPU and mailbox."
    )
    delete_grace_seconds: float = Field(
        90.0,
        ge=0.0,
        le=3600.0,
        description="Wait between the two sweeps of the delete task: longer than a create call "
        "and the killing of its process can take.",
    )
    lease_timeout_seconds: float = Field(
        7200.0,
        ge=5.0,
        le=604_800.0,
        description="The TPU VM deletes its own TPU when nobody has renewed its lease for so long "
        "(and 10 polls) and its job makes no progress: so long may Airflow be away.",
    )


class BudgetConfig(Section):
    """What a run may use before it is stopped."""

    max_hours: float = Field(
        24.0, gt=0.0, le=720.0, description="Hours from reservation after which no TPU remains."
    )
    max_preemptions: int = Field(
        10, ge=0, le=1000, description="Lost TPUs that are replaced, resuming from a checkpoint."
    )
    max_failures: int = Field(
        2, ge=0, le=100, description="Times a killed trainer is started again on the same TPU."
    )
    max_hangs: int = Field(
        3, ge=0, le=100, description="Times a hung job is started again on the same TPU."
    )
    max_stalled_attempts: int = Field(
        3,
        ge=1,
        le=100,
        description="Lost TPUs in a row without a new checkpoint, after which the run fails. Those "
        "that the service takes away do not count.",
    )
    max_lineage_wait_hours: float = Field(
        168.0,
        gt=0.0,
        le=720.0,
        description="Longest wait, without a TPU, for another run of the lineage to end.",
    )
    alert_fraction: Fraction = Field(
        0.8,
        description="Share of max_preemptions, max_chip_hours or max_hours whose use is reported.",
    )
    max_chip_hours: float | None = Field(
        None,
        gt=0.0,
        description="When the reservation's TPUs were rented for so many chip-hours, the one in "
        "use is deleted and there is no further one; empty: max_hours alone limits.",
    )
    max_cost: float | None = Field(
        None,
        gt=0.0,
        description="Most that a run may cost at price_per_chip_hour; empty: no limit. A run that "
        "could cost more by max_hours and max_chip_hours is refused, unless training.train_steps "
        "is auto: then this limits steps and chip-hours, like max_chip_hours.",
    )
    price_per_chip_hour: Annotated[float, Mark.BY_INSTALLATION] = Field(
        1.2, ge=0.0, le=1000.0, description="Your price; look it up, prices change."
    )
    price_per_egress_gb: Annotated[float, Mark.BY_INSTALLATION] = Field(
        0.02,
        ge=0.0,
        le=1000.0,
        description="Your price of a GB between the regions of bucket and TPU, in the estimate "
        "with tpu.allow_other_regions; not in max_cost. Within North America 0.02; look it up.",
    )
    on_demand_price_per_chip_hour: Annotated[float | None, Mark.BY_INSTALLATION] = Field(
        None,
        ge=0.0,
        le=1000.0,
        description="Of the same chips on demand, where your price is of another kind: what it "
        "saves is counted against this; empty: not counted.",
    )
    currency: Annotated[str, Mark.BY_INSTALLATION] = Field(
        "USD", pattern=patterns.CURRENCY, description="Currency of the prices."
    )
    price_date: Annotated[str, Mark.BY_INSTALLATION] = Field(
        "2026-01", pattern=patterns.MONTH_OR_DAY, description="When the price was looked up."
    )

    @property
    def chip_hours_limit(self) -> tuple[str, float] | None:
        """Return the setting that limits chip-hours most, and its limit; None: no setting does."""
        limits = []
        if self.max_cost is not None and self.price_per_chip_hour:
            limits.append(("budget.max_cost", self.max_cost / self.price_per_chip_hour))
        if self.max_chip_hours is not None:
            limits.append(("budget.max_chip_hours", self.max_chip_hours))
        return min(limits, key=lambda limit: limit[1], default=None)


class HangConfig(Section):
    """For how long nothing may move in a job before it is ended and started again."""

    loop_floor_seconds: float = Field(
        120.0,
        ge=1.0,
        le=86_400.0,
        description="A loop of steps hangs after so long or, if that is longer, after 6 times the "
        "slowest of the last 20, at most what the first loop has.",
    )
    first_loop_seconds: float = Field(
        3600.0,
        ge=1.0,
        le=86_400.0,
        description="The first loop after a start, or of longer rows: it compiles.",
    )
    save_seconds: float = Field(
        1200.0, ge=1.0, le=86_400.0, description="Saving, and waiting for the save before."
    )
    restore_seconds: float = Field(
        1800.0, ge=1.0, le=86_400.0, description="Loading weights or a checkpoint."
    )
    data_seconds: float = Field(
        1800.0, ge=1.0, le=86_400.0, description="Copying and verifying one file of records."
    )
    evaluation_seconds: float = Field(
        1800.0,
        ge=1.0,
        le=86_400.0,
        description="One batch of rows that are scored, the first of which compiles, or one shard "
        "whose tokens are counted.",
    )
    other_seconds: float = Field(
        1800.0,
        ge=1.0,
        le=86_400.0,
        description="Anything else, such as starting and joining the hosts of a slice.",
    )


class RentalConfig(Protocol):
    """The settings that all kinds of runs share: of the data job, and of the TPU that they rent."""

    @property
    def beam(self) -> BeamConfig:
        """Return the settings of the data job."""

    @property
    def tpu(self) -> TpuConfig:
        """Return the settings of the TPU to rent."""

    @property
    def budget(self) -> BudgetConfig:
        """Return the budget."""

    @property
    def hang(self) -> HangConfig:
        """Return the limits after which a job counts as hung."""
