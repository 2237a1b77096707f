# Every target does its own set-up; what is done once leaves a stamp in .venv, so that a second run starts at once.
SHELL := /bin/bash
.DELETE_ON_ERROR:
# many tests start many processes: without bytecode on disk each would compile the whole of its code again
unexport PYTHONDONTWRITEBYTECODE
.PHONY: venv demo test check flags-reference nightly bench screenshots lab-packages kernel-packages

VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
DEV := $(VENV)/.dev
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install
LAB := $(BIN)/python tests/lab/lab.py
PYTEST := $(BIN)/python -m pytest --quiet --durations=15
LAB_SECONDS := 900
# many tests wait more than they compute: more workers than cores
WORKERS := 3
LAB_WORKERS := 4

# the first of these that is 3.11 to 3.14 makes the virtual environment
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11
LAB_PACKAGES := sudo openssh-server openssh-client systemd dbus iproute2 nftables util-linux gcc libc6-dev procps

demo: $(BASE)
	$(BIN)/ddtree-console demo

venv: $(DEV)

$(BIN)/python:
	@for python in $(PYTHON) $(PYTHONS); do \
	  "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null || continue; \
	  "$$python" -c 'import ensurepip' 2>/dev/null || { \
	    echo "$$python cannot make virtual environments: apt install python3-venv" >&2; exit 1; }; \
	  echo "$(VENV) with $$("$$python" --version)"; \
	  "$$python" -m venv $(VENV); exit; \
	done; echo "no Python 3.11 to 3.14 in PATH (looked for $(PYTHONS)): apt install python3 python3-venv" >&2; exit 1

$(BASE): pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev]'
	@touch $@ $(BASE)

# torch for the CPU and triton's interpreter: with them `make test` runs the kernels' tests too, else they skip
kernel-packages: $(VENV)/.kernels

$(VENV)/.kernels: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev,test-kernels]'
	@touch $@ $(BASE) $(DEV)

# as root only, and only what is missing; CI has them all by then
lab-packages:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  missing=(); for name in $(LAB_PACKAGES); do dpkg -s $$name >/dev/null 2>&1 || missing+=($$name); done; \
	  if [ $${#missing[@]} -gt 0 ]; then \
	    echo "the lab needs: $${missing[*]}"; export DEBIAN_FRONTEND=noninteractive; \
	    apt-get -o DPkg::Lock::Timeout=300 -qq update && \
	    apt-get -o DPkg::Lock::Timeout=300 -qq install --no-install-recommends "$${missing[@]}" || \
	    echo "not installed: the lab's tests will say what is missing"; \
	  fi; \
	fi

# lab tests run inside the lab where there can be one; elsewhere they skip with the reason (in CI that is an error)
test: $(DEV) lab-packages
	@status=0; \
	$(PYTEST) -m 'not lab' -n $(WORKERS) || status=$$?; \
	if [ -z "$$($(LAB) why-not)" ]; then \
	  timeout --kill-after=20 $(LAB_SECONDS) $(LAB) run $(PYTEST) -m lab -n $(LAB_WORKERS) || status=$$?; \
	else \
	  $(PYTEST) -m lab || status=$$?; \
	fi; \
	exit $$status

# all of them, even where the first finds something
check: $(DEV)
	@status=0; \
	say() { echo "== $$*"; "$$@" || status=1; }; \
	say $(BIN)/ruff check .; \
	say $(BIN)/ruff format --check .; \
	say $(BIN)/mypy; \
	say $(BIN)/lint-imports; \
	say $(BIN)/vermin --quiet --target=3.9- --violations --no-tips --no-parse-comments \
	  console/ddtree_console/domain console/ddtree_console/hostside; \
	say $(BIN)/python -m tests.check_tree; \
	exit $$status

# the flags of every release that the reader is held to: downloads their wheels (some 60 MB) into a cache
flags-reference: $(DEV)
	DDTREE_FLAGS=all $(PYTEST) tests/builds/test_reference.py

# what is too long for every run: hundreds of prompts in four modes and three types, thousands of draws (half an hour)
nightly: kernel-packages flags-reference
	$(BIN)/python -m tests.decode.equality --prompts 60

bench: $(DEV)
	$(BIN)/python -m tests.bench

screenshots: $(DEV)
	$(BIN)/python screenshots/make.py
