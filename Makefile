# Needs Python >= 3.11, pip and make; everything else goes into .venv.
#
#   make report     the default report -> reports/index.html
#   make test       the quick tier (minutes); test-full (an hour or two), test-deep (hours)
#   make test-torch the tests of the PyTorch front end, in .venv-torch with a pinned torch
#   make test-huggingface   transformers, accelerate and Lightning on it, in .venv-huggingface
#   make test-tensorflow   those of the TensorFlow front end, in .venv-tensorflow
#   make test-distributed  those of trainings and sweeps on several processes: gRPC, MPI, Dask
#   make test-proofs       those that prove formulas of kernels with an SMT solver, in .venv-proofs
#   make test-frontends    those of every front end, with the times of installing and testing
#   make test-aarch64      the digests, and tests of the processor, on an emulated ARM of 64 bits
#   make wheel      a wheel in dist/ with compiled kernels for the processors that this one can be
#   make site       the documentation as a site -> docs/_build/html/index.html
#   make gallery    the full run of every experiment, compared bit for bit with its record (an hour or two)
#   make site-versions  the same, copied beside the sites of other versions
#   make lint       ruff and mypy
#   make clean      forget .venv and caches

PYTHON  ?= python3
WORKERS ?= 2
SEED    ?= 0
VERSIONS ?= docs/_build/versions

VENV := .venv
RUN  := $(VENV)/bin/python

# A stamp per set of extras remembers where .venv was made: a moved folder or a vanished
# interpreter starts again, pyproject.toml changed installs again.
HERE := $(shell pwd -P)
ifneq ($(shell cat $(VENV)/made-in 2>/dev/null; $(RUN) -c 'print("works")' 2>/dev/null),$(HERE) works)
  $(shell rm -rf $(VENV)/has-*)
endif

.PHONY: report test test-full test-deep test-torch test-huggingface test-tensorflow \
  test-distributed test-proofs test-frontends test-aarch64 wheel site gallery site-versions lint clean
.NOTPARALLEL:

report: $(VENV)/has-base
	$(VENV)/bin/fpsim report --seed $(SEED)

test: $(VENV)/has-test
	FPSIM_TIER=quick $(RUN) -m pytest -q -n $(WORKERS) --dist worksteal

test-full: $(VENV)/has-test
	FPSIM_TIER=full $(RUN) -m pytest -q -n $(WORKERS) --dist worksteal

test-deep: $(VENV)/has-test
	FPSIM_TIER=deep $(RUN) -m pytest -q -n $(WORKERS) --dist worksteal

# Each front end has an environment of its own; .venv stays without their frameworks.
test-torch:
	$(MAKE) --no-print-directory VENV=.venv-torch .venv-torch/has-test-torch
	FPSIM_TIER=quick .venv-torch/bin/python -m pytest -q -n $(WORKERS) --dist worksteal \
	  tests/ipu/frontends tests/fpsim/test_torch.py tests/fpsim/test_torchao.py ipu/frontends \
	  tests/fpsim/test_poptorch.py fpsim/torch.py \
	  tests/experiments/commands/programs/test_torch.py \
	  tests/experiments/commands/programs/test_plan.py \
	  tests/experiments/commands/programs/test_diagnose.py \
	  tests/experiments/training/test_torch_where_it_hurts.py \
	  tests/experiments/training/test_half_networks.py \
	  tests/experiments/bench/steps/test_torch_networks.py tests/experiments/bench/test_train.py \
	  tests/experiments/bench/test_learned.py \
  tests/experiments/blocks/test_which_four_bits.py tests/experiments/commands/test_bench.py \
	  tests/experiments/execution/test_mnist_network.py \
	  tests/experiments/execution/test_mnist_pipeline.py \
	  tests/experiments/programs/test_mnist_pipeline.py tests/test_blocks.py \
	  tests/site/test_notebooks.py tests/site/test_examples.py

# No part of test-frontends: an environment of its own, and minutes that other tests do not need.
test-huggingface:
	$(MAKE) --no-print-directory VENV=.venv-huggingface .venv-huggingface/has-test-huggingface
	FPSIM_TIER=quick .venv-huggingface/bin/python -m pytest -q -n $(WORKERS) --dist worksteal \
	  tests/ipu/frontends/torch/huggingface

test-tensorflow:
	$(MAKE) --no-print-directory VENV=.venv-tensorflow .venv-tensorflow/has-test-tensorflow
	FPSIM_TIER=quick .venv-tensorflow/bin/python -m pytest -q -n $(WORKERS) --dist worksteal \
	  tests/ipu/frontends/tensorflow ipu/frontends/tensorflow fpsim/tf.py \
	  tests/fpsim/test_tf.py tests/experiments/commands/programs/test_tf.py \
	  tests/experiments/commands/programs/test_diagnose_graphs.py \
	  tests/experiments/listings tests/experiments/programs/test_ipuestimator_fp16.py \
	  tests/experiments/bench/test_graphs.py \
	  tests/test_blocks.py tests/site/test_notebooks.py tests/site/test_examples.py

test-distributed:
	$(MAKE) --no-print-directory VENV=.venv-distributed .venv-distributed/has-test-distributed
	FPSIM_TIER=quick .venv-distributed/bin/python -m pytest -q -n $(WORKERS) --dist worksteal \
	  tests/ipu/members ipu/members \
	  tests/ipu/frontends/horovod tests/ipu/frontends/popdist tests/ipu/frontends/processes \
	  tests/experiments/sweep \
	  tests/experiments/commands/programs/test_poprun.py tests/experiments/commands/test_sweep.py \
	  tests/experiments/programs/test_distributed_training.py \
	  tests/experiments/lab/test_instances.py tests/experiments/lab/test_study.py \
	  tests/experiments/bench/test_collectives.py tests/experiments/execution/test_scaling.py \
	  tests/experiments/execution/test_distributed_orders.py tests/test_blocks.py

test-proofs:
	$(MAKE) --no-print-directory VENV=.venv-proofs .venv-proofs/has-test-proofs
	FPSIM_TIER=quick .venv-proofs/bin/python -m pytest -q -n $(WORKERS) --dist worksteal \
	  tests/fpsim/judge/proofs fpsim/judge/proofs tests/experiments/commands/test_verify.py \
	  tests/test_blocks.py

test-frontends:
	@worst=0; for name in torch tensorflow distributed; do \
	  start=$$(date +%s); \
	  $(MAKE) --no-print-directory VENV=.venv-$$name .venv-$$name/has-test-$$name; \
	  installed=$$(date +%s); $(MAKE) --no-print-directory test-$$name || worst=$$?; \
	  echo "$$name: installed in $$((installed - start)) s," \
	    "tested in $$(($$(date +%s) - installed)) s"; \
	done; exit $$worst

# No part of test-frontends or of continuous integration: it needs QEMU, and a Debian of arm64 in
# FPSIM_AARCH64; without them it says so.
test-aarch64: $(VENV)/has-test
	FPSIM_TIER=quick $(RUN) -m tests.aarch64

wheel: $(VENV)/has-base
	rm -rf fpsim/kernels/packs
	$(VENV)/bin/fpsim warmup --pack fpsim/kernels/packs
	$(RUN) -m pip wheel --quiet --no-deps --wheel-dir dist .

# Without a network; a warning is an error. It computes the quick run of every experiment, which takes
# minutes, so it is no part of the tests. FPSIM_RECORD=1 records anew what pages print and these runs compute.
site:
	$(MAKE) --no-print-directory VENV=.venv-site .venv-site/has-site
	.venv-site/bin/python -m sphinx -b html -W --keep-going -q docs docs/_build/html
	FPSIM_SITE=docs/_build/html .venv-site/bin/python -m pytest -q tests/site
	@echo docs/_build/html/index.html

# What an interrupted one has computed is not computed again. FPSIM_RECORD=1 writes the records anew;
# NAMES="swamping partials" computes these.
gallery:
	$(MAKE) --no-print-directory VENV=.venv-site .venv-site/has-site
	.venv-site/bin/python docs/extensions/full_runs.py $(NAMES)

# Beside the sites of other versions, each with a list that leads to them.
site-versions: site
	.venv-site/bin/python docs/extensions/versions.py docs/_build/html $(VERSIONS)

lint: $(VENV)/has-lint
	$(RUN) -m ruff check .
	$(RUN) -m mypy

clean:
	rm -rf $(VENV) .venv-torch .venv-huggingface .venv-tensorflow .venv-distributed .venv-proofs .venv-site docs/_build .pytest_cache .mypy_cache \
	  .ruff_cache .hypothesis

$(VENV)/has-base: INSTALL := .
$(VENV)/has-test: INSTALL := .[test]
$(VENV)/has-lint: INSTALL := .[test,lint]
$(VENV)/has-test-torch: INSTALL := .[test,test-torch]
$(VENV)/has-test-huggingface: INSTALL := .[test,test-huggingface]
$(VENV)/has-test-tensorflow: INSTALL := .[test,test-tensorflow]
$(VENV)/has-test-proofs: INSTALL := .[test-proofs]
$(VENV)/has-site: INSTALL := .[site]
$(VENV)/has-test-distributed: INSTALL := .[test,test-distributed]
$(VENV)/has-%: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	  "fpsim needs Python 3.11 or newer, got " + sys.version.split()[0] + "; use: make PYTHON=python3.12")'
	@[ "$$(cat $(VENV)/made-in 2>/dev/null)" = "$(HERE)" ] && $(RUN) -m pip --version >/dev/null 2>&1 \
	  || { echo "making $(VENV)"; rm -rf $(VENV); $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 \
	       || { rm -rf $(VENV); $(PYTHON) -m venv --without-pip $(VENV) \
	            && $(PYTHON) -m pip --python $(RUN) install --quiet pip; }; \
	       pwd -P > $(VENV)/made-in; }
	@echo "installing $(INSTALL) into $(VENV)"
	@$(RUN) -m pip install --quiet --disable-pip-version-check -e '$(INSTALL)'
	@touch $@
