"""What a store needs: everything that a model in use, a kept version or a running job leads to."""

from __future__ import annotations

from model_registry.retention_data import DataNeeds
from model_registry.retention_finetuning import FinetuningNeeds
from model_registry.retention_keeping import Keeper, Needs
from model_registry.retention_policy import RetentionPolicy
from model_registry.retention_runs import RunNeeds
from model_registry.retention_survey import Survey
from model_registry.retention_versions import VersionNeeds
from pipeline_store.layout import StoreLayout


def find_needs(store: StoreLayout, survey: Survey, policy: RetentionPolicy) -> Needs:
    """Follow the records of a store and return all that must stay."""
    keeper = Keeper(store, survey, policy)
    finetunings = FinetuningNeeds(keeper)
    runs = RunNeeds(keeper, finetunings)
    runs.keep()
    for uri in policy.pinned:
        keeper.pin(uri, "it is pinned")
    finetunings.keep_newest()
    VersionNeeds(keeper).keep()
    # Last: what stays of data follows from all that names manifests.
    DataNeeds(keeper, list(runs.plans.values())).keep()
    return keeper.needs
