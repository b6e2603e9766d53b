# The everyday commands; `make help` lists them. CMake does the building, in build/<preset>.
PREFIX ?= /usr/local
PYTHON ?= python3
WERROR ?= OFF
ARGS ?=

CMAKE_LOG := --log-level=NOTICE
RELEASE := build/release
ifndef CMAKE_GENERATOR # found when it is used: `make setup` may have installed Ninja
CMAKE_GENERATOR = $(if $(shell command -v ninja 2>/dev/null),Ninja,Unix Makefiles)
endif
export CMAKE_GENERATOR
MAKEFLAGS += --no-print-directory
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: all configure setup setup-mpi setup-test setup-full release command python python-full demo demo-mpi test test-all test-cuda bench bench-cliffs bench-python lint \
        format site dist release-check install uninstall clean help
.DEFAULT_GOAL := all
.NOTPARALLEL: # prerequisites run in the order written; CMake builds in parallel
all: release

# Only these targets, and those that name them, install packages.
setup:
	@scripts/setup.sh basic
setup-mpi: setup
	@scripts/setup.sh mpi
setup-test: setup
	@scripts/setup.sh test
setup-full: setup
	@scripts/setup.sh full

configure:
	@scripts/setup.sh check
	@cmake --preset release $(CMAKE_LOG) -DSWITCHYARD_WERROR=$(WERROR) $(CMAKE_FLAGS) $(INSTALL_FLAGS) >/dev/null

# On a terminal Ninja shows its progress in one line; in a log it would be hundreds.
BUILD = cmake --build $(RELEASE) $(1) $$([ -t 1 ] || ! [ -e $(RELEASE)/build.ninja ] || ! ninja --help 2>&1 | grep -q -e --quiet || echo -- --quiet)

release: configure
	@$(call BUILD)

# The command line and what it needs: libswitchyard_cuda, which takes longest, only where a device is asked for.
command: configure
	@[ -x $(RELEASE)/switchyard ] || echo 'make: building the library and its command line'
	@$(call BUILD,--target switchyard_command$(if $(DEVICE)$(findstring --device,$(ARGS)),_cuda))
	@[ -x $(RELEASE)/switchyard ] || { echo 'make: the command line was not built: it needs jansson (make setup, or the' \
	    'package libjansson-dev) and SWITCHYARD_CLI=ON' >&2; exit 1; }

# Three prompts in one batch, with the small model of examples/moe_lm: the same text on every machine.
WRITE_TEXT = [ ! -x $(RELEASE)/moe_lm ] || { printf '\n   A language model on these operators (examples/moe_lm) writes:\n\n' && \
    $(RELEASE)/moe_lm examples/moe_lm/model --tokens 48 --temperature 0.7 --seed 1 --page demo-text.html --time \
        --prompt 'In the beginning' --prompt 'And the king said unto' --prompt 'Blessed are' && \
    echo '   Open demo-text.html to see which experts each token used.'; }

demo: setup command
	@$(RELEASE)/switchyard demo $(if $(DEVICE),--device $(DEVICE)) $(ARGS)
	@$(if $(ARGS),:,$(WRITE_TEXT))

demo-mpi: setup-mpi command
	@$(PYTHON) scripts/mpirun.py -n 4 $(RELEASE)/switchyard demo $(ARGS)

python: setup-test
	@$(PYTHON) scripts/python_env.py $(if $(filter ON,$(WERROR)),--werror)

python-full: setup-full
	@$(PYTHON) scripts/python_env.py --full $(if $(filter ON,$(WERROR)),--werror)

test: setup-test release python
	@$(PYTHON) scripts/run_tests.py $(RELEASE) --tier quick --junit build/junit.xml $(ARGS)

test-all: setup-full release python-full
	@$(PYTHON) scripts/test_all.py $(ARGS)

test-cuda:
	@$(PYTHON) scripts/test_cuda.py $(ARGS) -- $(CMAKE_FLAGS)

bench: command
	@$(RELEASE)/switchyard bench $(ARGS)

bench-cliffs: command
	@$(RELEASE)/switchyard bench --device cuda --cliffs $(or $(N),200) $(ARGS)

bench-python: python
	@cmake --build build/python --target switchyard_python_bench >/dev/null
	@build/venv/bin/python python/bench/calls.py $(ARGS)

lint: setup-full release python-full
	@$(PYTHON) scripts/lint.py $(ARGS)

format: setup-full python-full
	@$(PYTHON) scripts/lint.py --format

site: command
	@$(PYTHON) scripts/make_site.py $(RELEASE)/switchyard build/site && echo 'make: build/site/index.html'

dist:
	@$(PYTHON) packaging/release.py dist

release-check:
	@scripts/setup.sh release
	@$(PYTHON) packaging/release.py $(ARGS)

install: INSTALL_FLAGS = -DCMAKE_INSTALL_PREFIX:PATH='$(PREFIX)' # not in CMAKE_FLAGS, which the command line may set
install: release
	@cmake --install $(RELEASE)
	@sed 's|^|$(DESTDIR)|' $(RELEASE)/install_manifest.txt >$(RELEASE)/installed.txt
	@[ -z '$(filter /usr /usr/local,$(PREFIX))' ] || [ -n '$(DESTDIR)' ] || [ "$$(id -u)" != 0 ] || ldconfig

uninstall:
	@[ -e $(RELEASE)/installed.txt ] || { echo 'make: no list of installed files: $(RELEASE)/installed.txt' >&2; exit 1; }
	@while IFS= read -r file || [ -n "$$file" ]; do rm -f "$$file" || exit 1; folder=$${file%/*}; \
	    while case $$folder in */switchyard|*/switchyard/*) rmdir "$$folder" 2>/dev/null;; *) false;; esac; do \
	        folder=$${folder%/*}; done; \
	done <$(RELEASE)/installed.txt
	@rm $(RELEASE)/installed.txt

clean:
	rm -rf build demo.html demo-mpi.html demo-text.html

help:
	@echo 'make            build the library, the command line, examples and tests into build/release'
	@echo 'make demo       one MoE decode step, narrated, then text by a small language model; writes demo.html, demo-text.html'
	@echo 'make demo-mpi   its exchange between four processes; writes demo-mpi.html'
	@echo 'make python     the Python package and what its tests need, in build/venv; python-full: with PyTorch, JAX and more'
	@echo 'make test       build and run the tests, in minutes; report in build/junit.xml (ARGS="--match sample")'
	@echo 'make test-all   for maintainers: longer tests, PyTorch, JAX, sanitizers, compilers, lint (ARGS="more asan")'
	@echo 'make test-cuda  build for the GPU of this machine, run the C tests on it, then compute-sanitizer; without a GPU: a line'
	@echo 'make bench      time the operators against a copy of the same bytes (ARGS="sample --shape k=50 --peers")'
	@echo 'make bench-cliffs   N=200 random neighbours of its cases on the GPU: which of them are slow for their bytes'
	@echo 'make bench-python   what a call from Python costs beyond the C call'
	@echo 'make lint       clang-format, clang-tidy, cppcheck, ruff, mypy, header and structure checks'
	@echo 'make format     let clang-format and ruff rewrite the sources'
	@echo 'make site       the documentation as a site, in build/site, by mkdocs-material, which pip puts into build/site-venv'
	@echo 'make dist       the archive of the sources, of the commit at HEAD, in build/dist; make release-check: also wheels, Debian and'
	@echo '                Conan packages, checked on a bare system, with other compilers and releases (ARGS="wheel bare"; needs root)'
	@echo 'make install    build, then install below PREFIX (default /usr/local), DESTDIR honoured; PREFIX=$$HOME/.local needs no root'
	@echo 'make uninstall  remove what the last make install wrote'
	@echo 'make setup      install with apt what make and make demo need; setup-mpi, setup-test, setup-full: more'
	@echo 'make clean      remove build/'
	@echo 'make help       this list'
	@echo 'make, make install and make bench install no packages: parts that are missing are named and left out, or with'
	@echo 'CMAKE_FLAGS=-DSWITCHYARD_CLI=OFF and the like not looked for. The demos, python, test, test-all, release-check, lint and format run'
	@echo 'make setup first; SKIP_SETUP=1 turns that off.'
