# Every target sets up what it needs: `make test` on a fresh machine is enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DATA ?= data
OUT ?= results/demo

.PHONY: help setup test lint format train-demo clean

help:
	@echo "make setup       virtual environment in $(VENV) with everything for development"
	@echo "make test        ruff, mypy and all tests"
	@echo "make train-demo  draw a small street data set, train FPL+CPS on it, predict its validation images"
	@echo "make format      let ruff format the code"
	@echo "make clean       remove the environment, drawn data and demo results"

setup: $(VENV)/.installed

# Installed anew only when the dependencies change.
$(VENV)/.installed: pyproject.toml
	@echo "installing into $(VENV): about two minutes, most of it torch"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --config-settings editable_mode=compat --editable '.[dev]'
	touch $@

test: setup lint
	$(BIN)/pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

train-demo: setup
	$(BIN)/fpl data draw synthetic_city --data-root $(DATA)
	$(BIN)/fpl splits make synthetic_city --fraction 1/8 --data-root $(DATA)
	$(BIN)/fpl train experiments/base/synthetic_city_fpl.toml --data-root $(DATA) --out $(OUT)
	$(BIN)/fpl predict $$(ls -t $(OUT)/checkpoints/synthetic_city-cpscutmix-fpl-*/best.pt | head -1) $(DATA)/synthetic_city/leftImg8bit/val $(OUT)/predictions --out $(OUT)

clean:
	rm -rf $(VENV) $(DATA)/synthetic_city $(DATA)/synthetic_voc $(OUT)
