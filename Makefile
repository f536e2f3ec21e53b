# Everything sets itself up: `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
# `make bundle` names the version of the bundle's Python by the same variable.
BUNDLE_PYTHON := $(filter 3.%,$(PYTHON))
ifneq ($(BUNDLE_PYTHON),)
override PYTHON := python3
endif
VENV := .venv
BIN := $(VENV)/bin
# Tests wait half of their time, so there are two workers a processor, with 1 GiB each.
WORKERS ?= $(shell awk -v processors=$$(nproc) '/^MemTotal/ { \
	workers = 2 * processors; memory = int($$2 / 1048576); \
	if (workers > memory) workers = memory; \
	print (workers < 2 ? 2 : (workers > 16 ? 16 : workers)) }' /proc/meminfo)

# Where the environment forbids to keep bytecode, each process compiles the product, and each worker
# rewrites the asserts of all tests, which takes it 10 s.
unexport PYTHONDONTWRITEBYTECODE
# Only tests/unit.py divides the examples of properties.
unexport VIGIL_TEST_EXAMPLES

# Workers get the path of the tests in UTF-8, whatever the locale is. tests/conftest.py takes
# it out again for the programs that tests start.
export PYTHONUTF8 := 1

# The order of tests is drawn by a seed (tests/random_order.py), which pytest prints. The usual one is
# fixed; VIGIL_TEST_SEED=$RANDOM draws another order, and shows where tests depend on each other.
test together unit computing coverage: export VIGIL_TEST_SEED := $(or $(VIGIL_TEST_SEED),1796006905)

.DEFAULT_GOAL := help
.PHONY: help demo test collected together unit computing slow affected coverage mutants release bundle verify outdated advisories test-release test-aarch64 test-node test-volcano test-anywhere test-brokers test-alerts test-intruder test-sanitized chaos site test-site lint types style servers bench fuzz fuzz-guided lock wire picture clean

help:
	@echo "make demo          the whole system on this machine, with emulated hardware"
	@echo "make lint          format, style, types, layers of imports and names"
	@echo "make types         the types of make lint alone"
	@echo "make style         the checks of make lint but for types"
	@echo "make servers       what make test needs beside Python packages: installed or built, once"
	@echo "make collected     the bytecode of all tests, which make test makes once for all its workers"
	@echo "make together      the tests of make test that wait: for servers, daemons or in real time"
	@echo "make unit          two thirds of the tests in a minute and a half: no server, no network, only gcc"
	@echo "make computing     the other tests of make test, with lower priority: unit tests with all examples, slow ones"
	@echo "make test          all checks and tests, on real parts (kube-apiserver, etcd, Prometheus)"
	@echo "make slow          lists the fifty tests that took longest when they were run last"
	@echo "make affected      tests of what changed since main, two minutes; status 4: some were left out"
	@echo "make coverage      lines and branches that make test runs, for the table in docs/tests.md"
	@echo "make mutants       200 small defects in a copy: which test notices each; three quarters of an hour"
	@echo "make release       everything that VERSION=… has, in dist/; KEY=FILE signs it; nothing is uploaded"
	@echo "make bundle        ARCH=aarch64 PYTHON=3.11: one archive for servers without a network; KEY=FILE signs it"
	@echo "make verify        compares dist/ with the signed manifest: VERSION=… SIGNERS=FILE"
	@echo "make outdated      packages of the environment that have a newer release"
	@echo "make advisories    known advisories about the locked packages; status 3: the index has none, or not for all"
	@echo "make test-release  a release as a whole: installed without a network, and what earlier ones kept; status 3: fewer than two more Pythons; 20 minutes"
	@echo "make test-aarch64  the bundle for aarch64 below qemu: imports, vigil scan, a fault by event; status 3: qemu cannot be registered; needs root, 4 minutes"
	@echo "make test-node     taints with the real scheduler, manifests and chart on a real node (kubelet, containerd); needs root, 25 minutes"
	@echo "make test-volcano  elastic training and labels with real controllers; 25 minutes, once 20 more"
	@echo "make test-anywhere TESTS=… of the last commit, as nobody and as root: path with a space, read-only home, 256 descriptors, no IPv6; needs root"
	@echo "make test-brokers  RabbitMQ, HiveMQ CE, the brokers of make test, oldest and newest aiomqtt; 7 minutes, Java 11 or newer"
	@echo "make test-alerts   causes alerts on a real Prometheus and Alertmanager; writes their times to docs/alerts.md; 15 minutes"
	@echo "make test-intruder what each intruder tries, each row without its protection; 2 minutes"
	@echo "make test-sanitized  the emulator's library and tools under address and undefined-behaviour sanitizers; 15 minutes"
	@echo "make site          the documents as pages in build/site, with a search that needs no network"
	@echo "make test-site     builds the site and reads it in a browser; 5 minutes"
	@echo "make chaos         faults and troubles: kept plans, and 20 new ones of each world (SEED=… repeats them); half an hour"
	@echo "make bench         latency on a real kube-apiserver; others: python -m benchmarks.NAME, such as scale or signals"
	@echo "make fuzz          2,000 wrong inputs for each parser, of another seed each day; five minutes"
	@echo "make fuzz-guided   inputs that reach new code, for each parser; four hours of a processor, x86_64 only; ARGS='--seconds 20' is shorter, ARGS=--resume continues"
	@echo "make lock          pins the packages of pyproject.toml anew, with their hashes"
	@echo "make wire          generates contract/wire from its .proto files"
	@echo "make picture       the picture of vigil demo in the README, of a terminal"
	@echo "make clean         removes .venv, caches and what was built"

$(VENV)/installed: pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	touch $@

demo: $(VENV)/installed
	$(BIN)/vigil demo

# Without its cache mypy takes a processor more than all other checks, so others run beside it. Below
# 4 GiB of memory nothing does.
JOBS := $(shell awk '/^MemTotal/ { print $$2 < 4000000 ? 1 : 3 }' /proc/meminfo)
BESIDE := --no-print-directory -j $(JOBS)
lint: $(VENV)/installed-dev
	$(MAKE) $(BESIDE) types style

types: $(VENV)/installed-dev
	nice $(BIN)/mypy

style: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python -m tests.retired_words
	$(BIN)/python -m tests.private_names

# What it has to build gives way to the checks.
servers:
	nice tests/setup.sh

# pytest compiles each test file and rewrites its asserts: 35 s of a processor in a fresh clone. Workers
# that start together would each do it.
collected: $(VENV)/installed-dev
	$(BIN)/pytest -q --collect-only > $(VENV)/collected || { cat $(VENV)/collected; exit 1; }

# These tests wait for programs more than for processors. VIGIL_TEST_PATIENCE multiplies all
# deadlines where the machine does other work, as the other workers are. A test that fails fails the
# run (decision 84). A third of the workers begins when `make computing` has ended (tests/conftest.py):
# with all of them beside it, tests fail by time.
together: $(VENV)/installed-dev
	VIGIL_TEST_PATIENCE=$${VIGIL_TEST_PATIENCE:-3} $(BIN)/pytest -n $$(($(WORKERS) * 3 / 2)) --dist worksteal -m waiting

# These tests hardly wait, so they give way to the others, but not further: some of them set deadlines
# of a driver, which do not grow. Their deadlines grow three times as far as those of the tests to which
# they give way: at a high load they get a processor late.
computing: $(VENV)/installed-dev
	VIGIL_TEST_PATIENCE=$${VIGIL_TEST_PATIENCE:-10} nice -n 5 $(BIN)/python -m tests.unit --computing

# Types and tests that compute are checked beside the tests that wait, which leave a part of the
# processors idle; where one of the three fails, -k lets the others go on, also where they run one after
# the other. What judges how quick something is comes behind them, with the machine for itself. To read
# all files a second time for the last dozen of tests would take a processor 12 s.
test: $(VENV)/installed-dev
	$(MAKE) $(BESIDE) style servers collected
	$(MAKE) $(BESIDE) -k types together computing
	$(BIN)/pytest -m alone $$(grep -rl --include='test_*.py' mark.alone tests)

# The slowest fifty tests of the last runs.
slow: $(VENV)/installed-dev
	$(BIN)/python -m tests.slowest

# Which tests these are, and what they may not use: tests/tiers.py.
unit: $(VENV)/installed-dev
	$(BIN)/python -m tests.unit

affected: $(VENV)/installed-dev
	$(BIN)/python -m tests.affected

# COVERED=unit measures the unit tier alone. What judges how quick something is is not measured.
COVERED ?= not alone
coverage: $(VENV)/installed-dev
	tests/setup.sh
	$(BIN)/python -m tests.measured -n $(WORKERS) --dist worksteal -m "$(COVERED)"

# By what the last `make coverage` measured.
mutants: $(VENV)/installed-dev
	$(BIN)/python -m tests.mutants --defects
	$(BIN)/python -m tests.mutants

# The commit is built, not the files: a change that is not committed is refused.
SIGNED = $(if $(KEY),--key $(abspath $(KEY)))
release: $(VENV)/installed-dev
	$(BIN)/python -m release build $(VERSION) $(SIGNED) --target aarch64:3.11 --target x86_64:3.11

bundle: $(VENV)/installed-dev
	$(BIN)/python -m release bundle $(ARCH):$(BUNDLE_PYTHON) $(SIGNED)

verify: $(VENV)/installed-dev
	$(BIN)/python -m release verify dist $(VERSION) --signers $(SIGNERS)

outdated: $(VENV)/installed-dev
	$(BIN)/pip list --outdated --disable-pip-version-check

# make itself ends with 2 where a command failed, and names the status of the command.
advisories: $(VENV)/installed-dev
	$(BIN)/python -m release advisories

# Not part of `make test`: it downloads the wheels of two processors, and is root. What names the other
# Pythons ends with 3 where there are fewer than two.
test-release: $(VENV)/installed-dev
	tests/setup.sh release
	$(BIN)/python -m tests.release.interpreters
	$(BIN)/pytest -v --timeout 900 -o python_files='real_*.py' tests/release tests/upgrade

# Not part of `make test`: it downloads wheels and a Debian for aarch64, and is root. What registers qemu
# ends with 3 where the kernel refuses it.
test-aarch64: $(VENV)/installed-dev
	tests/setup.sh aarch64
	tests/aarch64/emulation.sh true
	$(BIN)/pytest -v --timeout 900 -o python_files='real_*.py' tests/aarch64

# Not part of `make test`: it takes a machine of which it is root. The first part needs no root: the
# real scheduler and controllers act on taints of Nodes and devices.
test-node: $(VENV)/installed-dev
	tests/setup.sh node
	$(BIN)/pytest -v -o python_files='real_*.py' tests/node
	$(BIN)/python -m tests.node

# Not part of `make test`: it builds the controllers of Volcano, LeaderWorkerSets and AIBrix, once.
test-volcano: $(VENV)/installed-dev
	tests/setup.sh
	for name in volcano lws aibrix; do tests/volcano/build.sh $$name || exit; done
	$(BIN)/pytest -v -o python_files='real_*.py' tests/volcano

# Not part of `make test`: it takes root, and runs a selection twice.
TESTS ?= tests/service tests/stores/directory
test-anywhere: $(VENV)/installed-dev
	tests/setup.sh
	tests/anywhere.sh -n 2 --dist worksteal -m "not alone" $(TESTS)

# Not part of `make test`: it installs RabbitMQ and fetches HiveMQ CE. What it finds is recorded for
# the table in docs/stores.md.
test-brokers: $(VENV)/installed-dev
	tests/setup.sh brokers
	$(BIN)/pytest -v --timeout 900 -o python_files='real_*.py' tests/brokers

# Not part of `make test`: it takes ten healthy minutes. A run that passes replaces the table of
# times in docs/alerts.md, so the figures that are published come from a quiet machine.
test-alerts: $(VENV)/installed-dev
	tests/setup.sh
	$(BIN)/pytest -v -o python_files='real_*.py' tests/alerts

# Not part of `make test`, which has the same rows with their protections: it removes one after another.
test-intruder: $(VENV)/installed-dev
	tests/setup.sh
	$(BIN)/pytest -v -o python_files='real_*.py' tests/intruder

# Not part of `make test`, which runs the same tests four times faster. The sanitizer's library is
# preloaded into the tests alone. Python never frees some of its memory, so leaks are not looked for.
test-sanitized: $(VENV)/installed-dev
	tests/setup.sh
	CC="gcc -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer" \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 \
	VIGIL_TEST_PATIENCE=8 $(BIN)/pytest -q tests/dcmi_shim/emulator

# An environment of its own: the product and its tests need none of these packages.
$(VENV)/site/installed: requirements-site.lock
	$(PYTHON) -m venv $(VENV)/site
	$(VENV)/site/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-site.lock
	touch $@

# A link that leads nowhere is a warning, and a warning fails the build.
site: $(VENV)/site/installed
	$(VENV)/site/bin/sphinx-build --quiet --fail-on-warning --keep-going --jobs auto --doctree-dir build/doctrees --conf-dir docs/site . build/site

# Not part of `make test`: Sphinx takes a processor a minute.
test-site: $(VENV)/installed-dev site
	tests/setup.sh
	$(BIN)/pytest -v -o python_files='real_*.py' tests/site

# A world with something wrong keeps its plans in dist/chaos and does not hold up the others.
SEED ?= $(shell date +%s)
chaos: $(VENV)/installed-dev
	tests/setup.sh
	$(BIN)/pytest -q -o python_files='real_*.py' tests/benchmarks/chaos
	$(BIN)/python -m benchmarks.chaos --replay tests/chaos/*.json
	for plan in tests/chaos/real/*.json; do $(BIN)/python -m benchmarks.chaos --replay $$plan || exit; done
	status=0; for world in simulated directory kubernetes mqtt; do \
		echo "$$world, seed $(SEED):"; \
		$(BIN)/python -m benchmarks.chaos --world $$world --episodes 20 --seed $(SEED) --workers $$(nproc) --keep dist/chaos || status=1; \
	done; exit $$status

bench: $(VENV)/installed-dev
	tests/setup.sh
	$(BIN)/python -m benchmarks.latency

# `make test` feeds a fifth of it, always of the same seed. What fails is printed with its seed.
fuzz: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks.fuzz --seed $$(date -u +%Y%m%d)

# An environment of its own: atheris has no wheels for aarch64, and the tests do without it.
$(VENV)/fuzz/installed: requirements-fuzz.lock
	$(PYTHON) -m venv $(VENV)/fuzz
	$(VENV)/fuzz/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-fuzz.lock
	$(VENV)/fuzz/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# `ARGS=--keep` selects the inputs that `make test` feeds.
fuzz-guided: $(VENV)/fuzz/installed
	nice $(VENV)/fuzz/bin/python -m benchmarks.fuzz.guided $(ARGS)

lock: $(VENV)/installed-dev
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url pyproject.toml --extra build -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url pyproject.toml --extra build --extra dev -o requirements-dev.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url --group site -o requirements-site.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url pyproject.toml --extra build --extra fuzz -c requirements-dev.lock -o requirements-fuzz.lock

# After a newer grpcio-tools, protobuf in pyproject.toml must be as new as what it generates demands.
wire: $(VENV)/installed-dev
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. contract/wire/*.proto

# A machine that does other work gives longer times.
picture: $(VENV)/installed-dev
	$(BIN)/python -m tests.vigil.demo.picture

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .measured
