"""Signatures of job specs, so that a TPU VM runs only what the orchestrator wrote.

HMAC-SHA256 over the bytes of the job's file, with a key that orchestrator and VM share. The file
names its attempt's token and its job, so a signature is useless for another attempt or job.
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
    """Write the signature of a job's file to the mailbox; call this before writing the file.

    The file takes effect as soon as it exists. The signature is named by the hash of its content,
    so a concurrent signer of another version of the file does not replace it.
    """
    sha256 = hashlib.sha256(spec).hexdigest()
    signature = JobSignature(job_id=job_id, spec_sha256=sha256, hmac_sha256=_hmac(spec, key))
    signature.write(mailbox.signature(job_id, sha256))


def require_signed(mailbox: AttemptLayout, job_id: str, spec: bytes, key: str | None) -> None:
    """Refuse a job's file that is not signed with the key.

    :param key: None if this VM was given no key, so that nothing can be signed for it.
    :raises FormatError: the signature is missing, damaged or made with another key.
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
