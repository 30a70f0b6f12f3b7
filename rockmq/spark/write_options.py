"""What a user may say with `.option(...)` of a write (docs/spark-sink.md compares it with Kafka's sink)."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Meta

from rockmq.base.errors import ConfigError
from rockmq.protocol import topics
from rockmq.spark.options import ConnectionOptions, check_connection, convert

MESSAGE_SIZE_MAX = 4 * 1024 * 1024
"""Bytes that brokers take by default (`maxMessageSize`)."""

CHECKPOINT_LEDGER = "rockmq-ledger"
"""A stream without the option has its ledger beside its checkpoint."""

_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode", "path"})
_JOB_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")

Delivery = Literal["fenced", "atLeastOnce", "transactional"]


class WriteOptions(ConnectionOptions, frozen=True, kw_only=True):
    """The options of a write, in their declared spelling.

    `topic` is where all rows go, else the column `topic` says it. `delivery` is `fenced`, `atLeastOnce` or `transactional`
    (`rockmq.spark.writer`); the first and the last need a `ledger`, a directory that driver and executors share, which is
    beside a stream's checkpoint by default. A batch job that is done again under its `job_id` sends what is missing.
    `dedup_key` names a column that tells rows apart; without it what a row is makes its id. Rows that can't be sent go to
    Parquet files in the directory `bad_rows`, else the first one fails the job. `max_message_size` is in bytes, of body,
    properties and 22 more. `timeout` is how long a request may wait for its broker, with all its tries, in seconds. Each
    task sends at most `rows_per_second`, 0 for as many as it can.
    """

    topic: str = ""
    delivery: Delivery = "fenced"
    ledger: str = ""
    job_id: str = ""
    dedup_key: str = ""
    bad_rows: str = ""
    producer_group: str = "rockmq-spark"
    max_message_size: Annotated[int, Meta(ge=1_024, le=16_000_000)] = MESSAGE_SIZE_MAX
    timeout: Annotated[float, Meta(gt=0, le=3_600)] = 60.0
    rows_per_second: Annotated[float, Meta(ge=0)] = 0.0

    @property
    def fenced(self) -> bool:
        return self.delivery == "fenced"

    @property
    def transactional(self) -> bool:
        return self.delivery == "transactional"


def parse_write(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """The options of a write, with the defaults that depend on others. Raises ConfigError naming the option."""
    options = convert(WriteOptions, {key: text for key, text in given.items() if key.lower() not in _SPARKS_OWN})
    check_connection(options)
    if options.topic and (fault := topic_fault(options.topic)):
        raise ConfigError(f"option 'topic': {fault}")
    if fault := topics.group_fault(options.producer_group):
        raise ConfigError(f"option 'producerGroup': {fault}")
    for option, directory in (("ledger", options.ledger), ("badRows", options.bad_rows)):
        if directory and "://" in directory:
            raise ConfigError(f"option {option!r} is {directory!r}: expected a directory that driver and executors share")
    if options.job_id and streaming:
        raise ConfigError("option 'jobId' is for batch writes: a stream is known by its checkpoint")
    if options.job_id and not _JOB_ID.fullmatch(options.job_id):
        raise ConfigError(f"option 'jobId' is {options.job_id!r}: expected up to 100 letters, digits and any of _ . -")
    ledger = options.ledger or (_beside(_said("checkpointLocation", given)) if streaming else "")
    delivery = options.delivery
    if not (streaming or ledger or _said("delivery", given)):
        delivery = "atLeastOnce"
    if delivery == "atLeastOnce":
        for option, text in (("ledger", options.ledger), ("jobId", options.job_id)):
            if text:
                raise ConfigError(f"option {option!r} has no effect: it needs delivery=fenced or transactional")
        return msgspec.structs.replace(options, delivery=delivery)
    if not ledger:
        raise ConfigError(
            f"option 'ledger' is required with delivery={delivery}: a directory that driver and executors share; "
            "delivery=atLeastOnce needs none, and sends again what a failure leaves in doubt"
        )
    if delivery == "transactional" and not (streaming or options.job_id):
        raise ConfigError(
            "option 'jobId' is required with delivery=transactional: under the same one a batch write is gone on with whose "
            "commit was broken off"
        )
    return msgspec.structs.replace(options, delivery=delivery, ledger=ledger)


def topic_fault(name: str) -> str | None:
    """Why nothing can be written to a topic of this name, or None."""
    if (fault := topics.topic_fault(name)) is not None:
        return fault
    if name in topics.SEND_FORBIDDEN:
        return f"{name} is the broker's own topic"
    return f"{name} is a retry topic, to which no batches go" if topics.is_retry(name) else None


def _said(option: str, given: Mapping[str, str]) -> str:
    return next((text for key, text in given.items() if key.lower() == option.lower()), "")


def _beside(checkpoint: str) -> str:
    """The ledger in a checkpoint's directory, if that is one of a file system that is mounted."""
    if checkpoint.startswith("file:"):
        checkpoint = unquote(urlsplit(checkpoint).path)
    return str(Path(checkpoint) / CHECKPOINT_LEDGER) if checkpoint.startswith("/") else ""
