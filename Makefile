# The commands a person needs; CI runs the same ones. `make` prints this help.
SHELL := /bin/bash
PY := .venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help

help: ## print this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: .venv/.ready ## make .venv with kernfed and all it needs; other targets do it for themselves

# One pip call: torch's version must be pinned in the call that pulls it in.
.venv/.ready: pyproject.toml constraints.txt tools/venv.sh
	@test -x $(PY) && $(PY) -m pip --version >/dev/null 2>&1 || tools/venv.sh .venv
	@echo "installing kernfed into .venv, once: PyTorch and about a hundred packages, some minutes. Each is named as it comes:"
	@$(PY) -m pip install --no-compile --progress-bar off -e '.[dev]' -c constraints.txt | grep --line-buffered -E '^(Collecting|Installing)' | cut -c1-120; exit $${PIPESTATUS[0]}
	@echo "compiling what was installed"
	@$(PY) -W ignore -m compileall -q -q -j 0 -x '/tests/' .venv/lib || true  # pip would compile on one core
	@$(PY) -m compileall -q -q -j 0 common server client simulation || true  # else each worker of the tests does it
	@touch $@

demo: setup ## four hospitals train together on this machine: one coordinator, four clients, mutual TLS
	$(PY) examples/heart/demo.py

experiment: setup ## a paper's table, e.g. make experiment NAME=newton-table4 ARGS="--set dna"; NAME=all runs every one
	$(PY) experiments $(or $(NAME),$(error give NAME=newton-table4)) $(ARGS)

format: setup ## write the code the way ruff would
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

lint: setup ## ruff, bandit, mypy --strict, who may import whom, and the rules of the house
	@$(MAKE) -s -k -O -j 2 lint-types lint-rules

lint-types:
	.venv/bin/mypy

lint-rules:
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	$(PY) -m bandit -q -c pyproject.toml -r common server client simulation
	.venv/bin/lint-imports
	$(PY) tools/house.py

# Processes that tests start find the source compiled, wherever they may write it.
unexport PYTHONDONTWRITEBYTECODE
# Two workers; one that has no more tests takes half of the other's. A tree where every wait ends by its limit says so
# within minutes; ARGS="--maxfail 0" shows all that fails.
PYTEST := $(PY) -m pytest --dist worksteal -n 2 --maxfail 25

test-quick: setup ## unit tests of maths, settings, messages and state machines, in under a minute
	$(PYTEST) -q -m "not slow" --hypothesis-profile quick tests/unit \
	  --ignore tests/unit/server/methods --ignore tests/unit/simulation $(ARGS)

test-unit: setup ## tests without sockets, e.g. make test-unit ARGS="--hypothesis-profile thorough"
	$(PYTEST) tests/unit tests/adversary $(ARGS)

test-profile: setup ## tests of maths with the kernels of an older processor: no bound may hang on those of this one
	OPENBLAS_CORETYPE=Haswell ATEN_CPU_CAPABILITY=default $(PYTEST) -q -m "not slow" \
	  $(addprefix tests/unit/common/,features maths methods models tensors) $(ARGS)

test-integration: setup ## tests with real sockets and a test CA
	$(PYTEST) -n 4 tests/integration $(ARGS)  # they wait as long as they compute

# Tests with sockets wait as long as they compute, so they run beside the others, and are shown last. Workers of their own
# need not collect those of the others, which costs each worker as much as a hundred tests.
HERE = log=$$(mktemp); $(PYTEST) tests/integration $(1) >$$log 2>&1 & waiting=$$!; trap "kill $$waiting" INT TERM; \
  $(PYTEST) tests/unit tests/adversary $(1); computing=$$?; \
  wait $$waiting; waiting=$$?; cat $$log; rm $$log; exit $$((computing | waiting))

test-here: setup ## test-unit and test-integration beside each other: one computes while the other waits
	@$(call HERE,$(ARGS))

soak: setup ## jobs of every method, each met by several faults, e.g. make soak ARGS="--jobs 17 --seed 2"
	$(PY) tests/soak/soak.py $(ARGS)

cross-version: setup ## this tree in one federation with another revision, to the same bits, e.g. make cross-version REV=HEAD~20
	$(PY) tests/soak/cross_version.py $(or $(REV),$(error give REV=REVISION)) $(ARGS)

fuzz: setup ## ten minutes of bent bytes for everything that reads some, e.g. make fuzz SECONDS=60, with ARGS="--seed 7"
	-$(PY) -m pip install -q 'atheris>=2.3'
	$(PY) tests/soak/fuzz.py $(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

redteam: setup ## every known attack against real processes, a line each with its outcome; CI runs them among the tests
	$(PY) tests/soak/redteam.py $(ARGS)

lies: setup ## every lie in every number that a client sends, in every method, a line each; ARGS="newton" for some
	PYTHONPATH=tests $(PY) tests/soak/lies.py $(ARGS)

advisories: setup ## known vulnerabilities of the pinned packages; says how many could be asked for
	@test -x .tools/audit/bin/python || $(PY) -m venv .tools/audit
	@.tools/audit/bin/python -m pip install -q 'pip-audit>=2.7'
	$(PY) tools/advisories.py .tools/audit/bin/python constraints.txt deploy/constraints.txt

sbom: ## the software bill of materials of the images' Python packages (CycloneDX), beside the wheels
	@mkdir -p deploy/wheelhouse
	python3 deploy/image/bill.py kernfed "$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)" deploy/wheelhouse \
	  constraints.txt deploy/constraints.txt >deploy/wheelhouse/sbom.cdx.json

# Containers are waited for more than they compute, so those tests run beside the others, and are shown last.
test: setup ## all tests; whatever fails, all run
	@log=$$(mktemp); $(PY) -m pytest tests/containers >$$log 2>&1 & containers=$$!; trap "kill $$containers" INT TERM; \
	  ($(call HERE)); others=$$?; \
	  wait $$containers; containers=$$?; cat $$log; rm $$log; exit $$((others | containers))

test-containers: setup ## tests that start and break real containers; needs an engine and `make images`
	$(PY) -m pytest tests/containers

check: lint proto-check test test-profile ## all that CI runs

images: ## build the images of coordinator and client
	deploy/build.sh

images-airgap: ## the same without an image registry, from Debian packages and a wheelhouse
	deploy/airgap/build.sh

up: setup ## start a coordinator and four hospitals as containers; leaves the operator's identity in .cluster/
	deploy/compose/up.sh

logs: ## follow the logs of these containers
	compose=$$(deploy/compose/which.sh) && $$compose logs -f --tail 100

down: ## stop these containers; ARGS=-v removes their volumes, CA and jobs too
	compose=$$(deploy/compose/which.sh) && $$compose down $(ARGS)
	$(if $(findstring -v,$(ARGS)),rm -rf $${KERNFED_CLUSTER:-.cluster}/operator)

bench: setup ## the session beside a bare gRPC loop, 1,000 idle sessions, 1 GiB round trip, start-up, maths, pooled rows: ratios taken in one run
	for f in session secure_sums idle_sessions large startup maths pooled_ridge solvers distill personalise; do $(PY) bench/$$f.py || exit 1; done

docs: setup ## write the tables in docs/, the types of a job's classes, and what rooms have, from the code
	$(PY) tools/write_index.py
	$(PY) docs/reference.py
	$(PY) tools/write_stub.py

# The wire contract. The generator has its own environment, for its versions decide the oldest protobuf that we accept.
PROTO_OUT := .tools/proto/out
PROTO_BIN := .tools/proto/bin
BUF := .tools/node_modules/.bin/buf
BUF_VERSION := 1.75.0

.tools/proto/.ready: proto/requirements.txt
	@test -x $(PROTO_BIN)/python || tools/venv.sh .tools/proto
	@$(PROTO_BIN)/python -m pip install -q -r proto/requirements.txt
	@touch $@

proto-generate: .tools/proto/.ready
	@rm -rf $(PROTO_OUT) && mkdir -p $(PROTO_OUT)
	@PATH="$(CURDIR)/$(PROTO_BIN):$$PATH" $(PROTO_BIN)/python -m grpc_tools.protoc -Iproto --python_out=$(PROTO_OUT) \
	  --grpc_python_out=$(PROTO_OUT) --mypy_out=quiet:$(PROTO_OUT) $(wildcard proto/kernfed/v1/*.proto)
	@find $(PROTO_OUT) -name '*_pb2_grpc.py' -exec grep -L 'Servicer' {} + | xargs -r rm
	@touch $(PROTO_OUT)/kernfed/v1/__init__.py

proto: ## write the messages of proto/ from their dataclasses, and common/kernfed/v1 from proto/
	@$(PY) tools/write_proto.py
	@$(PY) tools/write_index.py
	@$(MAKE) -s proto-generate
	@mkdir -p common/kernfed/v1
	@cp -f $(PROTO_OUT)/kernfed/v1/* common/kernfed/v1/
	@cd common/kernfed/v1 && for f in *.py*; do test -e $(CURDIR)/$(PROTO_OUT)/kernfed/v1/$$f || rm $$f; done

proto-check: proto-lint proto-generate ## lint of proto/, nothing broken since main, it and the generated code up to date
	@$(PY) tools/write_proto.py --check
	@diff -r --exclude=__pycache__ $(PROTO_OUT)/kernfed/v1 common/kernfed/v1 || { echo "common/kernfed/v1 is not what proto/ generates; run make proto and commit it"; exit 1; }

$(BUF):
	@mkdir -p .tools && timeout 180 npm install --silent --no-save --fetch-retries 2 --prefix .tools @bufbuild/buf@$(BUF_VERSION)

proto-lint:
	@if test -x $(BUF) || command -v npm >/dev/null; then $(MAKE) -s proto-buf; \
	  elif test -n "$$CI"; then echo "proto-check: npm is missing, and buf comes from it"; exit 1; \
	  else echo "proto-check: no npm here, so buf is skipped; CI runs it"; fi

proto-buf: $(BUF)
	$(BUF) lint proto
	@for ref in origin/main main; do if git cat-file -e $$ref:proto/buf.yaml 2>/dev/null; then \
	  echo "$(BUF) breaking proto, against $$ref"; \
	  exec $(BUF) breaking proto --against ".git#ref=$$ref,subdir=proto"; fi; done; \
	  echo "proto-check: no main branch with proto/ to compare with"

clean: ## remove what was built or run here, .venv and .tools too
	rm -rf .venv .tools .demo dist build experiments/out bench/out .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  .import_linter_cache
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

.PHONY: help setup demo experiment format lint lint-types lint-rules redteam advisories sbom test-quick test-unit test-profile test-integration test-here test-containers test check docs clean
.PHONY: images images-airgap up logs down
.PHONY: proto proto-check proto-generate proto-lint proto-buf
