"""Sends and pulls as requests, to say exactly what is sent and see exactly what is answered."""

from rockmq.protocol import codec, properties
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.pull import Pull, PullResponse
from rockmq.protocol.headers.send import SendMessageV2
from rockmq.protocol.message import StoredMessage, decode_stored
from rockmq.remoting.client import RemotingClient

QUEUES = 4
TOPIC = "T"


def send_request(body: bytes, queue_id: int, *, batch: bool = False, topic: str = TOPIC) -> codec.Command:
    header = SendMessageV2(
        producer_group="producers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
        properties=properties.encode({properties.TAGS: "t"}).decode(),
        batch=batch,
    )
    return codec.request(RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2, header, body)


def pull_request(queue_id: int, offset: int, *, topic: str = TOPIC) -> codec.Command:
    header = Pull(
        consumer_group="readers",
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=1000,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
        max_msg_bytes=4 << 20,
    )
    return codec.request(RequestCode.PULL_MESSAGE, header)


async def read_queue(
    remote: RemotingClient, address: str, queue_id: int, *, topic: str = TOPIC, start: int = 0
) -> list[StoredMessage]:
    """The messages of a queue from offset `start` on, all of which it still has."""
    messages: list[StoredMessage] = []
    while True:
        response = await remote.invoke(address, pull_request(queue_id, start + len(messages), topic=topic), 10)
        if response.code == ResponseCode.PULL_NOT_FOUND:
            return messages
        assert response.code == ResponseCode.SUCCESS, response.remark
        messages += decode_stored(response.body, check_crc=True)
        assert decode(PullResponse, response.fields).next_begin_offset == start + len(messages)
