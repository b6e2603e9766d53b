# The everyday commands; `make help` lists them. CMake does the building, in build/<preset>.
PREFIX ?= /usr/local
PYTHON ?= python3
WERROR ?= OFF
ARGS ?=

CMAKE_LOG := --log-level=NOTICE
RELEASE := build/release
export CMAKE_GENERATOR ?= Ninja
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: all setup setup-mpi setup-test setup-full release python demo demo-mpi test test-all bench bench-python lint format install clean help
.DEFAULT_GOAL := all
all: release

setup:
	@scripts/setup.sh basic
setup-mpi: setup
	@scripts/setup.sh mpi
setup-test: setup
	@scripts/setup.sh test
setup-full: setup
	@scripts/setup.sh full

release: setup
	@cmake --preset release $(CMAKE_LOG) -DSWITCHYARD_WERROR=$(WERROR) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(RELEASE)

demo: release
	@$(RELEASE)/switchyard demo $(ARGS)

demo-mpi: setup-mpi release
	@$(PYTHON) scripts/mpirun.py -n 4 $(RELEASE)/switchyard demo $(ARGS)

python: setup-test
	@$(PYTHON) scripts/python_env.py $(if $(filter ON,$(WERROR)),--werror)

test: setup-test release python
	@$(PYTHON) scripts/run_tests.py $(RELEASE) --junit build/junit.xml $(ARGS)

test-all: setup-full release python
	@$(PYTHON) scripts/test_all.py $(ARGS)

bench: release
	@$(RELEASE)/switchyard bench $(ARGS)

bench-python: python
	@cmake --build build/python --target switchyard_python_bench >/dev/null
	@build/venv/bin/python python/bench/calls.py $(ARGS)

lint: setup-full release python
	@$(PYTHON) scripts/lint.py $(ARGS)

format: setup-full python
	@$(PYTHON) scripts/lint.py --format

install: CMAKE_FLAGS += -DCMAKE_INSTALL_PREFIX=$(PREFIX)
install: release
	@cmake --install $(RELEASE) $(if $(DESTDIR),,&& { [ "$$(id -u)" != 0 ] || ldconfig; })

clean:
	rm -rf build demo.html demo-mpi.html

help:
	@echo 'make            build the library and the command line into build/release'
	@echo 'make demo       one MoE decode step, narrated; writes demo.html'
	@echo 'make demo-mpi   its exchange between four processes; writes demo-mpi.html'
	@echo 'make python     the Python package and what its tests need, in build/venv'
	@echo 'make test       build and run all tests; report in build/junit.xml (ARGS="--match sample")'
	@echo 'make test-all   sanitizers, other compiler and architecture, fuzzing, lint (ARGS="asan fuzz")'
	@echo 'make bench      time the operators against a copy of the same bytes (ARGS="sample --shape k=50 --peers")'
	@echo 'make bench-python   what a call from Python costs beyond the C call'
	@echo 'make lint       clang-format, clang-tidy, cppcheck, ruff, mypy, header and structure checks'
	@echo 'make format     let clang-format and ruff rewrite the sources'
	@echo 'make install    install below PREFIX (default /usr/local), DESTDIR honoured'
	@echo 'make clean      remove build/'
	@echo 'Missing Debian packages are installed with apt first; SKIP_SETUP=1 turns that off.'
