# make demo      set up the environment, then train with and without label embedding on a small data set
# make test      ruff, mypy and the test suite
# make test-all  the same and the slow tests
# make bench     speed and memory against plain PyTorch
# make docs      the documentation site, in site/
# make package   wheel and source archive in dist/, checked and installed into an empty environment
# Another index or torch build: PIP_FLAGS="--index-url ..." make demo
# On Windows: in Git Bash, which brings the sh that make needs.

VENV ?= .venv
PIP_FLAGS ?=
ifeq ($(OS),Windows_NT)
PYTHON ?= python
SCRIPTS := Scripts
EXE := .exe
else
PYTHON ?= python3
SCRIPTS := bin
EXE :=
endif
BIN := $(VENV)/$(SCRIPTS)
VENV_PYTHON := $(BIN)/python$(EXE)
INSTALL := -m pip install --quiet $(PIP_FLAGS) -c constraints.txt
STAMP := $(VENV)/installed
TOOLS_STAMP := $(VENV)/installed-tools
EXTRAS := lab,text,sentencepiece,datasets,tensorboard,choose,plot,sklearn,transformers,lightning,onnx,browser,dev
TOOLS := docs,package,ray,mlflow,wandb
PACKAGE_VENV := build/package-venv

.PHONY: demo test test-all lint bench docs package clean

$(VENV_PYTHON):
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt | $(VENV_PYTHON)
	$(VENV_PYTHON) $(INSTALL) torch
	$(VENV_PYTHON) $(INSTALL) -e ".[$(EXTRAS)]"
	touch $@

# what only docs, package and the slow tests need
$(TOOLS_STAMP): $(STAMP)
	$(VENV_PYTHON) $(INSTALL) -e ".[$(TOOLS)]"
	touch $@

demo: $(STAMP)
	$(BIN)/labelemb compare digits --out runs/digits
	@echo
	@echo "Next:"
	@echo "  runs/digits/report.html   the whole comparison: open it in a browser"
	@echo "  runs/digits/heatmap.png   which digits resemble each other, as the network learned it"
	@echo "  runs/digits/curves.png    test error by epoch"
	@echo "  $(BIN)/labelemb nearest runs/digits/label-embedding/seed-0 8"

lint: $(STAMP)
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m mypy

test: $(STAMP) lint
	$(VENV_PYTHON) -m pytest -n 2 --dist loadgroup

test-all: test $(TOOLS_STAMP)
	$(VENV_PYTHON) -m pytest -m slow

bench: $(STAMP)
	$(VENV_PYTHON) -m benchmarks

docs: $(TOOLS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(VENV_PYTHON) -m mkdocs build --strict

package: $(TOOLS_STAMP)
	rm -rf dist $(PACKAGE_VENV)
	$(VENV_PYTHON) -m build --no-isolation
	$(VENV_PYTHON) -m twine check --strict dist/*
	$(VENV_PYTHON) -m venv $(PACKAGE_VENV)
	wheel=$$(echo dist/*.whl) && $(PACKAGE_VENV)/$(SCRIPTS)/python$(EXE) $(INSTALL) "$$wheel[lab]"
	$(PACKAGE_VENV)/$(SCRIPTS)/labelemb --version
	$(PACKAGE_VENV)/$(SCRIPTS)/labelemb recipes > build/recipes.txt
	$(PACKAGE_VENV)/$(SCRIPTS)/python$(EXE) -c "import labelemb, torch; head = labelemb.LabelEmbeddingHead(4, 3); head(torch.ones(2, 4), torch.tensor([0, 2])).loss.backward()"
	rm -rf $(PACKAGE_VENV)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site
