# graphcal: every target builds .venv from nothing when it is missing and costs seconds when it is there.
PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.complete
CPUS   := $(shell nproc 2>/dev/null || echo 2)
# One thread for each test worker: two workers on two cores must not fight. Bytecode is kept: tests start some fifty processes.
TESTENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

.PHONY: help install run test test-slow test-all coverage fuzz kills mutants audit matrix lint format docs speed clean
help:
	@echo "make install   build .venv with graphcal and everything its tests need"
	@echo "make run       the main job: a real graph -> train -> calibrate -> table and report.html"
	@echo "make test      the fast tests, with a sample of each slow kind"
	@echo "make test-slow the slow tests: long simulations, kills, notebooks"
	@echo "make test-all  both: what CI runs"
	@echo "make coverage  the tests, with lines and branches that none of them runs"
	@echo "make fuzz      broken files for every reader, a minute each (SECONDS=60)"
	@echo "make kills     run and bench killed at random moments (KILLS=40 each)"
	@echo "make mutants   tools/mutants.toml, one change at a time: do the tests notice? (WORDS=methods/ for a part)"
	@echo "make audit     known vulnerabilities of the locked packages, where the database can be reached"
	@echo "make matrix    the wheel with every interpreter that is here, the oldest versions, and every extra alone (WORDS='3.12 oldest')"
	@echo "make lint      ruff format, ruff check, vague names, import contracts, mypy"
	@echo "make docs      the documentation, built strictly into site/"
	@echo "make speed     benchmarks/: graphcal against the usual loops, side by side in one run"

# The stamp is written last. Without it a .venv is the rest of an interrupted set-up and is built anew.
$(STAMP): pyproject.toml constraints.txt
	@test -e $(STAMP) || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --progress-bar off -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

install: $(STAMP)

run: $(STAMP)
	$(BIN)/graphcal run --out graphcal-report

test: $(STAMP)
	$(TESTENV) $(BIN)/python -m pytest -m "not slow" -n $(CPUS) --dist worksteal $(PYTEST_ARGS)

test-slow: $(STAMP)
	$(TESTENV) $(BIN)/python -m pytest -m slow -n $(CPUS) --dist worksteal $(PYTEST_ARGS)

test-all: $(STAMP)
	$(TESTENV) $(BIN)/python -m pytest -n $(CPUS) --dist worksteal $(PYTEST_ARGS)

coverage: $(STAMP)
	$(TESTENV) $(BIN)/python -m pytest -n $(CPUS) --dist worksteal --cov=graphcal --cov-branch --cov-report=term:skip-covered $(PYTEST_ARGS)

fuzz: $(STAMP)
	$(TESTENV) PYTHONPATH=tools $(BIN)/python tools/fuzz.py --seconds $(or $(SECONDS),60) $(TARGETS)

kills: $(STAMP)
	$(TESTENV) $(BIN)/python tools/kills.py --kills $(or $(KILLS),40)

mutants: $(STAMP)
	$(TESTENV) $(BIN)/python tools/mutants.py $(WORDS)

audit:
	@test -x build/audit/bin/pip-audit || ($(PYTHON) -m venv build/audit && build/audit/bin/pip install --quiet --progress-bar off pip-audit)
	build/audit/bin/python tools/audit.py

matrix: $(STAMP)
	$(BIN)/python tools/matrix.py $(WORDS)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/check_names.py
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site
	$(BIN)/python tools/check_links.py site

speed: $(STAMP)
	$(BIN)/python benchmarks/training.py

clean:
	rm -rf .venv build dist site graphcal-report .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
