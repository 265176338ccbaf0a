# make verify      every kernel on every leg of this machine, byte for byte   (k=STEM narrows it)
# make test-cpu    all tests                                                  (k=EXPRESSION narrows it)
# make test-gpu    on a CUDA machine: record and compare, then all tests
# PYTHON=python3   uses that Python as it is and installs nothing; otherwise .venv is made and filled from requirements.lock

VENV := .venv
ifdef PYTHON
PY := $(PYTHON)
READY :=
else
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
endif
k ?=

.PHONY: verify test-cpu test-gpu compile-check compile-check-all exhaustive lint clean

verify: $(READY)
	$(PY) -m tools verify $(k)

test-cpu: $(READY)
	$(PY) -m pytest -n auto $(if $(k),-k "$(k)") tests

test-gpu: $(READY)
	$(PY) -m tools verify --require gpu --record $(k)
	$(PY) -m pytest -n auto $(if $(k),-k "$(k)") tests

compile-check: $(READY)
	$(PY) -m tools compile-check $(k)

compile-check-all: $(READY)
	$(PY) -m tools compile-check --all $(k)

exhaustive: $(READY)
	$(PY) -m tools exhaustive

lint: $(READY)
	$(PY) -m ruff check .

clean:
	rm -rf .cache build *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -exec rm -rf {} +

$(VENV)/.ready: requirements.lock pyproject.toml
	python3 -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet -r requirements.lock
	$(VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@
