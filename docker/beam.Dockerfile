# What Dataflow's workers run: the data job with the locked packages that it was tested with. The name
# of the pushed image, best by digest, goes into beam.sdk_container_image.
#
#   docker build -f docker/beam.Dockerfile -t REGION-docker.pkg.dev/PROJECT/REPOSITORY/bert-data:TAG .
#
# Its code must be the launcher's: build it from the same commit as docker/airflow.Dockerfile.
#
# Only the program that starts a worker is taken from Beam's own image, of the version that
# requirements-beam.txt pins. Give its digest (docker buildx imagetools inspect) where images have to
# be reproducible to the byte.
FROM apache/beam_python3.11_sdk:2.77.0 AS beam

FROM debian:12.11-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv=3.11.2-1+b1 \
    && rm -rf /var/lib/apt/lists/*
COPY docker/requirements-beam.txt /tmp/requirements.txt
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt \
    && /opt/venv/bin/pip check

FROM debian:12.11-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3=3.11.2-1+b1 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=beam /opt/apache/beam /opt/apache/beam
COPY --from=build /opt/venv /opt/venv
WORKDIR /opt/repretraining
COPY beam_jobs beam_jobs
COPY mlm_records mlm_records
COPY pipeline_config pipeline_config
COPY pipeline_store pipeline_store
# The worker must not get an empty environment of its own, as it does by default.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/repretraining \
    RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
# Fails here, not on a worker, if a module or a package is missing.
RUN python -m beam_jobs.prepare_corpus --help > /dev/null
# No USER: the folder in which Dataflow hands the worker its files (/var/opt/google) belongs to root.
ENTRYPOINT ["/opt/apache/beam/boot"]
