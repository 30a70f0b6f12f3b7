"""The documents of `config/` (store spec, 1.7): what they begin with, what of Apache's is read, when they are saved."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from rockmq.broker.groups import GroupTable
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.topics import TopicTable
from rockmq.protocol import codec
from rockmq.protocol.bodies.common import TopicConfig
from rockmq.protocol.codes import RequestCode
from rockmq.remoting.client import RemotingClient
from tests.golden.stored import MANIFEST, QUEUES, STORE
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import options, running

READ, WRITE, INHERIT = 4, 2, 1


def golden(tmp_path: Path) -> Path:
    """The documents of a store that Apache's broker 5.5.0 wrote."""
    return Path(shutil.copytree(STORE / "config", tmp_path / "config"))


def test_a_broker_has_the_topics_of_apaches(tmp_path: Path) -> None:
    """Those of what isn't built yet (revive log, sync of members) come with it."""
    table = TopicTable(tmp_path, options(tmp_path, brokerClusterName="C", brokerName="b"), FakeClock())
    asyncio.run(created(table))
    both = READ | WRITE
    assert {name: (config.write_queue_nums, config.perm) for name, config in table.all().items()} == {
        "SELF_TEST_TOPIC": (1, both),
        "TBW102": (8, both | INHERIT),
        "BenchmarkTest": (1024, both),
        "C": (16, both | INHERIT),
        "b": (1, both | INHERIT),
        "OFFSET_MOVED_EVENT": (1, both),
        "SCHEDULE_TOPIC_XXXX": (18, both),
        "C_REPLY_TOPIC": (1, both),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, both),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, both),
        "rmq_sys_wheel_timer": (1, both),
    }
    keys = {
        "autoCreateTopicEnable": "false",
        "clusterTopicEnable": "false",
        "traceTopicEnable": "true",
        "timerWheelEnable": "false",
    }
    other = TopicTable(tmp_path / "other", options(tmp_path, brokerClusterName="C", brokerName="b", **keys), FakeClock())
    asyncio.run(created(other))
    assert not {"TBW102", "rmq_sys_wheel_timer"} & other.all().keys()
    assert (other.all()["C"].perm, other.all()["RMQ_SYS_TRACE_TOPIC"].write_queue_nums) == (INHERIT, 1)


async def created(table: TopicTable) -> None:
    table.create_system_topics()
    await table.close()


def test_a_broker_has_the_groups_of_apaches(tmp_path: Path) -> None:
    table = GroupTable(tmp_path, auto_create=False, clock=FakeClock())
    assert set(table.all()) == {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    }
    assert all(group.consume_broadcast_enable for group in table.all().values())


def test_documents_of_apaches_broker_are_read(tmp_path: Path) -> None:
    directory = golden(tmp_path)
    topics = TopicTable(directory, options(tmp_path), FakeClock()).all()
    cluster = MANIFEST["broker"]["cluster"]
    assert {entry["topic"] for entry in QUEUES} <= set(topics)
    assert (topics["TBW102"].perm, topics[f"rmq_sys_REVIVE_LOG_{cluster}"].write_queue_nums) == (7, 8)
    assert ConsumerOffsets(directory, FakeClock()).by_group("golden-group")["golden"] == {0: 11, 1: 7}
    group = GroupTable(directory, auto_create=False, clock=FakeClock()).all()["golden-group"]
    assert (group.retry_max_times, group.consume_broadcast_enable, group.attributes) == (16, True, {})


async def test_what_other_brokers_put_into_a_document_stays_in_it(tmp_path: Path) -> None:
    """Attributes, forbidden bits, the number of the version."""
    directory = golden(tmp_path)
    topics, groups = directory / "topics.json", directory / "subscriptionGroup.json"
    before = json.loads(topics.read_text()), json.loads(groups.read_text())
    before[1]["forbiddenTable"] = {"golden-group": {"golden": 1}}
    groups.write_text(json.dumps(before[1]))
    table = TopicTable(directory, options(tmp_path), FakeClock())
    saved = table.put(TopicConfig(topic_name="added"))
    assert saved is not None
    await saved
    made = GroupTable(directory, auto_create=True, clock=FakeClock())
    assert made.find("added") is not None
    await table.close()
    await made.close()
    after = json.loads(topics.read_text()), json.loads(groups.read_text())
    del after[0]["topicConfigTable"]["added"], after[1]["subscriptionGroupTable"]["added"]
    assert after[0]["topicConfigTable"] == before[0]["topicConfigTable"]
    assert after[1]["subscriptionGroupTable"] == before[1]["subscriptionGroupTable"]
    assert after[1]["forbiddenTable"] == {"golden-group": {"golden": 1}}
    assert after[0]["dataVersion"]["counter"] == before[0]["dataVersion"]["counter"] + 1


async def test_the_text_before_the_last_one_is_kept(tmp_path: Path) -> None:
    """And is what is read when the last one is empty."""
    offsets = ConsumerOffsets(tmp_path, FakeClock())
    document, backup = tmp_path / "consumerOffset.json", tmp_path / "consumerOffset.json.bak"
    texts = []
    for offset in (10, 20):
        offsets.commit("g", "T", 0, offset)
        offsets.flush()
        async with asyncio.timeout(30):
            while f"{offset}" not in (document.read_text() if document.exists() else ""):
                await asyncio.sleep(0.01)
        texts.append(document.read_text())
    await offsets.close()
    assert [backup.read_text(), document.read_text()] == texts
    document.write_text(" \n")
    assert ConsumerOffsets(tmp_path, FakeClock()).query("g", "T", 0) == 10
    backup.unlink()
    assert ConsumerOffsets(tmp_path, FakeClock()).query("g", "T", 0) is None, "nothing was ever said"


async def test_offsets_are_saved_on_their_interval(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, flushConsumerOffsetInterval="10") as broker:
        fields = {"consumerGroup": "g", "topic": "BenchmarkTest", "queueId": "2", "commitOffset": "3"}
        await remote.ask(broker.address, codec.Command(RequestCode.UPDATE_CONSUMER_OFFSET, 0, fields=fields), 5)
        document = tmp_path / "config" / "consumerOffset.json"
        async with asyncio.timeout(30):
            while not document.exists() or '"BenchmarkTest@g":{"2":3}' not in document.read_text():
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("name", ["topics.json", "subscriptionGroup.json", "consumerOffset.json"])
def test_a_document_without_a_version_is_read(tmp_path: Path, name: str) -> None:
    """As 4.9 writes consumerOffset.json."""
    directory = golden(tmp_path)
    text = (directory / name).read_text()
    start = text.index('"dataVersion"')
    (directory / name).write_text(text[:start] + text[text.index("},", start) + 2 :])
    assert "golden" in TopicTable(directory, options(tmp_path), FakeClock()).all()
    assert "golden-group" in GroupTable(directory, auto_create=False, clock=FakeClock()).all()
    assert ConsumerOffsets(directory, FakeClock()).query("golden-group", "golden", 0) == 11
