# Every target takes a fresh clone to its result: .venv is created and filled on demand, for the
# demo with what the demo needs, for everything else with all of it.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DEMO_STAMP := .venv/.installed-demo
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup demo test lint types unit gpu-test docs pictures bench evidence faults clean

setup: $(STAMP)

$(BIN)/python:
	$(PYTHON) -m venv .venv

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev]'
	touch $(STAMP) $(DEMO_STAMP)

$(DEMO_STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[data,analysis]'
	touch $(DEMO_STAMP)

demo: $(DEMO_STAMP)
	$(BIN)/graph-machine demo

test: lint types unit docs

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/pyrefly check

# Two workers for the two cores of the smallest machine that we support; one torch thread each,
# so that they do not fight for the cores. In the order of tests/conftest.py: slow files first.
unit: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

# The site, in build/docs; a warning (a dead link, a page that no list names) is an error.
docs: setup
	$(BIN)/python -m sphinx -q -W --keep-going -E -c docs . build/docs
	@echo "open build/docs/index.html"

# The diagrams and live pages of the documentation and the moving picture of the README.
pictures: setup
	$(BIN)/python docs/diagrams/draw.py
	$(BIN)/python docs/diagrams/growth.py
	$(BIN)/python docs/diagrams/live.py

# With a GPU: the kernels' tests on it, and the tests that need one.
gpu-test: setup
	$(BIN)/graph-machine doctor --device cuda
	$(BIN)/python -m pytest -q -m "gpu or gpu_too"

bench: setup
	$(BIN)/graph-machine bench --suite standard

# Tables and pictures of the pages, from the run records in evidence/.
PAGES := README.md $(addprefix docs/,evidence.md recurrent.md jigsaw.md maze.md graph-tasks.md sequences.md recommended.md yardsticks.md)
evidence: setup
	for page in $(PAGES); do $(BIN)/graph-machine report evidence --into $$page || exit 1; done

# Damaged files at random: CASES of every kind, or HOURS of them. Then kills at every file operation
# (EVERY=7: at each seventh).
CASES ?= 1000
HOURS ?= 0
EVERY ?= 1
faults: setup
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python tests/faults/fuzz.py --cases $(CASES) --hours $(HOURS)
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python tests/faults/kills.py --every $(EVERY)

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis
