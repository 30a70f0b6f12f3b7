"""What a consumer wants of a topic, as brokers are told (FilterAPI.java; clients' spec, 3.11)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rockmq.base.errors import ClientError
from rockmq.filter import PYTHON, SQL92, tags
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import SubscriptionData
from rockmq.protocol.properties import tag_code


@dataclass(frozen=True)
class Sql:
    """A SQL92 expression over the properties of messages, evaluated by brokers with `enablePropertyFilter`:
    `Sql("amount > 100 AND region IN ('eu', 'us')")`."""

    expression: str


@dataclass(frozen=True)
class BrokerFilter:
    """A filter that RockMQ's broker has by this name (`pythonFilters`)."""

    name: str


Wanted = str | Sql | BrokerFilter
"""Tags (`"paid || refund"`, `"*"` for all), or what brokers filter by otherwise."""

Topics = Mapping[str, Wanted] | Sequence[str] | str
"""Topics with what is wanted of each (`{"orders": "paid || refund"}`), or just the topics."""


def subscriptions(wanted: Topics, group: str, version: int) -> dict[str, SubscriptionData]:
    """By topic; the group's retry topic is among them. Raises ClientError."""
    if isinstance(wanted, str):
        wanted = [wanted]
    expressions: dict[str, Wanted] = dict(wanted) if isinstance(wanted, Mapping) else dict.fromkeys(wanted, tags.ALL)
    if not expressions:
        raise ClientError("a consumer needs at least one topic")
    for topic in expressions:
        check_shared(topic)
    expressions.setdefault(topics.retry_topic(group), tags.ALL)
    return {topic: subscription(topic, expression, version) for topic, expression in expressions.items()}


def check_shared(topic: str) -> None:
    """Whether the queues of a topic can be a group's to share. Raises ClientError."""
    if topics.is_light(topic):
        raise ClientError(f"{topic!r} is a light queue, which no group shares: read it by pull, or LitePullConsumer.assign")


def subscription(topic: str, expression: Wanted, version: int) -> SubscriptionData:
    fault = topics.light_fault(topic) if topics.is_light(topic) else topics.topic_fault(topic)
    if fault is not None:
        raise ClientError(fault)
    if not isinstance(expression, str):
        kind, text = (SQL92, expression.expression) if isinstance(expression, Sql) else (PYTHON, expression.name)
        if not text:
            raise ClientError(f"the {kind} expression for {topic} is empty")
        return SubscriptionData(topic=topic, sub_string=text, expression_type=kind, sub_version=version)
    expression = expression.strip() or tags.ALL
    names = tags.split(expression)
    if not names and expression != tags.ALL:
        raise ClientError(f"{expression!r} names no tag: expected `*`, `a` or `a || b`")
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=sorted(set(names)),
        code_set=sorted({tag_code(name) for name in names}),
        sub_version=version,
    )
