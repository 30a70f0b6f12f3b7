"""What administrators are told by servers that ask who they are: in Apache's dashboard, and by the commands of mqadmin about
users and rules. Ours tell what Apache's do, but for what `docs/compatibility.md` has a reason for.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from rockmq.client import Client, Consumer, Message
from tests.client.test_security import AUTHENTICATION, KEY
from tests.interop import beside
from tests.interop.beside import Server, Step
from tests.support import apache, cluster

COMMANDS = [
    Step("createUser -b {broker} -u clerk -p of-clerk", until="success|existed"),
    Step("createUser -b {broker} -u boss -p of-boss -t Super", until="success|existed"),
    Step("createUser -b {broker} -u clerk -p again"),
    Step("createUser -c {cluster} -u other -p of-other -t Super", until="success|existed"),
    Step("createUser -b {broker} -u odd -p of-odd -t Odd", "expected Super or Normal"),
    Step("deleteUser -c {cluster} -u odd"),
    Step("getUser -b {broker} -u clerk"),
    Step("listUser -b {broker}", ordered=False),
    Step("listUser -c {cluster} -f cle"),
    Step("updateUser -b {broker} -u clerk -p anew"),
    Step("updateUser -b {broker} -u boss -t Normal"),
    Step("updateUser -b {broker} -u boss -s disable"),
    Step("updateUser -b {broker} -u nobody -s disable"),
    Step("listUser -b {broker} -f nobody"),
    Step("listUser -b {broker} -f bo"),
    Step("createAcl -b {broker} -s User:clerk -r Topic:orders,Group:read* -a Pub,Sub -d Allow", until="success"),
    Step("createAcl -b {broker} -s User:clerk -r Topic:orders -a Fly -d Allow", "'Fly' is no action"),
    Step("createAcl -b {broker} -s User:nobody -r Topic:orders -a Pub -d Allow"),
    Step("updateAcl -b {broker} -s User:clerk -r Topic:orders -a Get -i 10.0.0.0/8 -d Deny"),
    Step("getAcl -b {broker} -s User:clerk", ordered=False),
    Step("listAcl -b {broker}", ordered=False),
    Step("listAcl -c {cluster} -s clerk -r Group:read*"),
    Step("listAcl -b {broker} -s nobody"),
    Step("copyUser -f {broker} -t {broker} -u clerk"),
    Step("copyAcl -f {broker} -t {broker} -s User:clerk"),
    Step("deleteAcl -b {broker} -s User:clerk -r Topic:orders"),
    Step("listAcl -b {broker}", ordered=False),
    Step("deleteAcl -b {broker} -s User:clerk"),
    Step("getAcl -b {broker} -s User:clerk"),
    Step("deleteUser -b {broker} -u clerk"),
    Step("deleteUser -b {broker} -u boss"),
    Step("deleteUser -b {broker} -u nobody"),
]
OF_MEMBERS = frozenset({"pullRT", "pullTPS", "consumeRT", "consumeOKTPS", "consumeFailedTPS"})
"""Times and rates of a member, who is ours at both; none are told before it takes its first samples."""
LEFT_OUT = OF_MEMBERS | {"consumeTps", "random", "commitLogOffset", "preparedTransactionOffset", "storeSize", "TRAN_MSG"}
"""Fields that nothing determines, or that differ as the page says: a committed message is without TRAN_MSG."""
REFUSED = frozenset({"topic: no such type"})
"""What both refuse, with codes of their own."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    with beside.pair(tmp_path_factory.mktemp("administration"), AUTHENTICATION, KEY) as started:
        yield started


async def test_commands_about_users_and_rules(servers: list[Server]) -> None:
    await asyncio.gather(*(server.carry_out(COMMANDS) for server in servers))
    found = [told for step in COMMANDS if (told := beside.differences(step, *servers)) is not None]
    assert not found, "\n\n".join(found)


async def test_the_dashboard_is_told_what_apaches_servers_tell(servers: list[Server]) -> None:
    async with AsyncExitStack() as stack:
        for server in servers:
            await prepare(server, stack)
        ours, apaches = await asyncio.gather(*map(told, servers))
    assert list(ours) == list(apaches)
    found = [
        f"{page}\nours:     {json.dumps(ours[page])[:3000]}\nApache's: {json.dumps(apaches[page])[:3000]}"
        for page in ours
        if ours[page] != apaches[page]
    ]
    assert not found, "\n\n".join(found)


async def prepare(server: Server, stack: AsyncExitStack) -> None:
    """What the pages show: topics, a member, a producer, and a dead letter."""
    mq = await server.client(stack)
    for topic in ("Orders", "Broken"):
        await mq.create_topic(topic, beside.QUEUES if topic == "Orders" else 1)
    work(await server.use(stack), stack)
    await dead_letter(mq, server, stack)


async def dead_letter(mq: Client, server: Server, stack: AsyncExitStack) -> None:
    consumer = await stack.enter_async_context(mq.consumer("broken", ["Broken"], from_where="first"))
    async with mq.producer("writers-of-broken") as producer:
        await producer.send(Message("Broken", b"dead", keys=["dead"]))
    await (await anext(consumer)).dead_letter()
    await consumer.commit()
    work(consumer, stack)
    await asyncio.to_thread(cluster.wait_for_route, server.held.namesrv, "%DLQ%broken")


def work(consumer: Consumer[bytes], stack: AsyncExitStack) -> None:
    """Have a member go on, which is also how it takes what it is handed directly."""

    async def take() -> None:
        async for message in consumer:
            await message.ack()

    task = asyncio.create_task(take())
    stack.callback(task.cancel)


async def told(server: Server) -> dict[str, Any]:
    """What each page is told, with what differs by nature made equal."""
    arguments = server.held.namesrv, KEY.access, KEY.secret
    pages = await asyncio.to_thread(apache.dashboard, *arguments, directory=server.shell.directory)
    assert len(dict(pages)) == len(pages)
    return {page: list(found) if page in REFUSED else equal(found) for page, found in pages}


def is_inner(name: object) -> bool:
    """Of a topic that brokers have for themselves: which there are is their affair."""
    return isinstance(name, str) and name.lower().startswith("rmq_sys_")


def equal(value: Any) -> Any:
    if isinstance(value, dict):
        return {equal(key): equal(each) for key, each in value.items() if key not in LEFT_OUT and not is_inner(key)}
    if isinstance(value, list):
        return [equal(each) for each in value if not is_inner(each)]
    if isinstance(value, str):
        return beside.made_equal(value)
    return "TIME" if isinstance(value, int) and value > 10**12 else value
