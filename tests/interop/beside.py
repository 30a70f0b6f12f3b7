"""Commands of mqadmin carried out at our servers and at Apache's in the same state, and what they print beside each other.

One JVM for each kind of servers carries out all of them. Times, addresses, ids and figures that nothing determines
are made equal before what was printed is compared, line by line.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rockmq.client import Client, Consumer, Key, Message
from tests.support import apache, cluster
from tests.support.cluster import Cluster

CLUSTER, NAME = "TestCluster", "broker-a"
SETTINGS = {"brokerName": NAME, "brokerClusterName": CLUSTER}
QUEUES = 3
PATIENCE_S = 120


@dataclass(frozen=True)
class Step:
    """A command with its arguments, in which names of `Server.values` stand in braces.

    What it prints of ours has to be what it prints of Apache's, but for lines that `leave_out` finds, and in any order if
    not `ordered`; or, where there is a reason in the page, to have the text `says`. It is carried out again until it
    prints what `until` finds.
    """

    line: str
    says: str | None = None
    leave_out: str = ""
    ordered: bool = True
    until: str = ""

    @property
    def command(self) -> str:
        return self.line.split()[0]


@dataclass
class Server:
    """One of the two, and who uses it."""

    held: Cluster
    shell: apache.Shell
    values: dict[str, str]
    key: Key | None = None
    printed: dict[str, str] = field(default_factory=dict)

    async def carry_out(self, steps: list[Step]) -> None:
        for step in steps:
            words = [word.format_map(self.values) for word in step.line.split()]
            async with asyncio.timeout(PATIENCE_S):
                while not re.search(step.until, printed := await self._print(words), re.MULTILINE):
                    await asyncio.sleep(1)
            self.printed[step.line] = printed

    async def _print(self, words: list[str]) -> str:
        return await asyncio.to_thread(self.shell, words[0], *words[1:], namesrv=self.held.namesrv)

    async def client(self, stack: AsyncExitStack) -> Client:
        return await stack.enter_async_context(Client(self.held.namesrv, auth=self.key))

    async def use(self, stack: AsyncExitStack) -> Consumer[bytes]:
        """Have messages in a topic, of which the member, which stays, has consumed all, and a producer that stays."""
        mq = await self.client(stack)
        queues = await mq.queues("Orders")
        producer = await stack.enter_async_context(mq.producer("writers"))
        for number in range(2 * QUEUES):
            message = Message("Orders", b"text %d" % number, keys=[f"k{number}"], tag="red")
            receipt = await producer.send(message, queue=queues[number % QUEUES])
            if number == 1:
                self.values |= {"msg_id": receipt.msg_id, "offset_id": receipt.offset_id}
        consumer = await stack.enter_async_context(mq.consumer("readers", ["Orders"], from_where="first"))
        for _ in range(2 * QUEUES):
            await (await anext(consumer)).ack()
        await consumer.commit()
        return consumer


@contextmanager
def pair(directory: Path, settings: Mapping[str, str], key: Key | None = None) -> Iterator[list[Server]]:
    """Ours and Apache's, with what mqadmin signs with."""
    with ExitStack() as stack:
        servers = []
        for kind in ("rockmq", "apache"):
            held = stack.enter_context(cluster.started(kind, directory / f"{kind}-server", SETTINGS | dict(settings)))
            (directory / kind / "conf").mkdir(parents=True)
            if key is not None:
                (directory / kind / "conf" / "tools.yml").write_text(f"accessKey: {key.access}\nsecretKey: {key.secret}\n")
            shell = stack.enter_context(apache.shell(directory / kind))
            values = {"broker": held.broker, "cluster": CLUSTER, "name": NAME, "directory": str(directory), "kind": kind}
            servers.append(Server(held, shell, values, key))
        yield servers


MADE_EQUAL = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[\d.]+@\d+#\d+", "CLIENT"),
        (r"\d+(\.\d+){3}:\d+", "ADDRESS"),
        (r"\b[0-9A-F]{32}\b", "ID"),
        (r"\d{4}-\d\d-\d\d[ T,#]\d\d:\d\d:\d\d([.,:]\d+)?", "TIME"),
        (r"\b\d{13}\b", "TIME"),
        (r"V\d_\d_\d(_SNAPSHOT)?", "VERSION"),
        # Of clusterList's #Timer(Progress): whole seconds that the wheel is behind the clock. It is so for some time of each
        # second, at both.
        (r"\b\d+(?=-\d+\(\d+\.\dw, )", "FIGURE"),
        (r"\d+\.\d+(E-?\d+)?%?", "FIGURE"),
        (r"\d+ ?ms|(?<=true)\s+\d+$", "FIGURE"),
        (r"\s+", " "),
    )
]


STACK = re.compile(r"\s+(at |\.\.\. \d+ more)")


def made_equal(text: str) -> str:
    for pattern, replacement in MADE_EQUAL:
        text = pattern.sub(replacement, text)
    return text


def lines(printed: str, step: Step) -> list[str]:
    """What was printed, as it has to be of both."""
    found = []
    for line in printed.splitlines():
        if not line.strip() or STACK.match(line) or (step.leave_out and re.search(step.leave_out, line)):
            continue
        found.append(made_equal(line).strip())
    return found if step.ordered else sorted(found)


def differences(step: Step, ours: Server, apaches: Server) -> str | None:
    printed, expected = (each.printed[step.line].replace(f"/{each.values['kind']}/", "/") for each in (ours, apaches))
    if step.says is not None:
        return None if step.says in printed else f"{step.line}: no {step.says!r} in\n{printed[:2000]}"
    if lines(printed, step) == lines(expected, step):
        return None
    return f"{step.line}\nours:\n{printed[:3000]}\nApache's:\n{expected[:3000]}"
