# Every target sets up what it needs; `make` alone lists them.
PYTHON ?= python3
BIN := .venv/bin
# A Java that came from a wheel, where the machine has none of its own (see tools/setup.py).
# Looked for when a recipe runs: the set-up that makes it is part of the same run.
JAVA = $(if $(shell test -x .java/bin/java && echo yes),JAVA_HOME=$(CURDIR)/.java PATH=$(CURDIR)/.java/bin:$(PATH))

.PHONY: help setup demo test check package fix simulate swarm soak bench fuzz docs clean

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## install everything into .venv; quick when nothing changed
	@$(PYTHON) tools/setup.py

demo: setup  ## brokers, a feed, a Spark lake; three kill -9, nothing is missed; DEMO=--stay keeps it
	@$(JAVA) $(BIN)/gapless demo $(DEMO)

test: setup  ## run all tests, on all cores
	@$(JAVA) $(BIN)/python -m pytest -q -n auto --dist loadgroup

check: setup  ## format, lint, types, import contracts
	@$(BIN)/ruff format --check --quiet . || { echo "run: make fix"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

package: setup  ## build wheel and sdist; try them in empty environments as a user without a home
	@$(BIN)/python tools/package.py

fix: setup  ## format, and mend what ruff can mend
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

simulate: setup  ## play one simulated run with its trace; SEED=42 picks it
	@$(BIN)/gapless simulate --trace --seed $(or $(SEED),1)

swarm: setup  ## play many simulated runs on all cores; SEEDS=10000 FROM=0 SERVICE=all
	@$(BIN)/gapless swarm --seeds $(or $(SEEDS),1000) --from $(or $(FROM),0) --service $(or $(SERVICE),durable)

soak: setup  ## kill, hang and cut real brokers for a long time; CYCLES=300 SEED=1 SERVICE=all
	@$(BIN)/gapless soak --cycles $(or $(CYCLES),300) --seed $(or $(SEED),1) --service $(or $(SERVICE),all)

bench: setup  ## measure against other brokers; BENCH="peers --quick", BENCH="matcher --keep"
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[peers]'
	@$(JAVA) $(BIN)/python -m benchmarks $(or $(BENCH),peers)

fuzz: setup  ## fuzz the filter language, the wire format and whole brokers, a minute each
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[fuzz]'
	@for target in filters wire; do echo "== fuzz/$$target.py"; \
	  $(BIN)/python fuzz/$$target.py -max_total_time=60 -verbosity=0 fuzz/corpus/$$target || exit 1; done
	@echo "== fuzz/node.py"; $(BIN)/python fuzz/node.py --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1)

docs: setup  ## build the documentation into site/
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "open site/index.html"

clean:  ## remove everything that was made, but not data
	rm -rf .venv .java site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
