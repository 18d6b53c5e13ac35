# Every target sets up what it needs: `make test` on a fresh machine is enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DATA ?= data
SCALE ?= mini
ROWS ?= paper
# Drawn sets hold the record of how they were drawn: a folder of the same name without one is not ours.
DRAWN := synthetic_city synthetic_voc

.PHONY: help setup test fuzz lint format docs reproduce evidence tables clean

help:
	@echo "make setup       virtual environment in $(VENV) with everything for development"
	@echo "make test        ruff, mypy and all tests, on two cores"
	@echo "make fuzz        thousands of made-up configurations, lists, damaged files and odd tensors"
	@echo "make reproduce   every table and figure of the paper at SCALE=$(SCALE), from drawn data, into runs/$(SCALE);"
	@echo "                 continues where it was stopped; ROWS=all: controls and the noise floor too"
	@echo "make evidence    everything under results/ anew from this commit (PARTS='mini benchmarks': those alone): hours"
	@echo "make tables      print the tables of results/$(SCALE) without training anything"
	@echo "make format      let ruff format the code"
	@echo "make docs        the site of docs/ with its reference, into site/"
	@echo "make clean       remove the environment, drawn data, tiny weights and the runs of scale mini"

setup: $(VENV)/.installed

# Installed anew only when the dependencies change. Compiled on all cores, where pip does it on one, and without what is
# never imported here; some packages bring files that are no Python.
INSTALL = $(PYTHON) -m venv $(VENV) && \
	$(BIN)/python -m pip install --quiet --no-compile --config-settings editable_mode=compat --editable
COMPILE = $(BIN)/python -m compileall -qq -j 0 -x '/(tests?|testing|_inductor|rllib|serve|pip|setuptools|triton|nvidia)/' \
	$(VENV)/lib fpl || true

$(VENV)/.installed: pyproject.toml
	@echo "installing into $(VENV): about two minutes, most of it torch"
	$(INSTALL) '.[dev]'
	$(COMPILE)
	touch $(VENV)/.product $@

# Without what tests and checks need.
$(VENV)/.product: pyproject.toml
	@echo "installing into $(VENV): about a minute and a half, most of it torch"
	$(INSTALL) .
	$(COMPILE)
	touch $@

# mypy reads on one core beside the tests; whatever fails, the rest is seen through.
test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	# Two processes have the tests with Ray, which mostly wait for others to start.
	$(BIN)/mypy & types=$$!; \
	$(BIN)/pytest -n 3 --dist loadscope --no-loadscope-reorder; tests=$$?; \
	wait $$types && exit $$tests

# Thousands of examples for each property of tests/fuzz, of which `make test` tries a few: about ten minutes.
fuzz: setup
	$(BIN)/pytest tests/fuzz -n 2 --hypothesis-profile thorough --timeout 3600

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

reproduce: $(VENV)/.product
	$(BIN)/fpl reproduce --scale "$(SCALE)" --rows "$(ROWS)" --data-root "$(DATA)"

# What results/ holds, made anew from the present commit.
evidence: setup
	BIN="$(BIN)" DATA="$(DATA)" benchmarks/evidence.sh $(PARTS)

tables: $(VENV)/.product
	$(BIN)/fpl tables --scale $(SCALE)

# From the environment, not put into the commands: names may hold anything. A VENV of another name is ours by its marks.
clean: export DATA := $(DATA)
clean: export VENV := $(VENV)
clean:
	if [ "$$VENV" = .venv ] || [ -f "$$VENV/.installed" ] || [ -f "$$VENV/.product" ]; then rm -rf "$$VENV"; fi
	rm -rf runs/mini
	for name in $(DRAWN); do \
		if [ -f "$$DATA/$$name/drawing.json" ]; then rm -rf "$$DATA/$$name"; fi; \
	done
	for record in "$$DATA"/weights/tiny_w*_d*.pth.sha256; do rm -f "$$record" "$${record%.sha256}"; done
	if [ -d "$$DATA/weights" ]; then rmdir --ignore-fail-on-non-empty "$$DATA/weights"; fi
