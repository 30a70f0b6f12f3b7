"""Light queues (enableLmq) of a store that Apache's broker serves, then ours, then Apache's again."""

from functools import partial
from pathlib import Path

from tests.interop.test_store_moves import Moving
from tests.support import apache
from tests.support.cluster import wait_for_route
from tests.support.events import Event, events
from tests.support.process import eventually, free_port

DISPATCH = ("%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%b,%LMQ%c,%LMQ%a", "%LMQ%b,")
QUEUES = ("%LMQ%a", "%LMQ%b", "%LMQ%c")
HELD = {"%LMQ%a": (0, 1, 2), "%LMQ%b": (1, 2, 3), "%LMQ%c": (2,)}
"""Which of the messages each queue gets."""
GROUP = "%LMQ%readers"


def used(moving: Moving, name: str, count: int) -> bytes:
    """The first entries of a queue's only file, behind which there is nothing."""
    data = (moving.directory / "broker" / "store" / "consumequeue" / name / "0" / f"{0:020}").read_bytes()
    assert data[20 * count :].strip(b"\0") == b""
    return data[: 20 * count]


def run(moving: Moving, prefix: str, broker: str) -> tuple[dict[str, Event], list[Event]]:
    """Send each of `DISPATCH` and pull all queues: what is told of them, and the messages."""
    where = f"namesrv={moving.namesrv}", "topic=moving", f"broker={broker}", f"group={GROUP}"
    what = f"prefix={prefix}", f"dispatch={';'.join(DISPATCH)}", f"queues={';'.join(QUEUES)}"
    name = f"LightQueues-{prefix}"
    with apache.program(moving.client, "LightQueues", *where, *what, directory=moving.directory, name=name) as program:
        assert program.wait(90) == 0, program.tail()
        return {each["name"]: each for each in events(program, "queue")}, events(program, "message")


def is_saved(moving: Moving, name: str, offset: int) -> bool:
    document = moving.directory / "broker" / "store" / "config" / "lmqConsumerOffset.json"
    text = document.read_text().replace(" ", "") if document.exists() else ""
    return f'"{name}@{GROUP}":{offset}' in text


def test_light_queues_move_to_our_broker_and_back(tmp_path: Path) -> None:
    rounds = ("first", "second", "third")
    said: dict[str, dict[str, str]] = {}
    with apache.name_server(tmp_path / "namesrv", free_port()) as names:
        settings = {"enableLmq": "true", "enableMultiDispatch": "true", "flushConsumerOffsetInterval": "200"}
        moving = Moving("5.5.0", "5.5.0", tmp_path, names.address, **settings)
        entries = dict.fromkeys(QUEUES, b"")
        for number, prefix in enumerate(rounds):
            # Apache's is killed, which is quicker; ours would have entries in memory only then.
            with moving.ours() if prefix == "second" else moving.apaches(killed=True):
                if number:
                    wait_for_route(moving.namesrv, "moving")
                queues, messages = run(moving, prefix, apache.BROKER_NAME)
                for name, held in HELD.items():
                    count = len(held) * (number + 1)
                    expected = [f"{each}{index}" for each in rounds[: number + 1] for index in held]
                    assert [each["body"] for each in messages if each["queue"] == name] == expected
                    committed = len(held) * number if number else -1
                    assert {**queues[name], "committed": queues[name]["committed"] or -1} == {
                        "event": "queue", "name": name, "min": 0, "max": count, "committed": committed
                    }  # fmt: skip
                    eventually(partial(is_saved, moving, name, count), 60, "offset saved")
            for name, held in HELD.items():
                count = len(held) * (number + 1)
                now = used(moving, name, count)
                assert now[: len(entries[name])] == entries[name]
                entries[name] = now
            said |= {each["body"]: each["properties"] for each in messages}
    for index, text in enumerate(DISPATCH):
        of = [said[f"{prefix}{index}"] for prefix in rounds]
        offsets = [
            [str(HELD[name].index(index) + n * len(HELD[name])) for name in text.rstrip(",").split(",")] for n in range(3)
        ]
        assert [each["INNER_MULTI_QUEUE_OFFSET"] for each in of] == [",".join(each) for each in offsets]
        told = [{**each, "UNIQ_KEY": "", "INNER_MULTI_QUEUE_OFFSET": "", "MAX_OFFSET": ""} for each in of]
        assert told[0] == told[1] == told[2]
