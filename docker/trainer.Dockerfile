# What a job needs to run: the trainer's locked packages. The code itself is not in the image; a TPU VM
# gets it as a bundle, verified by hash, so that every attempt of a run executes the same code.
#
#   docker build -f docker/trainer.Dockerfile -t bert-trainer .
#   docker run --rm -v "$PWD:/code:ro" -w /code bert-trainer -m training.train --help
#
# For TPU VMs, with the TensorFlow that knows TPUs in place of the one for CPUs:
#
#   docker build -f docker/trainer.Dockerfile --build-arg REQUIREMENTS=requirements-tpu.txt -t bert-trainer-tpu .
ARG BASE=docker.io/library/debian:12.11-slim@sha256:b1a741487078b369e78119849663d7f1a5341ef2768798f7b7406c4240f86aef

FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv=3.11.2-1+b1 \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/pip \
    && python3 -m venv --without-pip /opt/venv
ARG REQUIREMENTS=requirements-training.txt
COPY docker/${REQUIREMENTS} /tmp/requirements.txt
# The lock is complete, so nothing is resolved: of the TPU's packages, some ask for the TensorFlow that
# must not be there. Like uv, which made the lock, pip must not heed upper bounds of Python's version. How
# to reach packages may come from outside, and does not stay.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca.crt \
    /opt/pip/bin/pip --python /opt/venv/bin/python install --no-cache-dir --no-compile --no-deps \
        --ignore-requires-python --require-hashes -r /tmp/requirements.txt
COPY docker/trim-packages /tmp/trim-packages
RUN /tmp/trim-packages /opt/venv

FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates=20250419* python3=3.11.2-1+b1 tini=0.19.0-1+b3 \
    && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/*.log /var/cache/ldconfig/aux-cache
RUN useradd --create-home --no-log-init --uid 10001 trainer
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
USER 10001
ENTRYPOINT ["tini", "--", "python"]
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="bert-trainer" \
      org.opencontainers.image.description="The packages that BERT's trainer needs on a TPU VM" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
