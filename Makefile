# Two commands do everything, set-up included:  make train   make test
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEED ?= 0
METHOD ?= plr-cenie
# Tests recompile the same small programs again and again: keep the compiled ones on disk. Tests of one file
# often share one in memory too: `--dist worksteal` keeps them on one worker as long as it can.
TEST_ENV := JAX_PLATFORMS=cpu JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.cache/xla \
  JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1

.PHONY: train test test-all test-fast test-every lint style types-oldest types-newest browser site benchmark release students clean

train: $(VENV)/report
	$(BIN)/cenie train maze $(METHOD) --preset quick --seed $(SEED) --report $(ARGS)

# The installation and the browser are waiting for the network side by side, and types are checked while tests run.
test:
	$(MAKE) -j2 $(VENV)/dev browser
	$(MAKE) -j2 style types-oldest test-fast

test-all:
	$(MAKE) -j2 $(VENV)/dev browser
	$(MAKE) -j2 lint test-every

test-fast: $(VENV)/dev
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" $(ARGS)

test-every: $(VENV)/dev
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

lint: style types-oldest types-newest

style: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types-oldest: $(VENV)/dev
	$(BIN)/pyright --pythonversion 3.11

types-newest: $(VENV)/dev
	$(BIN)/pyright --pythonversion 3.14

# The page is tried in a real browser. Without one its tests are skipped, and with CI=true they fail.
browser:
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium chromium-driver fonts-dejavu-core \
	    >/dev/null || echo "chromium could not be installed: the page will not be tried in a browser"; \
	else \
	  echo "no chromium here: the page will not be tried in a browser (apt-get install chromium chromium-driver)"; \
	fi

# A link that leads nowhere, or any other warning, fails. The variable leaves out a notice of the theme.
site: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "the site: .cache/site/index.html"

benchmark: $(VENV)/dev
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev,benchmark]'
	$(BIN)/python -m benchmarks $(ARGS)

# Checks and tags; pushing the tag publishes.
release:
	@$(PYTHON) .ci/release.py $(VERSION)

# Small trained students of the three domains, as archives for a release: some 40 minutes on two cores.
students: $(VENV)/report
	$(BIN)/python .ci/students.py $(ARGS)

# The stamp files say which extras are installed; a changed pyproject or constraints file installs again.
# The bridge to gymnax is tested with its old API too: a second copy lies where only those tests look.
# Python compiles modules when they are first imported: of eleven thousand the tests need one in five.
$(VENV)/report: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[report]'
	touch $@

$(VENV)/dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --no-compile -c constraints.txt -e '.[dev]'
	rm -rf $(VENV)/gymnax0
	$(BIN)/python -m pip install -q --no-compile --no-deps --target $(VENV)/gymnax0 gymnax==0.0.9
	touch $@ $(VENV)/report $(VENV)/docs

$(VENV)/docs: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) .cache
