.DEFAULT_GOAL := help
.PHONY: help setup models check test demo

PYTHON := .venv/bin/python

help: ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

setup: ## make .venv and install everything into it
	@scripts/setup.sh

models: setup ## unpack the demo's two models into .models/
	@$(PYTHON) scripts/unpack_models.py

check: setup ## format, lint and types, changing nothing
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy --strict

test: models check ## everything, the real server included
	$(PYTHON) -m pytest

demo: models ## a real server, real recorded agents, plugin off and on
	$(PYTHON) scripts/demo.py
