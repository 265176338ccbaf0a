# make verify      every kernel on every leg of this machine, byte for byte   (k=STEM narrows it)
# make test-cpu    all tests                                                  (k=EXPRESSION narrows it)
# make test-gpu    on a CUDA machine: every case and the contract's functions on the GPU, compared and recorded   (k=STEM narrows it)
# make compile-check  build the tested specialisations with nvcc and audit the PTX, no GPU needed   (k=STEM narrows it)
# make record-sim  run on the simulator what is slow there and not yet known of these sources, and record it   (k=STEM narrows it)
# make exhaustive  the contract's functions over all 2^32 inputs
# make bench       time the kernels; on a GPU against the peers that are installed
# PYTHON=python3   uses that Python as it is and installs nothing; otherwise .venv is made and filled from requirements.lock

VENV := .venv
ifdef PYTHON
PY := $(PYTHON)
READY :=
TOOLKIT :=
else
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
TOOLKIT := .cache/toolkit/.ready
endif
k ?=
# Compiled Python is kept, also where the environment forbids it: pytest's rewriting of the tests takes seconds of every process.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: verify test-cpu test-gpu record-sim compile-check compile-check-all exhaustive bench lint clean

verify: $(READY)
	$(PY) -m tools verify $(k)

test-cpu: $(READY)
	$(PY) -m pytest -n auto $(if $(k),-k "$(k)") tests

test-gpu: $(READY)
	$(PY) -m tools verify --leg host --leg gpu --require gpu --record $(k)
	$(PY) -m tools verify --leg host --leg numba-gpu --record $(k)
	$(PY) -m tools exhaustive --target gpu --record

record-sim: $(READY)
	$(PY) -m tools verify --leg sim --require sim --record $(k)

compile-check: $(READY) $(TOOLKIT)
	$(PY) -m tools compile-check $(k)

compile-check-all: $(READY) $(TOOLKIT)
	$(PY) -m tools compile-check --all $(k)

exhaustive: $(READY)
	$(PY) -m tools exhaustive

bench: $(READY)
	$(PY) -m tools bench

lint: $(READY)
	$(PY) -m ruff check .

clean:
	rm -rf .cache build *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -exec rm -rf {} +

# A second nvcc, apart from .venv: a CUDA build of torch there would want another release of the same wheels.
.cache/toolkit/.ready: requirements-cuda.lock | $(READY)
	rm -rf .cache/toolkit
	$(PY) -m pip install --quiet --no-deps --target .cache/toolkit -r requirements-cuda.lock
	touch $@

# Without --no-compile pip compiles 8,700 modules, most of which are never imported.
$(VENV)/.ready: requirements.lock pyproject.toml
	python3 -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --no-compile -r requirements.lock
	$(VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@
