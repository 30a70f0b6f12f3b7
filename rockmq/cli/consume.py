"""`rockmq consume`"""

import asyncio
import base64
import json as jsonlib
from collections.abc import Callable
from typing import Literal

import typer

from rockmq.cli import logs, times
from rockmq.client import ConsumedMessage, environment

FETCH = 256


def run(
    namesrv: str,
    topic: str,
    group: str,
    *,
    tags: str,
    start: Literal["first", "last"],
    count: int | None,
    timeout: float | None,
    json: bool,
) -> int:
    """Print what a group consumes. 1 when fewer than `count` messages came before the timeout."""
    logs.to_stderr(0)
    say = _say_json if json else _say
    return asyncio.run(_consume(namesrv, topic, group, tags, start, count, timeout, say))


async def _consume(
    namesrv: str,
    topic: str,
    group: str,
    tags: str,
    start: Literal["first", "last"],
    count: int | None,
    timeout: float | None,
    say: Callable[[ConsumedMessage], None],
) -> int:
    left = count
    async with environment.client(namesrv) as mq:
        await mq.queues(topic)  # a consumer would wait for a topic that nobody knows; at a terminal that is an error
        async with mq.consumer(group, {topic: tags}, from_where=start) as consumer:
            while left is None or left > 0:
                # Never more than are wanted: what is fetched and not printed would be consumed unseen.
                messages = await consumer.fetch(FETCH if left is None else min(FETCH, left), timeout)
                for message in messages:
                    async with message.process():
                        say(message)
                if not messages and timeout is not None:
                    break
                left = None if left is None else left - len(messages)
    return 1 if left else 0


def _say(message: ConsumedMessage) -> None:
    queue = message.queue
    words = [times.local(message.store_timestamp), f"{queue.broker_name}[{queue.queue_id}]@{message.queue_offset}"]
    if message.tag:
        words.append(f"tag={message.tag}")
    if message.keys:
        words.append(f"keys={','.join(message.keys)}")
    if message.reconsume_times:
        words.append(f"retry={message.reconsume_times}")
    typer.echo(f"{'  '.join(words)}  {message.body.decode(errors='replace')}")


def _say_json(message: ConsumedMessage) -> None:
    fields: dict[str, object] = {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "reconsumeTimes": message.reconsume_times,
        "tag": message.tag,
        "keys": message.keys,
        "properties": message.properties,
    }
    try:
        fields["body"] = message.body.decode()
    except UnicodeDecodeError:
        fields["bodyBase64"] = base64.b64encode(message.body).decode()
    typer.echo(jsonlib.dumps(fields, ensure_ascii=False))
