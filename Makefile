# Two commands do everything on a fresh machine: `make run` and `make test`. They need Python >= 3.11, make and a C compiler.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
CORES ?= $(shell nproc 2>/dev/null || echo 2)
STUDY ?=
EXTRAS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SOURCES := workflow/scaleacross tests benchmarks
STUDY_CONFIG := $(if $(STUDY),--config study=$(STUDY))

.PHONY: run install test test-slow bench published lint format dag clean help

run: install  ## install, run the default study (or STUDY=name), print the winner and where the report is
	$(BIN)/snakemake --cores $(CORES) $(STUDY_CONFIG)
	@$(BIN)/scaleacross show $(STUDY)

install: $(VENV)/.installed $(EXTRAS:%=$(VENV)/.installed-extra-%)  ## the set-up alone; EXTRAS=slurm adds an extra of pyproject.toml

# mlc-chakra is installed without its dependencies: of it only the protobuf schema and protolib are used (see pyproject.toml).
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "E-PYTHON: $(PYTHON) is older than 3.11; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --constraint constraints.txt --no-deps mlc-chakra
	$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); print("\n".join(d for d in p["project"]["dependencies"] if not d.startswith("mlc-chakra")))' > $(VENV)/requirements.txt
	$(PIP) install --constraint constraints.txt --requirement $(VENV)/requirements.txt
	$(PIP) install --no-deps --editable .
	@touch $@

# `pip install -e '.[slurm]'` would bring mlc-chakra's dependencies along.
$(VENV)/.installed-extra-%: $(VENV)/.installed
	$(BIN)/python -c 'import sys, tomllib; e = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; print("\n".join(e["$*"])) if "$*" in e else sys.exit("E-EXTRAS: $* is no extra; there are " + " ".join(e))' > $(VENV)/requirements-$*.txt
	$(PIP) install --constraint constraints.txt --requirement $(VENV)/requirements-$*.txt
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); print("\n".join(p["dependency-groups"]["test"] + p["project"]["optional-dependencies"]["solver"]))' > $(VENV)/requirements-test.txt
	$(PIP) install --constraint constraints.txt --requirement $(VENV)/requirements-test.txt
	@touch $@

test: $(VENV)/.installed-test lint  ## lint, types and tests
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(VENV)/.installed-test  ## the slow tests too
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-test
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/snakefmt --check Snakefile workflow/Snakefile workflow/rules
	$(BIN)/mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/snakefmt Snakefile workflow/Snakefile workflow/rules

bench: $(VENV)/.installed-test  ## speed ratios, and where the time goes
	@for b in benchmarks/bench_*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

dag: install  ## docs/dag.svg (needs graphviz)
	$(BIN)/snakemake --rulegraph 2>/dev/null | dot -Tsvg > docs/dag.svg

clean:  ## remove results, not the environment
	rm -rf results/*/ astra_configs/*/ .snakemake

help:
	@grep -hE '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/'
