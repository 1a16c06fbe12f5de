"""Constant facts about the Cloud TPU API; a separate module, since the client loads slowly."""

from __future__ import annotations

from tpu_lifecycle.service.backend import ServiceFacts

FACTS = ServiceFacts(
    title="Cloud TPU API",
    apis=("tpu.googleapis.com",),
    role="roles/tpu.admin",
    # The role has no permissions for queued resources: those for nodes apply to both.
    # https://cloud.google.com/iam/docs/roles-permissions/tpu
    permissions=(
        "tpu.nodes.create",
        "tpu.nodes.delete",
        "tpu.nodes.get",
        "tpu.nodes.list",
        "tpu.operations.get",
    ),
    console="https://console.cloud.google.com/compute/tpus/details/{zone}/{id}?project={project}",
    quota_api="tpu.googleapis.com",
    quota_names={"v5litepod": "v5s-litepod"},
    # Images of one generation: https://cloud.google.com/tpu/docs/runtimes. Others boot on several,
    # and a zone lists those of all its generations together.
    image_families={
        "v2-alpha-tpuv5-lite": "v5litepod",
        "v2-alpha-tpuv5": "v5p",
        "v2-alpha-tpuv6e": "v6e",
    },
    bare_images=("v2-alpha-", "tpu-ubuntu", "tpu-vm-"),
    list_zones="gcloud compute tpus locations list",
    list_types="gcloud compute tpus accelerator-types list --zone={zone}",
    list_images="gcloud compute tpus versions list --zone={zone}",
)
