PYTHON ?= python3
BIN ?= .venv/bin

.PHONY: install test slow check lint types docs bench wheel lowest sbom

install:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --no-compile -c constraints.txt -e '.[dev]'

test:
	$(BIN)/python -m pytest

slow:
	$(BIN)/python -m pytest -m slow tests

check: lint types docs

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/hadolint Dockerfile
	$(BIN)/python .ci/vocabulary.py
	$(BIN)/python bench/reading.py
	$(BIN)/numpydoc lint $(shell find src -name '*.py')

types:
	$(BIN)/mypy

docs:
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

bench:
	$(BIN)/python bench/whitening_fit.py --markdown

# builds the sdist, and from it the wheel; tests what was installed from the wheel, without the source tree
wheel:
	PYTHON=$(PYTHON) .ci/installed wheel

# the same with the lowest versions that pyproject.toml allows
lowest:
	PYTHON=$(PYTHON) .ci/installed lowest

# CycloneDX JSON of a fresh install of the base
sbom:
	PYTHON=$(PYTHON) .ci/installed sbom
