# Two commands: `make demo` shows what the project does, `make test` checks all of it.
# `make bench` compares its speed with named peers and wants a quiet machine.
# All make the environment first and need Python 3.11 or later, pip, make and git.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests start hundreds of processes. Without bytecode on disk each of them compiles all sources again.
unexport PYTHONDONTWRITEBYTECODE
# pytest-xdist shares the tests out over the cores; torch must then not do the same.
WORKERS ?= 2

TUTORIALS := $(patsubst docs/%.md,out/%.ipynb,$(wildcard docs/tutorials/*.md))
CODE := $(shell find ablations lightning_modules reports -name '*.py')

.PHONY: demo test check tests test-slow test-browser test-cluster test-ray test-ecosystem test-docs bench faults lock audit docs clean

demo: $(VENV)/installed
	$(BIN)/ablate run experiments/article-tiny.yaml --slots 2

# mypy has one process: the tests begin beside it.
test: $(VENV)/installed
	$(MAKE) --jobs=2 --no-print-directory check tests

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A file is given to one worker, so that what its tests share is made once; the longest come first (tests/conftest.py).
tests: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow and not gpu and not browser and not cluster and not ray and not ecosystem and not docs"

test-slow: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "slow and not gpu"

# Wants Debian's Chromium: apt-get install chromium
test-browser: $(VENV)/installed
	$(BIN)/pytest -m browser

# Wants Debian's slurm-wlm, munge and bindfs, and root: it starts a SLURM of two nodes, and mounts a folder twice.
# What is not installed is skipped.
test-cluster: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/pytest -m cluster tests/system

# Wants the extra [ray], which it installs: it starts a cluster of one node.
test-ray: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[ray]"
	OMP_NUM_THREADS=1 $(BIN)/pytest -m ray tests/system/test_ray.py

# Wants the extra [lm-eval] and TransformerLens, which it installs: they score and load runs of this package.
test-ecosystem: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[hf,lm-eval]" transformer-lens
	OMP_NUM_THREADS=1 $(BIN)/pytest -m ecosystem tests/ablations tests/lightning_modules

bench: $(VENV)/installed
	$(BIN)/python -m benchmarks $(BENCH)

# Injects 2,000 faults into tiny grids and compares each with an undisturbed one; stopped, it goes on. Wants out/faults to be of this commit.
faults: $(VENV)/installed
	$(BIN)/python -m benchmarks faults

# Writes requirements.lock: the versions of constraints.txt with the hashes of their files. Asks PyPI.
lock: $(VENV)/installed
	$(BIN)/python -m pip install --quiet uv
	head -n 2 requirements.lock > requirements.lock.new
	$(BIN)/uv pip compile pyproject.toml --extra test --extra ray --extra lm-eval --constraint constraints.txt --python-version 3.11.5 \
		--python-platform x86_64-manylinux_2_28 --generate-hashes --no-header --no-annotate --quiet >> requirements.lock.new
	mv requirements.lock.new requirements.lock

# Asks PyPI which advisories there are about the packages of requirements.lock; no part of CI, which is offline.
audit: $(VENV)/installed
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --requirement requirements.lock --require-hashes --disable-pip

# Executes the tutorials and writes the documentation as a site to out/docs, which fetches nothing: python3 -m http.server --directory out/docs
docs: $(TUTORIALS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Executes a tutorial in a folder of its own, if it or the code has changed; an error in a cell is one of make.
out/tutorials/%.ipynb: docs/tutorials/%.md $(CODE) $(VENV)/installed
	rm -rf out/tutorials/$*
	mkdir -p out/tutorials/$*
	COLUMNS=100 PYTHONWARNINGS="ignore:IProgress not found" PATH="$(abspath $(BIN)):$$PATH" $(BIN)/jupytext --quiet --to ipynb --set-kernel python3 --execute \
		--run-path out/tutorials/$* --output $(abspath $@) $<

# Wants Debian's Chromium, as test-browser does.
test-docs: docs
	$(BIN)/pytest -m docs

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $@

clean:
	rm -rf $(VENV) out
