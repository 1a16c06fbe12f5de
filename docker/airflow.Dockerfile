# Airflow with the DAGs, the operators, the data job and, for the export of models, TensorFlow. Every
# Airflow component runs this image.
#
#   docker build -f docker/airflow.Dockerfile -t bert-repretraining .
#
# No HEALTHCHECK: each component has its own, which whoever starts it gives (docs/guides/containers.md).
ARG BASE=docker.io/library/debian:12.11-slim@sha256:b1a741487078b369e78119849663d7f1a5341ef2768798f7b7406c4240f86aef

FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv=3.11.2-1+b1 \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/pip \
    && python3 -m venv --without-pip /opt/venv
COPY docker/requirements-airflow.txt /tmp/requirements.txt
# The lock is complete, so nothing is resolved. Like uv, which made it, pip must not heed upper bounds of
# Python's version. How to reach packages may come from outside, and does not stay.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca.crt \
    /opt/pip/bin/pip --python /opt/venv/bin/python install --no-cache-dir --no-compile --no-deps \
        --ignore-requires-python --require-hashes -r /tmp/requirements.txt \
    && /opt/pip/bin/pip --python /opt/venv/bin/python check
# Such as EXTRAS="mlflow openlineage": what only some installations use.
ARG EXTRAS=""
COPY requirements-mlflow.txt requirements-openlineage.txt /tmp/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca.crt \
    for extra in ${EXTRAS}; do \
        /opt/pip/bin/pip --python /opt/venv/bin/python install --no-cache-dir --no-compile --no-deps \
            --ignore-requires-python --require-hashes -r "/tmp/requirements-${extra}.txt" || exit 1; \
    done \
    && /opt/pip/bin/pip --python /opt/venv/bin/python check
COPY docker/trim-packages /tmp/trim-packages
RUN /tmp/trim-packages /opt/venv

# The documentation as a site, which the pages show beside Airflow.
FROM build AS docs
COPY requirements-docs.txt /tmp/requirements-docs.txt
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca.crt \
    python3 -m venv --without-pip /opt/docs \
    && /opt/pip/bin/pip --python /opt/docs/bin/python install --no-cache-dir --no-deps --require-hashes \
        -r /tmp/requirements-docs.txt
WORKDIR /opt/pages
COPY mkdocs.yml mkdocs.yml
COPY scripts/mkdocs_hooks.py scripts/mkdocs_hooks.py
COPY docs docs
RUN /opt/docs/bin/mkdocs build --quiet --strict

FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates=20250419* python3=3.11.2-1+b1 tini=0.19.0-1+b3 \
    && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/*.log /var/cache/ldconfig/aux-cache
RUN useradd --create-home --no-log-init --uid 10001 airflow
COPY --from=build /opt/venv /opt/venv
WORKDIR /opt/repretraining
COPY --from=docs /opt/pages/site site
COPY beam_jobs beam_jobs
COPY corpus corpus
COPY dags dags
COPY model_registry model_registry
COPY pipeline_alerts pipeline_alerts
COPY pipeline_config pipeline_config
COPY pipeline_metrics pipeline_metrics
COPY pipeline_mirror pipeline_mirror
COPY pipeline_store pipeline_store
COPY plugins plugins
COPY preflight preflight
COPY tpu_agent tpu_agent
COPY tpu_lifecycle tpu_lifecycle
COPY trained_models trained_models
COPY training training
RUN python3 -m compileall -q --invalidation-mode checked-hash .
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/repretraining \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/repretraining/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/repretraining/plugins \
    AIRFLOW__CORE__LOAD_EXAMPLES=false
USER 10001
ENTRYPOINT ["tini", "--", "airflow"]
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="bert-repretraining" \
      org.opencontainers.image.description="Airflow with the DAGs that keep a BERT up to date on Cloud TPUs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
