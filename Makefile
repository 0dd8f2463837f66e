# Everything sets itself up: a virtual environment, packages, images and, where this machine's KVM cannot run a guest,
# the emulated KVM host in lab/. What is fetched once is kept in ~/.cache/deerflow-boxlite.

PYTHON ?= $(shell for v in 3.11 3.12 3.13; do python$$v -c "" 2>/dev/null && command -v python$$v && break; done | head -n 1)
# DeerFlow's harness needs Python 3.12: one on the PATH, or one of pyenv's that is not activated here.
PYTHON312 ?= $(shell command -v python3.12 >/dev/null 2>&1 && python3.12 -c '' 2>/dev/null && command -v python3.12 \
	|| ls -d $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.1[23].*/bin/python 2>/dev/null | head -n 1)
PY := .venv/bin/python
PIP_FLAGS := --quiet --disable-pip-version-check

# Several runs of some minutes rather than one long one: the emulated host does not last for ever (lab/README.md).
LIVE := lab/on-kvm --timeout 1200 --
# In the emulated host a VM dies by itself now and then. A test that this meets is run again, which shows in the report;
# one that fails for a reason of its own fails each time.
LIVE_PYTEST := -m pytest -v -p no:cacheprovider --reruns 2 --timeout 600 --tb=short
OUT ?=

.DEFAULT_GOAL := help
.PHONY: help demo test unit live soak deerflow conformance bench lint types images clean

help: ## show the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 14

demo: .make/venv ## the main job on a real box, step by step
	@$(PY) examples/demo.py --prepare
	@lab/on-kvm --timeout 600 -- $(PY) examples/demo.py

test: ## every suite: lint, types, unit, guest scripts, live, DeerFlow
	@.ci/suites lint types unit live deerflow

unit: .make/venv ## unit tests and guest scripts, in under a minute, with no VM
	$(PY) -m pytest -q -n auto tests/unit tests/guest

live: .make/venv images ## tests on real boxes, on both images
	LIVE_IMAGES=busybox $(LIVE) $(PY) $(LIVE_PYTEST) tests/live --ignore tests/live/test_lifecycle.py
	LIVE_IMAGES=debian $(LIVE) $(PY) $(LIVE_PYTEST) tests/live --ignore tests/live/test_lifecycle.py
	$(LIVE) $(PY) $(LIVE_PYTEST) tests/live/test_lifecycle.py

soak: .make/venv images ## 50 turns over 6 identities with 2 places, the VMs killed in every tenth
	SOAK_TURNS=50 SOAK_KILL_EVERY=10 $(LIVE) $(PY) $(LIVE_PYTEST) --timeout 1150 tests/live/test_lifecycle.py -k soak

deerflow: .make/venv-deerflow images ## tests inside the real DeerFlow harness, on real boxes
	@if [ -x .venv-deerflow/bin/python ]; then \
		$(LIVE) .venv-deerflow/bin/python $(LIVE_PYTEST) tests/deerflow -k 'not debian' && \
		$(LIVE) .venv-deerflow/bin/python $(LIVE_PYTEST) tests/deerflow -k debian; \
	else echo "tests/deerflow: SKIPPED, no Python 3.12 or newer was found for DeerFlow's harness (set PYTHON312=...)"; fi

conformance: .make/venv-conformance images ## LangChain's sandbox conformance suite on a live box
	.venv-conformance/bin/python -m pytest -q -p no:cacheprovider tests/unit/test_deepagents.py
	LIVE_IMAGES=busybox $(LIVE) .venv-conformance/bin/python $(LIVE_PYTEST) -q tests/conformance
	LIVE_IMAGES=debian $(LIVE) .venv-conformance/bin/python $(LIVE_PYTEST) -q tests/conformance

bench: .make/venv images ## ours against the raw SDK, in one process on one box (OUT=file.json keeps the rows)
	@lab/on-kvm --timeout 1500 $(if $(OUT),--out $(dir $(abspath $(OUT)))) -- \
		$(PY) benchmarks/bench.py $(if $(OUT),--out $(notdir $(OUT)))

lint: .make/venv ## ruff and shellcheck
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	.venv/bin/shellcheck -x $$(git ls-files '*.sh' .ci lab examples | xargs grep -lE '^#!.*\b(sh|bash)$$|^# shellcheck shell=')

types: .make/venv ## mypy --strict
	$(PY) -m mypy
	$(PY) -m mypy --explicit-package-bases lab benchmarks examples

images: .make/venv ## OCI layouts of the two images that the tests run on, from Debian's packages
	@for base in busybox debian; do $(PY) -c "from deerflow_boxlite import images; images.cached('$$base', log=lambda line: print('  ' + line, flush=True))" || exit 1; done

.make/venv: pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 was found. Set PYTHON=/path/to/python." >&2; exit 1; }
	@echo "Setting up .venv with $(PYTHON) ..."
	@$(PYTHON) -m venv --clear .venv
	@$(PY) -m pip install $(PIP_FLAGS) -e '.[dev]'
	@mkdir -p .make && touch $@

.make/harness: tests/deerflow/requirements.txt
	@if [ -n "$(PYTHON312)" ]; then \
		echo "Setting up .venv-deerflow with $(PYTHON312) and DeerFlow's harness ..."; \
		$(PYTHON312) -m venv --clear .venv-deerflow && \
		.venv-deerflow/bin/python -m pip install $(PIP_FLAGS) -r tests/deerflow/requirements.txt; \
	fi
	@mkdir -p .make && touch $@

# As a wheel: beside DeerFlow's own, `deerflow.community.boxlite` is found in no other way.
.make/venv-deerflow: .make/harness pyproject.toml README.md $(shell find src -type f -not -name '*.pyc')
	@if [ -n "$(PYTHON312)" ]; then \
		.venv-deerflow/bin/python -m pip install $(PIP_FLAGS) --force-reinstall --no-deps . ; \
	fi
	@touch $@

# Of its own, since DeerFlow's harness pins older releases of what deepagents needs.
.make/venv-conformance: pyproject.toml tests/conformance/requirements.txt
	@echo "Setting up .venv-conformance ..."
	@$(PYTHON) -m venv .venv-conformance
	@.venv-conformance/bin/python -m pip install $(PIP_FLAGS) -e '.[boxlite,deepagents]' -r tests/conformance/requirements.txt
	@mkdir -p .make && touch $@

clean: ## remove what make made here (not the cache)
	rm -rf .venv .venv-deerflow .venv-conformance .make build dist
