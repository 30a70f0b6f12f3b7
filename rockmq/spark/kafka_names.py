"""Options of Spark's Kafka connector, for who gives one of them here: what it is called, or why there is none.

docs/spark-source.md, docs/spark-sink.md and docs/spark-streaming.md compare the two; `KafkaSourceProvider` has Kafka's.
"""

from collections.abc import Collection

_OURS = {
    "kafka.bootstrap.servers": "nameServer",
    "subscribe": "topic",
    "subscribePattern": "topicPattern",
    "assign": "queues",
    "kafka.group.id": "group",
    "kafkaConsumer.pollTimeoutMs": "timeout",
    "fetchOffset.numRetries": "timeout",
    "fetchOffset.retryIntervalMs": "timeout",
    "kafka.delivery.timeout.ms": "timeout",
    "kafka.max.poll.records": "pullBatchSize",
    "kafka.max.request.size": "maxMessageSize",
    "kafka.client.id": "producerGroup",
    "kafka.client.rack": "preferSlaves",
    "kafka.security.protocol": "tls",
    "kafka.ssl.*": "tls",
    "kafka.sasl.*": "accessKey",
}
_NONE = {
    "groupIdPrefix": "reading needs no group",
    "includeHeaders": "properties are a column",
    "kafka.isolation.level": "what is in a transaction is seen once it is committed",
    "kafka.*": "no client of Kafka's is used",
}


def hint(key: str, known: Collection[str]) -> str | None:
    """What to say of an option that is Kafka's, where those of this kind are `known`; None if it isn't Kafka's."""
    ours = _found(_OURS, key)
    if ours in known:
        return f"what Kafka's source calls so is {ours!r} here"
    why = _found(_NONE, key)
    return f"Kafka's has it, and there is none here, as {why}" if why else None


def _found(names: dict[str, str], key: str) -> str | None:
    for name, text in names.items():
        stem = name.lower().removesuffix("*")
        if key.lower() == stem or (name.endswith("*") and key.lower().startswith(stem)):
            return text
    return None
