# The few commands. `make demo` and `make test` work on a fresh machine: they set up what they need in .venv.

BIN := .venv/bin
CARGO := cd native && PATH="$(HOME)/.cargo/bin:$$PATH" PYO3_PYTHON="$(CURDIR)/$(BIN)/python" cargo

TOGETHER := $(MAKE) --no-print-directory --jobs=2

.PHONY: help setup setup-checks demo test soak check check-python check-rust test-rust format interop bench bench-clients bench-spark clean

help:
	@echo "make setup     create .venv, build the native core, install everything (quick when nothing changed)"
	@echo "make demo      200,000 orders through a server that is killed on the way, into Parquet, reconciled"
	@echo "make test      checks, Rust tests and the whole Python suite"
	@echo "make soak      100,000 power cuts, 100 kills, 1,000,000 damaged inputs per decoder, half an hour of clients, 10,000 connections: some hours"
	@echo "make check     ruff, mypy, import contracts, rustfmt, clippy"
	@echo "make format    let ruff and rustfmt rewrite the source"
	@echo "make interop   only the tests against unmodified Apache clients and servers (Java and Maven)"
	@echo "make bench     RockMQ beside Apache's broker, same load, same run (Java and Maven)"
	@echo "make bench-clients  RockMQ's client beside aiokafka, nats-py and Apache's for Java and Python (Java, Maven and Go)"
	@echo "make bench-spark    the Spark source and sink beside Spark's own for Kafka, on a real Kafka (Java and Maven)"

setup:
	@scripts/setup.sh

setup-checks:
	@scripts/setup.sh checks

demo: setup
	@$(BIN)/rockmq demo $(ARGS)

# The Python suite comes last, so that its summary is the last thing to read. Three at a time, also on two processors: those
# with other servers mostly wait.
test: setup-checks
	@$(TOGETHER) check-python test-rust
	$(BIN)/pytest -n 3 $(ARGS)

test-rust: check-rust
	$(CARGO) test --quiet

soak: setup
	export ROCKMQ_FUZZ_INPUTS=1000000; $(CARGO) test --quiet fuzz
	ROCKMQ_FUZZ_INPUTS=1000000 $(BIN)/pytest -s tests/fuzz $(ARGS)
	ROCKMQ_KILLS=100 $(BIN)/pytest -s tests/crash/test_kill.py $(ARGS)
	ROCKMQ_CRASH_IMAGES=100000 $(BIN)/pytest -s tests/crash/test_points.py $(ARGS)
	ROCKMQ_SPARK_KILLS=20 $(BIN)/pytest -s tests/spark/test_stream_kills.py $(ARGS)
	ROCKMQ_SPARK_KILLS=50 $(BIN)/pytest -s tests/spark/test_kills.py $(ARGS)
	ROCKMQ_SOAK_SECONDS=1800 ROCKMQ_CONNECTIONS=10000 $(BIN)/pytest -s tests/soak $(ARGS)

check: setup-checks
	@$(TOGETHER) check-python check-rust

check-python:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check-rust:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings

format: setup-checks
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(CARGO) fmt --all

interop: setup
	$(BIN)/pytest -n 3 tests/interop $(ARGS)

bench: setup
	$(BIN)/python benchmarks/macro.py $(ARGS)

bench-clients: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers/requirements.txt
	$(BIN)/python benchmarks/clients.py $(ARGS)

bench-spark: setup
	$(BIN)/python benchmarks/spark.py $(ARGS)

# What can be made again; the data of a server stays.
clean:
	rm -rf .venv .cache native/target .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
