"""Parked messages of a store that Apache's broker serves, then ours, then Apache's again: each comes once."""

import time
from pathlib import Path

from rockmq.protocol import json
from rockmq.protocol.bodies.common import Body
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Int
from rockmq.protocol.message import decode_stored
from tests.interop.test_store_moves import Moving
from tests.support import apache
from tests.support.cluster import wait_for_route
from tests.support.process import eventually, free_port
from tests.support.wire import send_fields

SOON, LATER = 1, 2
LEVELS = "1s 12s"
TOPIC = "parking"


def send(broker: str, body: str, level: int) -> None:
    properties = f"DELAY\x01{level}\x02TAGS\x01t\x02UNIQ_KEY\x01{body:0>32}\x02"
    fields = {key: str(value) for key, value in send_fields(TOPIC, d="1", i=properties).items()}
    answer = apache.invoke(broker, RequestCode.SEND_MESSAGE_V2, fields, body.encode())
    assert answer.code == 0, answer


def delivered(broker: str) -> list[str]:
    """Bodies in the topic's only queue."""
    fields = {
        "consumerGroup": "readers", "topic": TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "t",
    }  # fmt: skip
    answer = apache.invoke(broker, RequestCode.PULL_MESSAGE, fields)
    return [message.body.decode() for message in decode_stored(answer.body, check_crc=True)] if answer.code == 0 else []


class Document(Body):
    offset_table: dict[Int, int]


def saved(moving: Moving) -> dict[int, int]:
    path = moving.directory / "broker" / "store" / "config" / "delayOffset.json"
    if not path.exists():
        return {}
    document = json.decode(path.read_bytes(), Document, str(path))
    return {level: offset for level, offset in document.offset_table.items() if offset}


def test_parked_messages_move_to_our_broker_and_back(tmp_path: Path) -> None:
    with apache.name_server(tmp_path / "namesrv", free_port()) as names:
        settings = {"messageDelayLevel": LEVELS, "flushDelayOffsetInterval": "200"}
        moving = Moving("5.5.0", "5.5.0", tmp_path, names.address, **settings)
        broker = f"127.0.0.1:{moving.port}"
        # Apache's is killed once it has saved how far it is, since it takes 20 s to stop.
        with moving.apaches(killed=True):
            send(broker, "first", SOON)
            eventually(lambda: delivered(broker) == ["first"], 60, "the first is delivered")
            eventually(lambda: saved(moving) == {1: 1}, 60, "that is saved")
            begun = time.monotonic()
            for number in range(3):
                send(broker, f"apache {number}", LATER)
        with moving.ours():
            wait_for_route(moving.namesrv, TOPIC)
            expected = ["first", *(f"apache {number}" for number in range(3))]
            eventually(lambda: delivered(broker) == expected, 60, "Apache's are delivered")
            assert time.monotonic() - begun >= 11
            send(broker, "second", SOON)
            expected.append("second")
            eventually(lambda: delivered(broker) == expected, 60, "the second is delivered")
            for number in range(3):
                send(broker, f"ours {number}", LATER)
        assert saved(moving) == {1: 2, 2: 3}
        with moving.apaches(killed=True):
            wait_for_route(moving.namesrv, TOPIC)
            expected += [f"ours {number}" for number in range(3)]
            eventually(lambda: delivered(broker) == expected, 60, "ours are delivered")
            eventually(lambda: saved(moving) == {1: 2, 2: 6}, 60, "that is saved")
