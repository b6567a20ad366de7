# make demo   set up the environment, then train with and without label embedding on a small data set
# make test   ruff, mypy and the test suite
# make bench  speed and memory against plain PyTorch
# Another index or torch build: PIP_FLAGS="--index-url ..." make demo

PYTHON ?= python3
VENV ?= .venv
PIP_FLAGS ?=
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
EXTRAS := lab,text,sentencepiece,tensorboard,plot,sklearn,transformers,lightning,onnx,browser,dev

.PHONY: demo test lint bench clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) -c constraints.txt torch
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

demo: $(STAMP)
	$(BIN)/labelemb compare digits --out runs/digits

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: $(STAMP) lint
	$(BIN)/pytest -n 2

bench: $(STAMP)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
