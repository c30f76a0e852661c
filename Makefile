# raftlake's commands. `make help` lists them; CONTRIBUTING.md says when to use which.
# BIN=DIR uses the tools of another environment instead of .venv (nothing is set up then).

BIN   ?= .venv/bin
SEEDS ?=
JOBS  ?= $(shell getconf _NPROCESSORS_ONLN)
ROWS  ?=
MINUTES ?= 10
SEED  ?=
RESULT ?=
ONLY  ?=
INTERPRETED ?=
TABLE ?=

READY  := $(if $(filter .venv/bin,$(BIN)),.venv/ready)
PYTEST := $(BIN)/python -m pytest
SOURCE := python connector tests tools examples
# Where tests of a kind are: pytest needs 40 s to look at all others. tests/test_repository.py finds one elsewhere.
OF_NODES := tests/process tests/hostile tests/wire
OF_SPARK := tests/spark tests/connector_contract tests/wire

# What tools keep between runs goes to .cache, which git ignores (as it does __pycache__).
export PYTHONPATH := $(CURDIR)/python:$(CURDIR)/connector
export NUMBA_CACHE_DIR := $(CURDIR)/.cache/numba
export RUFF_CACHE_DIR := $(CURDIR)/.cache/ruff
export SPARK_LOCAL_IP := 127.0.0.1

.DEFAULT_GOAL := help
.PHONY: help setup jar quickstart check fix test test-jvm test-seeds test-sim mutants jvm-mutants test-process test-store test-clients test-java test-spark test-cluster wheel test-wheel bench sim sweep soak clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with everything in it, and install the system packages that are missing

.venv/ready: pyproject.toml tools/setup tools/need
	@tools/setup

jar: $(READY) ## build the jar for Spark, where its sources changed; `make setup` does so too
	@PYTHON=$(BIN)/python tools/build-jar

quickstart: $(READY) ## the tour: a quorum, Spark, real data, a killed leader (about two minutes; ROWS=N for fewer rows)
	@$(BIN)/raftlake quickstart $(if $(ROWS),--rows $(ROWS))

check: $(READY) ## lint, format, types, import contracts, fast tests; changes nothing
	$(BIN)/ruff check --quiet $(SOURCE)
	$(BIN)/ruff format --quiet --check $(SOURCE)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	@git ls-files '*.py' | xargs wc -l | awk '$$1 > 400 && $$2 != "total" {print "long: " $$2 ", " $$1 " lines (above 600 the check fails)"}'
	$(PYTEST) -q -n $(JOBS) --dist worksteal --durations 5

fix: $(READY) ## format, apply the linter's safe corrections, draw the diagram of roles anew
	$(BIN)/ruff check --quiet --fix $(SOURCE)
	$(BIN)/ruff format --quiet $(SOURCE)
	$(BIN)/python -m tests.role_diagram

test: check ## all that CI runs: check, JUnit, clients, simulator, node processes, Java tools, Spark
	@# One processor each: Gradle, and the tests of other languages' clients.
	@$(MAKE) --no-print-directory -j 2 -O test-jvm test-clients
	@$(MAKE) --no-print-directory test-seeds test-sim test-process test-java test-spark

test-seeds: $(READY) ## simulated clusters: 200 that are the same each time, 200 others
	$(BIN)/python -m raftlake.sim --seeds 1..200 --jobs $(JOBS)
	$(BIN)/python -m raftlake.sim --seeds fresh --jobs $(JOBS)

test-sim: $(READY) ## the simulator's own tests: the same seed twice, planted bugs
	$(PYTEST) -q tests/sim -m 'sim and not (process or java or spark or bench)' -n $(JOBS) --dist worksteal

test-process: $(READY) ## real node processes and real clients
	$(PYTEST) -q $(OF_NODES) -m 'process and not (java or spark or bench or s3)' -n $(JOBS) --dist worksteal --durations 5

test-store: $(READY) ## the remote tier on a real S3 server, which Go builds once; not part of `make test`
	@tools/fetch-versitygw
	@tools/fetch-kafka --s3
	$(PYTEST) -q tests/process tests/spark -m s3

test-clients: $(READY) ## Kafka clients for Go and Rust while nodes are killed, built once
	@tools/fetch-clients
	$(PYTEST) -q tests/wire -m clients

test-jvm: jar ## the JUnit tests of the jar, and Hadoop's own contract tests, on keys in memory (fetched once)
	@tools/fetch-jvm-tests
	@PYTHON=$(BIN)/python tools/gradle testJvm

jvm-mutants: jar ## plants bugs in the jar and proves that a JUnit test finds each; not part of `make test`
	@tools/fetch-jvm-tests
	$(BIN)/python -m tests.jvm_mutants

test-java: jar ## Kafka's own Java tools against our nodes and files (fetched once); Hadoop's contract tests on a quorum
	@tools/fetch-kafka
	@tools/fetch-jvm-tests
	@PYTHON=$(BIN)/python tools/gradle testClasses
	$(PYTEST) -q tests/wire tests/contract tests/unit/wire -m 'java and not (spark or bench)' -n $(JOBS) --dist loadfile --durations 5

test-spark: jar ## Spark jobs against real nodes
	@tools/fetch-kafka
	@$(BIN)/python tests/kits/class_archive.py
	$(PYTEST) -q $(OF_SPARK) -m 'spark and not (bench or s3 or cluster)' -n $(JOBS) --dist loadfile --durations 10

test-cluster: jar ## Spark stories of minutes: a standalone cluster, killed drivers, queries of many shapes; not part of `make test`
	@tools/fetch-kafka
	@$(BIN)/python tests/kits/class_archive.py
	$(PYTEST) -q $(OF_SPARK) -m cluster -o faulthandler_timeout=1200

wheel: jar ## dist/*.whl with the jar and with nodes as machine code, for this Python and machine (gcc; some minutes)
	@rm -rf dist
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps -w dist .
	@ls dist/*.whl

test-wheel: wheel ## the process tests with nodes from that wheel; not part of `make test`
	@rm -rf .cache/wheel && mkdir -p .cache/wheel
	@$(BIN)/python -m zipfile -e dist/*.whl .cache/wheel
	@PYTHONPATH=$(CURDIR)/.cache/wheel $(BIN)/python -c 'from raftlake.raft import core; assert not core.__file__.endswith(".py"), core.__file__'
	PYTHONPATH=$(CURDIR)/.cache/wheel:$(PYTHONPATH) $(PYTEST) -q $(OF_NODES) -m 'process and not (java or spark or bench or s3)' -n $(JOBS) --dist worksteal --durations 5

bench: $(READY) ## measure us, etcd and Kafka side by side; exit 1 when a budget is missed (ONLY="pair gap" for some parts)
	@tools/need etcd
	@tools/fetch-kafka
	@$(BIN)/python -c 'import matplotlib' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@$(BIN)/python -m tests.bench $(ONLY:%=--only %) $(if $(INTERPRETED),--interpreted)

sim: $(READY) ## simulated clusters: 200 from a seed that is drawn and printed; SEEDS=A..B runs those, SEEDS=N 1..N
	$(BIN)/python -m raftlake.sim --seeds $(or $(SEEDS),fresh) --jobs $(JOBS)

sweep: $(READY) ## many simulated clusters (SEEDS=A..B) and docs/simulator-runs.md; goes on where it was stopped, compiled where gcc is there
	@$(BIN)/python -m tests.sweep --seeds $(or $(SEEDS),1..2000) --jobs $(JOBS) --page docs/simulator-runs.md

soak: $(READY) ## node processes killed, paused, cut off under load; their history judged (MINUTES=10 SEED=N RESULT=FILE)
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(RESULT),--result $(RESULT))

mutants: $(READY) ## plant every known bug and prove that simulated clusters or tests find it (TABLE=docs/mutants.md writes the page)
	$(BIN)/python -m tests.mutants --jobs $(JOBS) $(if $(TABLE),--table $(TABLE))

clean: ## remove the caches and the virtual environment
	rm -rf .venv .cache
