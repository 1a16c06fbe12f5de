"""Signatures of job specs: a TPU VM runs what the orchestrator wrote, and nothing else.

HMAC-SHA256 over the bytes of the job's file, by a key that orchestrator and VM share. The file
names its attempt's token and its job, so that a signature is of no use to another attempt or job.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from pipeline_store.formats import FormatError, JobSignature
from pipeline_store.layout import AttemptLayout


def new_key() -> str:
    """Return a random key, as 64 hexadecimal digits."""
    return secrets.token_hex(32)


def sign(mailbox: AttemptLayout, job_id: str, spec: bytes, key: str) -> None:
    """Put the signature of a job's file into the mailbox; before the file, which counts at once.

    It is named by the file's content: whoever signs another version of the file at the same time
    does not replace it.
    """
    sha256 = hashlib.sha256(spec).hexdigest()
    signature = JobSignature(job_id=job_id, spec_sha256=sha256, hmac_sha256=_hmac(spec, key))
    signature.write(mailbox.signature(job_id, sha256))


def require_signed(mailbox: AttemptLayout, job_id: str, spec: bytes, key: str | None) -> None:
    """Refuse a job's file without a signature by the key.

    :param key: None: nobody gave this VM one, so that nothing can be signed for it.
    :raises FormatError: the signature is missing, damaged or another one.
    """
    if not key:
        raise FormatError(
            "this VM was given no key to tell by whom it was written: its node has no metadata "
            "'job-key'. Clear the reserve task."
        )
    place = mailbox.signature(job_id, hashlib.sha256(spec).hexdigest())
    found = JobSignature.load_or_none(place)
    if found is None:
        raise FormatError(
            f"it is not signed: there is no {place}. Only the task that rents this TPU writes its "
            "jobs. Find out who else may write in this folder."
        )
    if not hmac.compare_digest(found.hmac_sha256, _hmac(spec, key)):
        raise FormatError(
            f"{place} was not made with this TPU's key. Only the task that rents this TPU writes "
            "its jobs. Find out who else may write in this folder."
        )


def _hmac(spec: bytes, key: str) -> str:
    return hmac.new(key.encode(), spec, hashlib.sha256).hexdigest()
