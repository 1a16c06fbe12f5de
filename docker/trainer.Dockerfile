# What a job needs to run: the trainer's locked packages. The code itself is not in the image; a TPU VM
# gets it as a bundle, verified by hash, so that every attempt of a run executes the same code.
#
#   docker build -f docker/trainer.Dockerfile -t bert-trainer .
#   docker run --rm -v "$PWD:/code:ro" -w /code bert-trainer -m training.train --help
FROM debian:12.11-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv=3.11.2-1+b1 \
    && rm -rf /var/lib/apt/lists/*
COPY docker/requirements-training.txt /tmp/requirements.txt
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt

FROM debian:12.11-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3=3.11.2-1+b1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 trainer
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
USER 10001
ENTRYPOINT ["python"]
