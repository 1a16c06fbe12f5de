# Airflow with the DAGs, the operators, the data job and, for the export of models, TensorFlow. Every
# Airflow component runs this image.
#
#   docker build -f docker/airflow.Dockerfile -t bert-repretraining .
FROM debian:12.11-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv=3.11.2-1+b1 \
    && rm -rf /var/lib/apt/lists/*
COPY docker/requirements-airflow.txt /tmp/requirements.txt
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt

FROM debian:12.11-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3=3.11.2-1+b1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 airflow
COPY --from=build /opt/venv /opt/venv
WORKDIR /opt/repretraining
COPY beam_jobs beam_jobs
COPY dags dags
COPY mlm_records mlm_records
COPY model_registry model_registry
COPY pipeline_alerts pipeline_alerts
COPY pipeline_config pipeline_config
COPY pipeline_store pipeline_store
COPY plugins plugins
COPY preflight preflight
COPY tpu_agent tpu_agent
COPY tpu_compile_check tpu_compile_check
COPY tpu_lifecycle tpu_lifecycle
COPY training training
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/repretraining \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/repretraining/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/repretraining/plugins \
    AIRFLOW__CORE__LOAD_EXAMPLES=false
USER 10001
ENTRYPOINT ["airflow"]
