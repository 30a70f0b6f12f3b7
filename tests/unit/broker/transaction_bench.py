"""A broker whose clock is the test's, and a producer that answers when it is asked."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

from rockmq.broker.server import Broker
from rockmq.protocol import codec, json, topics
from rockmq.protocol.bodies.client import HeartbeatData, ProducerData
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.client import HeartBeat
from rockmq.protocol.headers.offset import QueryConsumerOffset
from rockmq.protocol.headers.send import SendResponse
from rockmq.protocol.headers.transaction import CheckTransactionState, EndTransaction
from rockmq.protocol.message import StoredMessage, decode_stored
from rockmq.remoting.client import RemotingClient
from rockmq.remoting.connection import Connection
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import options
from tests.unit.broker.test_messages import pull_request, send_request

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
GROUP = "tx"
SMALL = {
    "maxHashSlotNum": "1000",
    "maxIndexNum": "10000",
    "mappedFileSizeConsumeQueue": "60000",
    "mappedFileSizeCommitLog": str(1 << 20),
    "transactionCheckInterval": "20",
    "transactionOpBatchInterval": "20",
    "scrubBytesPerSecond": "0",
}
"""Checks come all the time; the clock says who is due."""

Asked = tuple[CheckTransactionState, StoredMessage]


def half_request(body: bytes, *, topic: str = "T", queue_id: int = 0, key: str = "", **more: str) -> Command:
    said = {"TRAN_MSG": "true", "PGROUP": GROUP} | ({"UNIQ_KEY": key} if key else {}) | more
    request = send_request(body, topic=topic, queue_id=queue_id, **said)
    request.fields["f"] = "4"
    return request


def position_of(half: SendResponse) -> int:
    return int(half.msg_id[-16:], 16)


def end_header(half: SendResponse | CheckTransactionState, decision: int, *, group: str = GROUP) -> EndTransaction:
    if isinstance(half, CheckTransactionState):
        offset, position, is_asked = half.tran_state_table_offset, half.commit_log_offset, True
    else:
        offset, position, is_asked = half.queue_offset, position_of(half), False
    return EndTransaction(
        producer_group=group,
        tran_state_table_offset=offset,
        commit_log_offset=position,
        commit_or_rollback=decision,
        msg_id="x",
        from_transaction_check=is_asked,
    )


class Bench:
    """A broker's lives, for use with `async with`. `asked` are the questions that came, `answer` gives the decision on one,
    None for silence."""

    def __init__(self, root: Path, clock: FakeClock | None = None, **settings: str) -> None:
        self.root = root
        self.clock = clock or FakeClock()
        self.settings = SMALL | settings
        self.asked: list[Asked] = []
        self.answer: Callable[[CheckTransactionState, StoredMessage], int | None] = lambda header, message: None
        self.broker: Broker
        self.remote = RemotingClient({RequestCode.CHECK_TRANSACTION_STATE: self._asked})
        self._lives = 0
        self._killed: set[str] = set()

    async def __aenter__(self) -> "Bench":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.remote.close()
        await self.broker.close()

    async def start(self) -> None:
        self.broker = Broker(options(self.root, **self.settings), self.clock)
        await self.broker.start()

    async def restart(self) -> None:
        """Stop in order, and begin again."""
        await self.broker.close()
        await self.start()

    async def kill(self) -> None:
        """Begin again with what a kill at this moment would leave: the files as they are."""
        self._lives += 1
        image = self.root.with_name(f"{self.root.name}-{self._lives}")
        shutil.copytree(self.root, image, ignore=shutil.ignore_patterns("lock", "*.tmp"))
        self._killed.add(self.broker.address)
        await self.broker.close()
        self.root = image
        await self.start()

    def _asked(self, header: CheckTransactionState, request: Command, connection: Connection) -> None:
        if connection.peer in self._killed:
            return  # about a half message that it has written again since, of which no life to come knows
        (message,) = decode_stored(request.body, check_crc=True)
        self.asked.append((header, message))
        decision = self.answer(header, message)
        if decision is not None:
            end = codec.request(RequestCode.END_TRANSACTION, end_header(header, decision))
            connection.send_oneway(end)

    async def invoke(self, request: Command) -> Command:
        return await self.remote.invoke(self.broker.address, request, 5)

    async def join(self, group: str = GROUP, remote: RemotingClient | None = None) -> None:
        """Be a producer of the group."""
        data = HeartbeatData(client_id=f"c{id(remote)}", producer_data_set=[ProducerData(group_name=group)])
        beat = codec.request(RequestCode.HEART_BEAT, HeartBeat(), json.encode(data))
        await (remote or self.remote).ask(self.broker.address, beat, 5)

    async def prepare(self, body: bytes, **more: str) -> SendResponse:
        request = half_request(body, **more)
        request.fields["g"] = str(self.clock.now_ms())
        response = await self.invoke(request)
        assert response.code == ResponseCode.SUCCESS, response.remark
        return decode(SendResponse, response.fields)

    async def end(self, half: SendResponse | CheckTransactionState, decision: int) -> Command:
        return await self.invoke(codec.request(RequestCode.END_TRANSACTION, end_header(half, decision)))

    async def messages(self, topic: str = "T", queue_id: int = 0) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        while True:
            request = pull_request(len(found), queue_id=queue_id)
            request.fields["topic"] = topic
            response = await self.invoke(request)
            if response.code != ResponseCode.SUCCESS:
                return found
            found += decode_stored(response.body, check_crc=True)

    async def progress(self, topic: str) -> int | None:
        """The group's offset, None when there is none."""
        query = QueryConsumerOffset(
            consumer_group=topics.TRANSACTION_GROUP, topic=topic, queue_id=0, set_zero_if_not_found=False
        )
        response = await self.invoke(codec.request(RequestCode.QUERY_CONSUMER_OFFSET, query))
        return int(response.fields["offset"]) if response.code == ResponseCode.SUCCESS else None


async def eventually(judge: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not judge():
            await asyncio.sleep(0.005)
