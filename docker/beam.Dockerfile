# What Dataflow's workers run: the data job with the locked packages that it was tested with. The
# pushed image, by digest, goes into beam.sdk_container_image.
#
#   docker build -f docker/beam.Dockerfile -t REGION-docker.pkg.dev/PROJECT/REPOSITORY/bert-data .
#
# Its code must be the launcher's: build it from the same commit as docker/airflow.Dockerfile.
ARG BASE=docker.io/library/debian:12.11-slim@sha256:b1a741487078b369e78119849663d7f1a5341ef2768798f7b7406c4240f86aef
# Only the program that starts a worker is taken from Beam's own image, of the version that
# requirements-beam.txt pins. Give its digest where images have to be reproducible to the byte.
ARG BEAM_SDK_IMAGE=docker.io/apache/beam_python3.11_sdk:2.77.0

FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv=3.11.2-1+b1 \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/pip \
    && python3 -m venv --without-pip /opt/venv
COPY docker/requirements-beam.txt /tmp/requirements.txt
# The lock is complete, so nothing is resolved. Like uv, which made it, pip must not heed upper bounds of
# Python's version. How to reach packages may come from outside, and does not stay.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca.crt \
    /opt/pip/bin/pip --python /opt/venv/bin/python install --no-cache-dir --no-compile --no-deps \
        --ignore-requires-python --require-hashes -r /tmp/requirements.txt \
    && /opt/pip/bin/pip --python /opt/venv/bin/python check
COPY docker/trim-packages /tmp/trim-packages
RUN /tmp/trim-packages /opt/venv

# All but that program: what is built and tried where Beam's image cannot be had.
FROM ${BASE} AS worker
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates=20250419* python3=3.11.2-1+b1 \
    && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/*.log /var/cache/ldconfig/aux-cache
COPY --from=build /opt/venv /opt/venv
WORKDIR /opt/repretraining
COPY beam_jobs beam_jobs
COPY corpus corpus
COPY pipeline_config pipeline_config
COPY pipeline_store pipeline_store
RUN python3 -m compileall -q --invalidation-mode checked-hash .
# The worker must not get an empty environment of its own, as it does by default.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/repretraining \
    RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
# Fails here, not on a worker, if a module or a package is missing.
RUN python -m beam_jobs.prepare_corpus --help > /dev/null
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="bert-data" \
      org.opencontainers.image.description="The data job's worker on Dataflow: text to masked-LM records" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"

FROM ${BEAM_SDK_IMAGE} AS beam

FROM worker
COPY --from=beam /opt/apache/beam /opt/apache/beam
# No USER: the folder in which Dataflow hands the worker its files (/var/opt/google) belongs to root.
ENTRYPOINT ["/opt/apache/beam/boot"]
