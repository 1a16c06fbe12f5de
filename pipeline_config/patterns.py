"""Patterns of text settings, each defined once and with a description in words."""

from __future__ import annotations

LANGUAGE = r"^[a-z]{2,3}$"
NAME = r"^[a-z][a-z0-9-]{0,39}$"
"""Name of a lineage or a labeled task: a folder name and part of keys."""
VERSION = r"^v-[0-9a-f]{12}$"
RUN_KEY = r"^[0-9a-f]{12}$"
CHILD = (
    r"^(student|trim|student\+trim|((student|trim|student\+trim)\+)?"
    r"tflite_(float32|float16|dynamic_range))$"
)
"""Name of a smaller model: its steps, see :mod:`pipeline_config.compression`."""
STEPS = r"^(auto|[1-9][0-9]{0,8})$"
REGION = r"^[a-z]+-[a-z]+[0-9]+$"
ZONE = r"^[a-z]+-[a-z]+[0-9]+-[a-z]$"
BUCKET_FOLDER = r"^gs://"
WORKER_IMAGE = r"@sha256:[0-9a-f]{64}$"
TPU_IMAGE = r"^[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}$"
ACCELERATOR_TYPE = r"^[a-z0-9]+-[1-9][0-9]*$"
RUNTIME_VERSION = r"^[a-z0-9][a-z0-9.-]*$"
RESERVATION = r"^(projects/[^/]+/locations/[^/]+/reservations/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"
NETWORK_TAG = r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"
DISK = r"^projects/[^/]+/zones/[^/]+/disks/[a-z][-a-z0-9]{0,62}$"
CURRENCY = r"^[A-Z]{3}$"
MONTH_OR_DAY = r"^\d{4}-\d{2}(-\d{2})?$"

IN_WORDS = {
    LANGUAGE: "two or three small letters",
    NAME: "small letters, digits and hyphens, at most 40, the first a letter",
    VERSION: "v- and 12 hexadecimal digits, such as v-0a1b2c3d4e5f",
    RUN_KEY: "12 hexadecimal digits, such as 0a1b2c3d4e5f",
    CHILD: "some of student, trim, and one of tflite_float32, tflite_float16, "
    "tflite_dynamic_range, in this order, joined by +",
    STEPS: "or auto",
    REGION: "a region of Google Cloud, such as us-central1",
    ZONE: "a zone of Google Cloud, such as us-central1-a",
    BUCKET_FOLDER: "begins with gs://",
    WORKER_IMAGE: "ends with @sha256: and the 64 hexadecimal digits of the digest",
    TPU_IMAGE: "an image's name in small letters, then @sha256: and the 64 hexadecimal digits of "
    "the digest",
    ACCELERATOR_TYPE: "a TPU type, a hyphen and a number, such as v5litepod-8",
    RUNTIME_VERSION: "small letters, digits, dots and hyphens, the first a letter or a digit",
    RESERVATION: "the reservation's name, or "
    "projects/PROJECT/locations/ZONE/reservations/NAME; the name has small letters, digits and "
    "hyphens, at most 63",
    NETWORK_TAG: "small letters, digits and hyphens, at most 63, the first a letter, the last no "
    "hyphen",
    DISK: "projects/PROJECT/zones/ZONE/disks/NAME",
    CURRENCY: "three capital letters, such as USD",
    MONTH_OR_DAY: "a month or a day, such as 2026-01 or 2026-01-31",
}
"""Description of each pattern for documentation and error messages."""
