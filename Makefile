# `make demo` and `make test` build what they need first. Nothing but Python 3.11 (or later) and make has to be here; uv comes from PyPI.
PYTHON ?= python3
VENV := .venv
PROCESSES ?= 4
BIN := $(VENV)/bin
UV := build/uv/bin/uv
SYNCED := $(VENV)/.synced
INSTALLED := $(VENV)/.installed
TOOLS := $(VENV)/.tools
PACKAGES := schemas sql streams engines processors retrieval evaluation services api anabranch
PROTOC = $(BIN)/python -m grpc_tools.protoc -I . api/grpc/anabranch.proto
COMPILE := $(UV) pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11

export UV_PYTHON_DOWNLOADS := never
# As pip does, uv trusts what this machine trusts.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem),)
export UV_SYSTEM_CERTS ?= true
endif
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif

.DEFAULT_GOAL := help
# Each test process would rewrite the assertions of all tests again, 6 s of CPU each.
test test-long check: export PYTHONDONTWRITEBYTECODE :=
.PHONY: help install demo test test-long containers faults attack check platforms lint style types layers generated format contracts compose asyncapi clients mcp-client lock samples clean ui web web-check pictures

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ui ## Build .venv, without test tools, and the web UI; EXTRAS="grpc models" adds extras
# The constraints have the hashes, which uv verifies.
ifdef EXTRAS
	$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --constraint requirements-dev.lock $(EXTRAS:%=--extra %) -r pyproject.toml
endif

# Without network to npm it warns, and the server shows a plain page.
ui: $(UV)
	@build/uv/bin/python hatch_build.py

web: $(UV) ## Build the web UI into web/dist
	ANABRANCH_UI_BUILD=require build/uv/bin/python hatch_build.py

web-check: web ## Check the web UI: types, style, component tests
	build/uv/bin/python hatch_build.py npm run --silent check

demo: $(INSTALLED) ## Ingest the sample documents, ask three questions
	$(BIN)/python -m samples.demo

test: $(TOOLS) ## Run all tests; those on real Kafka where Java and Maven are found
	$(BIN)/pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder --durations 40 -m "not long"

test-long: $(TOOLS) ## Repeat with more seeds, sizes and examples what `make test` tests once
	TEST_LONG=1 $(BIN)/pytest -n $(PROCESSES) --dist worksteal -m "long or drawn"

containers: $(TOOLS) ## Run the integration tests on images of Postgres and Kafka (needs Docker)
	$(BIN)/pytest -n $(PROCESSES) --dist loadfile --containers tests/contract tests/integration

faults: $(TOOLS) ## Inject faults into Kafka, Postgres, workers and engines, and write the results (about 12 minutes)
	$(BIN)/python -m tests.faults --seed 7 --minutes 12 --write docs/faults.md

attack: $(TOOLS) ## Attack the product, and write down what held (about 10 minutes)
	$(BIN)/python -m tests.attacks --write

check: lint ## Lint, types, layers, contracts, size and the fast tests
	$(BIN)/python -m docs.sizes
	$(BIN)/pytest -q tests/unit tests/golden -m "not slow and not kafka and not long"

# Steps of their own, which `make --jobs` runs at once.
lint: style types layers generated web-check

style: $(TOOLS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(TOOLS)
	$(BIN)/mypy

layers: $(TOOLS)
	$(BIN)/lint-imports

generated: $(TOOLS)
	$(BIN)/anabranch contract openapi --check
	$(BIN)/anabranch contract asyncapi --check
	$(BIN)/anabranch contract schemas --check
	$(BIN)/python -m docs.generate --check
	@mkdir -p build/grpc
	$(PROTOC) --python_out=build/grpc --pyi_out=build/grpc --grpc_python_out=build/grpc
	for made in build/grpc/api/grpc/*_pb2*; do cmp $$made api/grpc/$$(basename $$made) || { echo "run \`make contracts\`"; exit 1; }; done

format: $(TOOLS) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

contracts: $(TOOLS) ## Generate OpenAPI, AsyncAPI, JSON Schemas, code for gRPC and the tables in the docs
	$(BIN)/anabranch contract openapi
	$(BIN)/anabranch contract asyncapi
	$(BIN)/anabranch contract schemas
	$(BIN)/python -m docs.generate
	$(PROTOC) --python_out=. --pyi_out=. --grpc_python_out=.

pictures: $(TOOLS) web ## Draw the pictures of the web UI in docs/assets again (needs Chromium)
	$(BIN)/python -m docs.pictures

samples: $(TOOLS) ## Make the sample documents again
	$(BIN)/python -m samples.generate

compose: build/check-jsonschema/.synced ## Validate docker-compose.yml
	build/check-jsonschema/bin/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

asyncapi: build/asyncapi/.synced ## Validate the AsyncAPI document with the AsyncAPI project's own parser (needs Node)
	cd build/asyncapi && node check.mjs ../../docs/reference/asyncapi.json

platforms: $(UV) ## Say which packages of requirements.lock lack a wheel on a supported platform
	build/uv/bin/python .ci/platforms.py $(UV)

# The tools get the versions of the runtime, so that installing them changes nothing that runs.
lock: $(UV) ## Pin the dependencies of pyproject.toml again
	$(COMPILE) pyproject.toml -o requirements.lock
	$(COMPILE) --extra dev --constraint requirements.lock pyproject.toml -o requirements-dev.lock
	printf 'uv\nhatchling>=1.27\n' | $(COMPILE) - -o .ci/build.lock
	build/uv/bin/python -c 'import hatch_build; print(hatch_build.NODE_PACKAGE)' | $(COMPILE) - -o .ci/node.lock
	echo check-jsonschema | $(COMPILE) - -o .ci/check-jsonschema.lock

clients: build/typescript-client/.synced ## Install what builds the TypeScript client (needs Node)

build/typescript-client/.synced: clients/typescript/package-lock.json
	mkdir -p build/typescript-client
	cp clients/typescript/package*.json build/typescript-client/
	cd build/typescript-client && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

mcp-client: build/mcp-client/.synced ## Install the TypeScript client of the MCP that the tests use (needs Node)

build/mcp-client/.synced: .ci/mcp-client/package-lock.json .ci/mcp-client/check.mjs
	mkdir -p build/mcp-client
	cp .ci/mcp-client/* build/mcp-client/
	cd build/mcp-client && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

build/asyncapi/.synced: .ci/asyncapi/package-lock.json .ci/asyncapi/check.mjs
	mkdir -p build/asyncapi
	cp .ci/asyncapi/* build/asyncapi/
	cd build/asyncapi && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

clean: ## Remove what was built here; data folders stay
	rm -rf $(VENV) build dist web/dist web/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(UV): .ci/build.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, this is %s: make PYTHON=python3.11" % sys.version.split()[0])'
	$(PYTHON) -m venv --clear build/uv
	build/uv/bin/python -m pip install --quiet --require-hashes -r .ci/build.lock
	@touch $@

$(SYNCED): requirements.lock | $(UV)
	test -x $(BIN)/python || $(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	$(UV) pip sync --quiet --require-hashes --compile-bytecode --python $(BIN)/python requirements.lock
	@touch $@

# A confined parsing child writes no bytecode, so it is written here.
$(INSTALLED): $(SYNCED) pyproject.toml
	rm -rf build/editable
	build/uv/bin/python -m hatchling build -t wheel:editable -d build/editable >/dev/null
	$(UV) pip install --quiet --no-deps --offline --reinstall --python $(BIN)/python build/editable/*.whl
	$(BIN)/python -m compileall -q $(PACKAGES)
	@touch $@

# Adds to the environment and removes nothing: `make demo` keeps the tools that `make test` installed.
$(TOOLS): requirements-dev.lock $(INSTALLED)
	$(UV) pip install --quiet --require-hashes --compile-bytecode --python $(BIN)/python -r requirements-dev.lock
	@touch $@

build/check-jsonschema/.synced: .ci/check-jsonschema.lock | $(UV)
	$(UV) venv --quiet --clear --python $(PYTHON) build/check-jsonschema
	$(UV) pip sync --quiet --require-hashes --python build/check-jsonschema/bin/python .ci/check-jsonschema.lock
	@touch $@
