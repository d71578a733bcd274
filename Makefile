# SPDX-License-Identifier: Apache-2.0

# The commands people type. Bazel does the work; see README.md.
SHELL := /bin/bash
PREFIX ?= /usr/local
RANKS ?= 2
BAZEL ?= bazel
comma := ,
space := $(subst ,, )
# Where the output is no terminal: a line a minute.
PROGRESS := $(shell [ -t 2 ] || echo --show_progress_rate_limit=60)

.PHONY: help setup demo build bindings test test-torch test-frameworks test-paddle test-jax test-tensorflow suites bench chaos simulate fuzz gpu-test gpu-bench gpu-bundle install uninstall wheel image deb check check-sources format asan ubsan tsan docs clean
.DEFAULT_GOAL := help

help: ## list these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: ## install the Debian packages that are missing (once)
	@third_party/install.sh build test

demo: ## train LeNet-5 on MNIST digits on 2 ranks (RANKS=n for others)
	@third_party/install.sh build
	$(BAZEL) build $(PROGRESS) //programs/rondarun:rondarun //examples/lenet_mnist
	.bazel/bin/programs/rondarun/rondarun -np $(RANKS) .bazel/bin/examples/lenet_mnist/lenet_mnist --data examples/lenet_mnist/data

build: ## build everything
	@third_party/install.sh build test bench
	$(BAZEL) build $(PROGRESS) //...

bindings: ## rewrite what follows from the C headers: client/python/ronda/_native.pyi, _rows.py and types.py
	@tools/bindings/bindings.py write

test: ## run every test, those of PyTorch with Debian's and with pip's newest, those of Paddle, JAX, TensorFlow and Keras with pip's newest; ends with "N passed, N failed"
	@third_party/install.sh build test bench deb docs
	@BAZEL=$(BAZEL) tests/run_every_test.sh

test-torch: ## the tests of the Python package and of ronda/torch.hpp with another PyTorch (TORCH=2.6.0; or the newest)
	@third_party/install.sh build test
	@BAZEL=$(BAZEL) tools/torch/test_torch.sh "$(or $(TORCH),newest)"

test-frameworks: ## the tests of Accelerate, transformers, Lightning, ignite, DeepSpeed, Ray, torchft and of the manifests for Kubernetes, beside PyPI's newest PyTorch (TORCH=2.15.0 for another)
	@third_party/install.sh build test
	@BAZEL=$(BAZEL) tools/frameworks/test_frameworks.sh $(TORCH)

test-paddle: ## the tests of ronda.paddle with PyPI's Paddle for CPUs, in a virtual environment (PADDLE=2.6.2; or the newest)
	@third_party/install.sh build test
	@BAZEL=$(BAZEL) tools/paddle/test_paddle.sh "$(or $(PADDLE),newest)"

test-jax: ## the tests of ronda.jax with PyPI's JAX for CPUs, in a virtual environment (JAX=0.5.0; or the newest)
	@third_party/install.sh build test
	@BAZEL=$(BAZEL) tools/jax/test_jax.sh "$(or $(JAX),newest)"

test-tensorflow: ## the tests of ronda.tensorflow and ronda.keras with PyPI's TensorFlow for CPUs, in a virtual environment (TENSORFLOW=2.21.0; or the newest)
	@third_party/install.sh build test
	@BAZEL=$(BAZEL) tools/tensorflow/test_tensorflow.sh "$(or $(TENSORFLOW),newest)"

suites: RANKS = 3
suites: ## other people's suites over Ronda: torch's DistributedTest, Horovod's tests (HOROVOD=checkout, PYTHON=python3, RANKS=3, SUITES="...")
	@third_party/install.sh build test
	$(BAZEL) build $(PROGRESS) //client/python:package
	@PYTHONPATH="$(CURDIR)/.bazel/bin/client/python/package" OMP_NUM_THREADS=1 $(or $(PYTHON),python3) tests/python/suites/run_suites.py \
	  --ranks $(RANKS) --jobs "$$(nproc)" \
	  $(if $(HOROVOD),--horovod "$(HOROVOD)") $(SUITES:%=--suite %) $(if $(FILTER),--filter "$(FILTER)")

chaos: ## 300 rounds of random operations and injuries; three elastic jobs, 10 minutes of kills each (CHAOS_ROUNDS=n, CHAOS_SECONDS=n, CHAOS_SEED=n)
	@third_party/install.sh build test
	@tests/run_tests.sh --test_env=CHAOS_ROUNDS=$(or $(CHAOS_ROUNDS),300) --test_env=CHAOS_SECONDS=$(or $(CHAOS_SECONDS),600) \
	  --test_env=CHAOS_SEED --nocache_test_results --test_timeout=3600 //tests/chaos/... //tests/python/torch:elastic_chaos_test

simulate: SECONDS = 60
simulate: ## elastic jobs under faults in virtual time, and then the control plane over TCP (SECONDS=n for each, FIRST=seed; see docs/simulation.md)
	@third_party/install.sh build test
	$(BAZEL) build $(PROGRESS) //tests/simulation:simulate
	.bazel/bin/tests/simulation/simulate --seconds=$(SECONDS) --first=$(or $(FIRST),1)
	.bazel/bin/tests/simulation/simulate --control --seconds=$(SECONDS) --first=$(or $(FIRST),1)

fuzz: ## every fuzz target for a minute (FUZZ_SECONDS=n for others); 10,000 random Python programs of each kind (FUZZ_PROGRAMS=n, FUZZ_SEED=n, TEST_PYTHON=python3)
	@third_party/install.sh build test fuzz
	@BAZEL=$(BAZEL) tests/fuzz/run.sh
	@tests/run_tests.sh --test_env=FUZZ_PROGRAMS=$(or $(FUZZ_PROGRAMS),10000) --test_env=FUZZ_SEED --test_env=TEST_PYTHON \
	  --nocache_test_results --test_timeout=3600 //tests/python/fuzz/...

bench: ## compare with MPI and Gloo, ten minutes; writes bench-report/ (BENCH_SCALE=0.1 for a shorter look)
	@third_party/install.sh build bench
	@BAZEL=$(BAZEL) bench/make_bench.sh

gpu-test: gpu-folder ## tests that need a GPU; without one, says so
	@gpu-bundle/run.sh test

gpu-bench: gpu-folder ## benchmarks that need a GPU, and a table of the figures that have an aim
	@gpu-bundle/run.sh bench

gpu-bundle: ## gpu-bundle.tar.xz: both, for a machine with a GPU and without Bazel (run.sh plan, test, bench or sanitize)
	@third_party/install.sh build test
	@BAZEL=$(BAZEL) tools/gpu/bundle.sh gpu-bundle

# Where there is no Bazel, a bundle that was unpacked here will do.
.PHONY: gpu-folder
gpu-folder:
	@if command -v $(BAZEL) > /dev/null; then $(MAKE) --no-print-directory gpu-bundle; else test -x gpu-bundle/run.sh; fi

install: ## install library, headers, Python package, rondarun, ronda-bench, and plugins for what is here, under PREFIX (/usr/local)
	@third_party/install.sh build
	$(BAZEL) build $(PROGRESS) //client/packaging:install $$(client/packaging/optional_parts.sh targets)
	$(BAZEL) run $(PROGRESS) //client/packaging:install -- "$(PREFIX)" "$(CURDIR)/.bazel/bin"

uninstall: ## remove what make install has put under PREFIX (/usr/local)
	@client/packaging/uninstall.sh "$(PREFIX)"

wheel: ## the Python package for pip, in dist/: ronda-VERSION-cp310-abi3-manylinux_2_34_x86_64.whl
	@third_party/install.sh build bench
	$(BAZEL) run $(PROGRESS) //client/packaging:wheel -- "$(CURDIR)/dist"

image: wheel ## a container image of Debian, NumPy and the wheel, in dist/: podman load -i dist/ronda-VERSION.image.tar (PACKAGES=python3-torch for more of Debian)
	@third_party/install.sh image
	mmdebstrap --variant=minbase --include="$(subst $(space),$(comma),$(strip python3 python3-cloudpickle python3-numpy $(PACKAGES)))" bookworm dist/base.tar
	client/packaging/image.py dist/base.tar "$$(ls -t dist/ronda-*.whl | head -n 1)" dist
	@rm dist/base.tar

deb: ## Debian packages, in dist/: ronda, libronda0, libronda-dev, python3-ronda
	@third_party/install.sh build bench deb
	$(BAZEL) build $(PROGRESS) //client/packaging:install $$(client/packaging/optional_parts.sh targets)
	$(BAZEL) run $(PROGRESS) //client/packaging:deb -- "$(CURDIR)/dist" "$(CURDIR)/.bazel/bin"

.PHONY: release
release: ## says whether this commit can be released, and what a release does; PUBLISH=1 builds the packages and makes the tag
	@tools/release/release.py $(if $(PUBLISH),--publish)

docs: ## the site of the documentation: build/docs/html/index.html; warnings are errors
	@third_party/install.sh docs
	@tools/docs/build_site.py build/docs

check: ## the rules for sources and docs, types of Python, clang-tidy, thread safety; of what differs from main (ALL=1: of everything)
	@third_party/install.sh build test bench check lint
	@BAZEL=$(BAZEL) tools/check/check.sh $(if $(ALL),--all)

check-sources: ## the part of make check that builds nothing: seconds (ALL=1: of everything)
	@third_party/install.sh check
	@tools/check/check.sh --no-build $(if $(ALL),--all)

format: ## reformat the sources in C, C++, CUDA, Proto and Python
	@third_party/install.sh check
	@git ls-files '*.c' '*.cc' '*.cu' '*.cuh' '*.h' '*.hpp' '*.proto' | xargs clang-format-14 -i
	@$$(tools/check/environment.sh) -m ruff format --quiet client bench examples tests tools

asan: ## every test under the address and undefined-behaviour sanitizers
	@third_party/install.sh build test bench
	@tests/run_tests.sh --config=asan //...

# The tests of the code that reads settings and command lines. From an empty cache they take 158 s of processor time
# (measured beside other programs), so about 80 s on two cores; most of it is the compiler's.
ASAN_SLICE := //tests/runtime/base:base_test //tests/programs/options:options_test

.PHONY: asan-slice
asan-slice: ## the tests of settings and command lines under these sanitizers, 80 s on two cores from an empty cache
	@third_party/install.sh build test
	@tests/run_tests.sh --config=asan $(ASAN_SLICE)

ubsan: ## every test under the undefined-behaviour sanitizer alone
	@third_party/install.sh build test bench
	@tests/run_tests.sh --config=ubsan //...

tsan: ## every test under the thread sanitizer
	@third_party/install.sh build test bench
	@tests/run_tests.sh --config=tsan //...

clean: ## forget what was built (the disk cache stays)
	$(BAZEL) clean
