# The dev verbs. Each one does its own set-up; `make setup` twice costs nothing.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := test,dev,bench
PYTEST_ARGS ?=
BROWSERS := chromium chromium-browser google-chrome
CONFORMANCE := tests/conformance
NODE_STAMP := $(CONFORMANCE)/node_modules/.installed

.PHONY: help setup run tools browser node test conformance lint bench jdk clean

help:
	@echo "make setup  create .venv and install everything (idempotent)"
	@echo "make run    serve with the TOPICS_* variables of the environment"
	@echo "make test   run the whole test suite (PYTEST_ARGS=... to narrow it)"
	@echo "make lint   ruff, mypy and the import law"
	@echo "make bench  measure speed and memory against the goals"
	@echo "make conformance  run the official Durable Streams suite (URL=... for another server)"
	@echo "make node   find or install Node 18 or newer and that suite, for tests only"
	@echo "make jdk    find or install Java 17 or newer, for Spark only"
	@echo "make clean  remove everything that can be made again, except data"

setup: $(STAMP)
	@:

$(STAMP): pyproject.toml setup.cfg
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "topicsd needs Python 3.11 or newer; set PYTHON=..." >&2; exit 1; }
	@# Debian ships ensurepip apart from python3.
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    if [ "$$(id -u)" = 0 ]; then \
	        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null; \
	    else echo "install python3-venv first: apt-get install python3-venv" >&2; exit 1; fi; }
	@[ -x $(BIN)/python ] && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing topicsd and its tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]'
	@touch $@

run: setup
	@exec $(BIN)/topicsd serve

# The README's examples are run as they stand, with the tools they name; metrics are checked
# with promtool, which Debian ships in its prometheus package.
tools:
	@missing=$$(for tool in curl sqlite3; do command -v $$tool >/dev/null || echo $$tool; done; \
	    command -v promtool >/dev/null || echo prometheus); \
	[ -z "$$missing" ] && exit 0; \
	[ "$$(id -u)" = 0 ] || { echo "install first: apt-get install $$missing" >&2; exit 1; }; \
	apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null

# A real browser follows a watch. It is large and not to be had everywhere: where it cannot be
# installed, and only there, its tests are left out, and the run says so.
browser:
	@command -v $(BROWSERS) >/dev/null || [ "$$(id -u)" != 0 ] || { \
	    echo "installing chromium"; apt-get update -qq; \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || true

# The official suite of the streams protocol and its client come from npm, at the versions of the
# lock file. Unlike the browser they are never left out: without Node the tests fail.
node: $(NODE_STAMP)
	@:

$(NODE_STAMP): $(CONFORMANCE)/package.json $(CONFORMANCE)/package-lock.json
	@suits() { command -v node npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)'; }; \
	suits || { \
	    [ "$$(id -u)" = 0 ] || { echo "install Node 18 or newer first: apt-get install nodejs npm" >&2; exit 1; }; \
	    echo "installing nodejs and npm"; apt-get update -qq; \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null; \
	    suits || { echo "the tests need Node 18 or newer, and npm" >&2; exit 1; }; }
	@echo "installing the official suite into $(CONFORMANCE)/node_modules"
	@npm ci --prefix $(CONFORMANCE) --no-audit --no-fund --loglevel=error >/dev/null
	@touch $@

test: setup tools browser node
	@ignore=; command -v $(BROWSERS) >/dev/null || { ignore=--ignore=tests/browser; \
	    trap 'echo "SKIPPED tests/browser: no Chromium here; apt-get install chromium" >&2' EXIT; }; \
	$(BIN)/python -m pytest $$ignore $(PYTEST_ARGS)

conformance: setup node
	@$(BIN)/python -m tests.conformance $(URL)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --config setup.cfg

bench: setup
	@$(BIN)/python -m loadtest.bench

jdk:
	@major() { java -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1; }; \
	if command -v java >/dev/null && [ "$$(major)" -ge 17 ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ]; then \
	    echo "Spark needs Java 17 or newer: apt-get install default-jre-headless" >&2; exit 1; fi; \
	apt-get update -qq; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get install -y -qq openjdk-17-jre-headless >/dev/null \
	    || apt-get install -y -qq default-jre-headless >/dev/null

clean:
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis $(CONFORMANCE)/node_modules
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
