"""Pop consumers.

Messages are sent before they are popped: Apache's broker overlooks one that comes while a pop that found nothing begins to
wait, and gives it when the 15 s are over.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable

import pytest

from rockmq.client import Client, ClientError, Message, PartDone, PopMessage, ResponseError, Sql
from rockmq.client.admin import GroupSettings, TopicSettings
from tests.client.conftest import NewTopic, eventually, until_held
from tests.support import cluster

Unique = Callable[[str], str]
LONG = 60.0


async def send(mq: Client, topic: str, count: int, **how: object) -> list[str]:
    async with mq.producer("pop-pg") as producer:
        messages = [Message(topic, b"%d" % number, tag="even" if number % 2 == 0 else "odd") for number in range(count)]
        return [(await producer.send(message, **how)).msg_id for message in messages]  # type: ignore[arg-type]


async def consumed(mq: Client, group: str, topic: str) -> None:
    """Wait until the broker takes all messages for consumed, or, if it is Apache's, for popped."""
    queues = await mq.queues(topic)
    async with asyncio.timeout(60):
        while [await mq.max_offset(queue) for queue in queues] != [
            offset or 0 for offset in (await mq.committed_offsets(group, topic)).values()
        ]:
            await asyncio.sleep(0.1)


async def test_members_share_messages_of_one_queue_and_acknowledge_each(
    mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique
) -> None:
    topic, group = (await new_topic(1))[0].topic, unique("pop")
    sent = await send(mq, topic, 100)
    got: Counter[str] = Counter()
    by: set[int] = set()
    async with Client(peer.namesrv) as second:
        members = [each.pop_consumer(group, [topic], from_where="first", max_in_flight=10) for each in (mq, second)]

        async def work(number: int) -> None:
            async for message in members[number]:
                async with message.process():
                    got[message.msg_id] += 1
                    by.add(number)
                    if number == 0 and len(by) < 2:
                        await asyncio.sleep(0.05)  # leave the other member some

        async with members[0], members[1]:
            tasks = [asyncio.create_task(work(number)) for number in (0, 1)]
            await consumed(mq, group, topic)
            async with asyncio.timeout(60):
                while len(got) < len(sent) or members[0].in_flight + members[1].in_flight:
                    await asyncio.sleep(0.05)
        await asyncio.gather(*tasks)
    assert got == Counter(sent)
    assert by == {0, 1}


async def test_what_fails_comes_again_of_its_own_topic(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    topic, group = (await new_topic(1))[0].topic, unique("pop")
    (sent,) = await send(mq, topic, 1)
    async with mq.pop_consumer(group, [topic], from_where="first") as consumer:
        first = await anext(consumer)
        assert (first.msg_id, first.reconsume_times, first.queue.topic) == (sent, 0, topic)
        await first.retry(0.1)
        with pytest.raises(ClientError, match="was acknowledged or refused before"):
            await first.ack()
        again = await anext(consumer)
        assert (again.msg_id, again.topic, again.reconsume_times) == (sent, topic, 1)
        assert again.handle.retry_flag != "0"
        await again.ack()
    assert consumer.in_flight == 0


async def test_an_extended_message_is_acknowledged_by_its_new_handle(
    mq: Client, new_topic: NewTopic, unique: Unique
) -> None:
    topic, group = (await new_topic(1))[0].topic, unique("pop")
    await send(mq, topic, 2)
    async with mq.pop_consumer(group, [topic], from_where="first") as consumer:
        first, second = await anext(consumer), await anext(consumer)
        old = first.handle
        await first.extend(2 * LONG)
        assert first.handle != old
        assert (first.handle.invisible_time, first.handle.offset) == (2 * LONG * 1000, old.offset)
        await first.ack()
        await second.ack()
        with pytest.raises(ClientError, match="before"):
            await second.extend(LONG)
        await consumed(mq, group, topic)


async def test_after_the_last_try_it_is_a_dead_letter(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    topic, group = (await new_topic(1))[0].topic, unique("pop")
    sent = await send(mq, topic, 2)
    async with mq.pop_consumer(group, [topic], from_where="first", max_reconsume_times=0) as consumer:
        first = await anext(consumer)
        with pytest.raises(ValueError, match="wrong"):
            async with first.process():
                raise ValueError("wrong")
        await (await anext(consumer)).dead_letter()
        await consumed(mq, group, topic)
    async with mq.pop_consumer(unique("undertaker"), [f"%DLQ%{group}"], from_where="first") as undertaker:
        dead = [await anext(undertaker) for _ in sent]
        assert {message.msg_id for message in dead} == set(sent)
        for message in dead:
            await message.ack()


async def test_in_order(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    """One message of a queue at a time; one that failed comes again before those behind it."""
    queues = await new_topic(2)
    topic, group = queues[0].topic, unique("pop")
    for queue in queues:
        await send(mq, topic, 10, queue=queue)
    got: dict[int, list[int]] = {0: [], 1: []}
    failed = False
    async with mq.pop_consumer(group, [topic], from_where="first", order=True) as consumer:
        held: dict[int, PopMessage] = {}
        while sum(map(len, got.values())) < 20:
            message = await anext(consumer)
            queue_id = message.queue.queue_id
            assert queue_id not in held, "the one before isn't acknowledged"
            if message.queue_offset == 3 and queue_id == 0 and not failed:
                failed = True
                await message.retry(0.1)
                continue
            got[queue_id].append(message.queue_offset)
            held[queue_id] = message
            if len(held) == 2 or len(got[1 - queue_id]) == 10 or (failed and queue_id == 1):
                for each in held.values():
                    await each.ack()
                held.clear()
        for each in held.values():
            await each.ack()
        await consumed(mq, group, topic)
    assert got == {0: list(range(10)), 1: list(range(10))}
    assert failed


async def test_those_of_a_higher_priority_come_first(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    """In topics for that, whose queues are one for each priority. RockMQ's broker refuses to make one."""
    settings = TopicSettings(unique("orders"), 4, 4, attributes={"message.type": "PRIORITY"})
    if peer.kind == "rockmq":
        with pytest.raises(ResponseError, match="PRIORITY is not built"):
            await mq.admin.topics.put(settings)
        return
    await mq.admin.topics.put(settings)

    async def known() -> bool:
        return settings.name in await mq.admin.topics.names()

    await eventually(known)
    queues = await mq.queues(settings.name)
    async with mq.producer("pg") as producer:
        for priority in (1, 3, 0, 2, 2, 0, 3, 1):
            message = Message(settings.name, b"%d" % priority, properties={"_SYS_MSG_PRIORITY_": str(priority)})
            assert (await producer.send(message)).queue.queue_id == priority
    for queue in queues:
        await until_held(mq, queue, 2)
    async with mq.pop_consumer(unique("pop"), [settings.name], from_where="first", max_in_flight=1) as consumer:
        got = []
        while len(got) < 8:
            async with (await anext(consumer)).process() as taken:
                got.append(int(taken.body))
    assert got == [3, 3, 2, 2, 1, 1, 0, 0]


async def test_what_nobody_took_is_given_back_at_the_end(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    topic, group = (await new_topic(1))[0].topic, unique("pop")
    sent = await send(mq, topic, 10)
    async with mq.pop_consumer(group, [topic], from_where="first", invisible=3600) as consumer:
        first = await anext(consumer)
        await first.ack()
        async with asyncio.timeout(30):
            while consumer.in_flight < 9:
                await asyncio.sleep(0.01)
    async with mq.pop_consumer(group, [topic], from_where="first") as consumer:
        rest = []
        async with asyncio.timeout(60):
            while len(rest) < 9:
                message = await anext(consumer)
                await message.ack()
                rest.append(message.msg_id)
    assert sorted([first.msg_id, *rest]) == sorted(sent)


async def test_filters(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    topic = (await new_topic(2))[0].topic
    sent = await send(mq, topic, 20)
    for wanted in ("even", Sql("TAGS = 'even'")):
        async with mq.pop_consumer(unique("pop"), {topic: wanted}, from_where="first") as consumer:
            got = set()
            while len(got) < 10:
                message = await anext(consumer)
                await message.ack()
                got.add(message.msg_id)
        assert got == set(sent[::2])


async def test_subscriptions_change_on_the_way(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    (one,), (other,) = await new_topic(1), await new_topic(1)
    group = unique("pop")
    async with mq.pop_consumer(group, [one.topic], from_where="first") as consumer:
        sent = await send(mq, other.topic, 4)
        await consumer.subscribe(other.topic, "even")
        for msg_id in sent[::2]:
            message = await anext(consumer)
            assert message.msg_id == msg_id
            await message.ack()
        assert set((await mq.admin.groups.connections(group)).subscriptions) == {one.topic, other.topic}
        await consumer.unsubscribe(one.topic)
        assert set((await mq.admin.groups.connections(group)).subscriptions) == {other.topic}
        assert [queue.topic for queue in consumer.queues] == [other.topic]
        with pytest.raises(ClientError, match="isn't subscribed"):
            await consumer.unsubscribe(one.topic)


async def test_brokers_assign_queues_to_groups_that_are_to_pop(
    mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    queues = await new_topic(4)
    topic, group = queues[0].topic, unique("pop")
    sent = await send(mq, topic, 8)
    with pytest.raises(ClientError, match="is to pull"):
        async with mq.pop_consumer(group, [topic], assigned=True):
            raise AssertionError("it began")
    await mq.admin.groups.set_request_mode(group, topic, "POP")
    modes = await mq.admin.brokers.request_modes(queues[0].broker_name)
    assert [mode.mode for mode in modes if mode.consumer_group == group] == ["POP"]
    async with mq.pop_consumer(group, [topic], from_where="first", assigned=True) as consumer:
        assert [queue.queue_id for queue in consumer.queues] == [-1]
        got = []
        while len(got) < len(sent):
            message = await anext(consumer)
            await message.ack()
            got.append(message.msg_id)
    assert sorted(got) == sorted(sent)
    with caplog.at_level(logging.WARNING, "rockmq.client.assignment"):
        async with mq.consumer(group, [topic]):
            async with asyncio.timeout(30):
                while f"group {group} is to pop {topic}" not in caplog.text:
                    await asyncio.sleep(0.01)


async def test_members_pop_their_share_and_that_of_their_neighbours(
    mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique
) -> None:
    topic, group = (await new_topic(6))[0].topic, unique("pop")
    await mq.admin.groups.put(GroupSettings(group))
    await mq.admin.groups.set_request_mode(group, topic, "POP", share_queues=1)
    sent = await send(mq, topic, 12)
    async with contextlib.AsyncExitStack() as stack:
        members = []
        for client in (mq, Client(peer.namesrv), Client(peer.namesrv)):
            if client is not mq:
                await stack.enter_async_context(client)
            member = client.pop_consumer(group, [topic], from_where="first", assigned=True)
            members.append(await stack.enter_async_context(member))
        async with asyncio.timeout(60):
            while any(len(member.queues) != 4 or member.queues[0].queue_id < 0 for member in members):
                await asyncio.sleep(0.05)
        shared = Counter(queue.queue_id for member in members for queue in member.queues)
        assert shared == dict.fromkeys(range(6), 2)
        got = await asyncio.gather(*(member.fetch(12, 0.3) for member in members))
        while sum(map(len, got)) < 12:
            got += await asyncio.gather(*(member.fetch(12, 0.3) for member in members))
        for message in (message for part in got for message in part):
            await message.ack()
    assert sorted(message.msg_id for part in got for message in part) == sorted(sent)


async def test_administrators_see_what_it_does(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    queues = await new_topic(1)
    topic, group = queues[0].topic, unique("pop")
    async with mq.producer("pop-pg") as producer:
        receipt = await producer.send(Message(topic, b"x"))
    async with mq.pop_consumer(group, [topic], from_where="first") as consumer:
        message = await anext(consumer)
        connected = await mq.admin.groups.connections(group)
        assert connected.consume_type == "CONSUME_POP"
        info = await mq.admin.members.running_info(group, mq.client_id)
        assert {queue.queue_id: popped.unacknowledged for queue, popped in info.pops.items()} == {-1: 1}
        await message.ack()
        handed = asyncio.create_task(mq.admin.members.consume(group, mq.client_id, receipt.offset_id))
        again = await anext(consumer)
        assert again.body == b"x"
        await again.ack()
        assert (await handed).result == "CR_SUCCESS"


async def test_batches_and_functions(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    topic, group = (await new_topic(1))[0].topic, unique("pop")
    sent = await send(mq, topic, 20)
    got: Counter[str] = Counter()
    sizes: list[int] = []

    def handle(batch: list[PopMessage]) -> None:
        sizes.append(len(batch))
        got.update(message.msg_id for message in batch)
        if len(got) == len(sent) and got.total() == len(sent):
            raise PartDone(len(batch) - 1)

    async with mq.pop_consumer(group, [topic], from_where="first") as consumer:
        async with asyncio.timeout(60):
            while consumer.in_flight < len(sent):
                await asyncio.sleep(0.01)
        run = asyncio.create_task(consumer.run_batches(handle, 8, 2, retry=lambda tries: 0.1))
        async with asyncio.timeout(60):
            while got.total() <= len(sent) or consumer.in_flight:
                await asyncio.sleep(0.02)
    await run
    assert set(got) == set(sent)
    assert sorted(got.values())[-2:] == [1, 2], "one of them was refused"
    assert max(sizes) == 8
