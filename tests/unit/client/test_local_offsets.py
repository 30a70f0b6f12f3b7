"""The file in which a broadcast's member keeps where it stands."""

import json as plain_json
from pathlib import Path

import pytest

from rockmq.base.clock import SystemClock
from rockmq.base.errors import ClientError
from rockmq.client.in_flight import InFlight
from rockmq.client.instance import Instance
from rockmq.client.local_offsets import LocalOffsets
from rockmq.protocol import json
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codec import Serializer

QUEUE, OTHER = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
JAVA = '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n\t\t}:5\n\t}\n}'
"""As LocalFileOffsetStore.java writes it: pretty, and with objects for keys."""


def instance(name: str | None = "i") -> Instance:
    return Instance(["127.0.0.1:1"], SystemClock(), serializer=Serializer.JSON, in_flight=InFlight(1, 1), instance_name=name)


def offsets(directory: Path) -> LocalOffsets:
    return LocalOffsets(instance(), "g", "first", directory)


async def test_there_and_back(tmp_path: Path) -> None:
    store = offsets(tmp_path)
    store.open()
    assert await store.start_of(QUEUE) == 0
    await store.commit({QUEUE: 7})
    await store.tell({OTHER: 3})
    store.close()
    again = offsets(tmp_path)
    again.open()
    assert [await again.start_of(queue) for queue in (QUEUE, OTHER)] == [7, 3]
    await again.commit({QUEUE: 4})
    again.close()
    assert plain_json.loads(json.standard(again.path.read_text())) == {"offsetTable": {QUEUE.key(): 4, OTHER.key(): 3}}
    assert '{{"brokerName":"b","queueId":0,"topic":"T"}:4' in again.path.read_text(), "as Java reads it"
    assert again.path.with_name("offsets.json.bak").exists()


def test_its_place_is_that_of_java(tmp_path: Path) -> None:
    made = instance("red")
    assert LocalOffsets(made, "g", "first", tmp_path).path == tmp_path / f"{made.ip}@red" / "g" / "offsets.json"
    assert made.client_id == f"{made.ip}@red"
    for wrong in ("", "../red", "a b", "."):
        with pytest.raises(ClientError, match="instance_name="):
            instance(wrong)
    default = instance(None)
    home = Path("~/.rocketmq_offsets").expanduser()
    assert LocalOffsets(default, "g", "first", None).path == home / f"{default.ip}@DEFAULT" / "g" / "offsets.json"
    assert default.client_id != default.stable_id


@pytest.mark.parametrize("name", ["offsets.json", "offsets.json.bak"])
async def test_javas_text_is_read_also_from_the_backup(tmp_path: Path, name: str) -> None:
    store = offsets(tmp_path)
    store.path.parent.mkdir(parents=True)
    store.path.write_text("{ not whole")
    store.path.with_name(name).write_text(JAVA)
    store.open()
    assert await store.start_of(QUEUE) == 5
    store.close()


def test_a_damaged_file_is_not_begun_anew_in_silence(tmp_path: Path) -> None:
    store = offsets(tmp_path)
    store.path.parent.mkdir(parents=True)
    store.path.write_text('{"offsetTable":{"nonsense":1}}')
    with pytest.raises(ClientError, match="damaged, delete"):
        store.open()
    store.path.unlink()
    store.open()  # the failure has left no lock
    store.close()


def test_one_consumer_at_a_time(tmp_path: Path) -> None:
    first, second = offsets(tmp_path), offsets(tmp_path)
    first.open()
    with pytest.raises(ClientError, match="its own instance_name"):
        second.open()
    first.close()
    second.open()
    second.close()


async def test_a_directory_that_can_not_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClientError, match="can't be kept in"):
        offsets(tmp_path / "file").open()
    store = offsets(tmp_path)
    store.open()
    store.path.with_name("offsets.json.tmp").mkdir()
    await store.commit({QUEUE: 7})
    assert "aren't saved" in caplog.text
    store.path.with_name("offsets.json.tmp").rmdir()
    await store.commit({QUEUE: 7})
    assert store.path.exists()
    store.close()
    store.close()
