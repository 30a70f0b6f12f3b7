"""Record golden bytes from Apache's own software: `python -m tests.golden.capture` (Linux, Java, Maven; some minutes).

Writes beside itself
    frames/<who>-<serializer>-<code>-request[-n].bin, ...-response-<code>[-n].bin and frames/index.json
    store/ with the files of a broker 5.5.0 cut to their non-zero beginning and store/manifest.json
who: the client version 4.9.8 or 5.5.0, `mqadmin` (5.5.0) or `broker` (5.5.0, talking to the name server or as a slave to
its master); in a response the one who asked. Frames are told apart by code, field names and whether there is a body; of
each kind the smallest is kept, and of `mqadmin` only what the client of that version doesn't do as well.
"""

import asyncio
import json
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

from tests.golden.recorder import PROXY_HOST, Recorded, Recorder
from tests.support import apache, frames
from tests.support.events import events, wait_for, wait_for_keys
from tests.support.messages import content
from tests.support.process import eventually, free_broker_port, free_port

HERE = Path(__file__).parent
FRAMES = HERE / "frames"
STORE = HERE / "store"
CLUSTER = "GoldenCluster"
BROKER = "golden-a"
LOG_FILE_SIZE = 16 << 10
QUEUE_FILE_SIZE = 1_000 * 20
VARIANTS_MAX = 2
# Bodies above it say nothing that a smaller frame of the kind doesn't; a kind that only has larger ones is left out.
BODY_SIZE_MAX = 6_000
# What only a broker sends, to a name server or its master; tells its connections from those of clients.
BROKER_CODES = {21, 43, 45, 103, 104, 322, 901, 904}
SLAVE_CODES = {21, 43, 45, 201}
# Other ways of registering, in the second run.
OTHER_REGISTRATION = {"forceRegister": "false", "enableSlaveActingMaster": "true"}
OWN_VERSION = 479  # of `apache.invoke`, whose requests are ours and no golden bytes


# Frames


async def capture_frames(directory: Path) -> None:
    recorder = Recorder()
    for serializer in frames.SERIALIZERS:
        async with AsyncExitStack() as running:
            names, broker = free_port(), free_broker_port()
            await running.enter_async_context(recorder.proxy("namesrv", names))
            await running.enter_async_context(recorder.proxy("broker", broker))
            await running.enter_async_context(recorder.proxy("broker", broker - 2))  # where a slave asks
            await asyncio.to_thread(_drive_clients, recorder, directory / serializer, serializer, names, broker)
    chosen = _chosen(_distinct(_labelled(recorder.recorded)))
    shutil.rmtree(FRAMES, ignore_errors=True)
    FRAMES.mkdir()
    index = [_save(*kind, recorded) for kind, recorded in chosen]
    (FRAMES / "index.json").write_text(_lines_of(index), encoding="utf-8")
    print(f"{len(index)} frames of {len(recorder.recorded)} recorded, {_size_of(FRAMES) >> 10} KiB")


def _drive_clients(recorder: Recorder, directory: Path, serializer: str, names: int, broker: int) -> None:
    system = {"rocketmq.serialize.type": serializer.upper()}
    jvm = [f"-D{key}={value}" for key, value in system.items()]
    namesrv = f"{PROXY_HOST}:{names}"
    properties = {
        "enablePropertyFilter": "true",
        "registerNameServerPeriod": "10000",
        **(OTHER_REGISTRATION if serializer == "rocketmq" else {}),
    }
    recorder.phase = "broker"
    with ExitStack() as servers:
        servers.enter_context(apache.name_server(directory / "namesrv", names, jvm=jvm))
        started = apache.broker(
            directory / "broker", broker, namesrv,
            name=BROKER, cluster=CLUSTER, advertised=PROXY_HOST, properties=properties, jvm=jvm,
        )  # fmt: skip
        peer = servers.enter_context(started)
        if serializer == "json":
            _drive_slave(recorder, namesrv, directory / "slave")
        for client in apache.CLIENTS:
            recorder.phase = client
            _drive_client(client, namesrv, directory / client, system)
        if serializer == "json":
            recorder.phase = "mqadmin"
            _drive_mqadmin(recorder, namesrv, peer.address, directory / "mqadmin")
        recorder.phase = "broker"
        peer.terminate()


def _drive_slave(recorder: Recorder, namesrv: str, directory: Path) -> None:
    properties = {"brokerRole": "SLAVE", "brokerId": "1"}
    started = apache.broker(directory, free_broker_port(), namesrv, name=BROKER, cluster=CLUSTER, properties=properties)
    with started as slave:

        def synchronized() -> bool:
            return {recorded.frame.code for recorded in recorder.recorded} >= SLAVE_CODES

        eventually(synchronized, 120, "the slave asked for all tables of its master")
        slave.terminate()  # in order: clients must not find it in the route any more


def _drive_client(client: str, namesrv: str, directory: Path, system: dict[str, str]) -> None:
    where = f"namesrv={namesrv}", f"topic=golden-{client.replace('.', '-')}"
    group = f"golden-group-{client.replace('.', '-')}"
    tagged = where[0], f"{where[1]}-tags"

    def run(main: str, *arguments: str, more: dict[str, str] | None = None, timeout_s: float = 200) -> None:
        name = f"{main}-{len(list(directory.glob('*.out')))}"
        with apache.program(
            client, main, *arguments, directory=directory, name=name, system={**system, **(more or {})}
        ) as program:
            assert program.wait(timeout_s) == 0, program.tail()
            assert not events(program, "failed"), program.tail()

    run("Producer", *tagged, "count=4", "modes=sync,oneway,batch,bare,large")
    run("Producer", *tagged, "count=1", "modes=sync,batch", more={"org.apache.rocketmq.client.sendSmartMsg": "false"})
    consumer = f"group={group}"
    run("PushConsumer", *tagged, consumer, "tags=tag0 || tag1", "failOnce=1", "count=4")
    run("PushConsumer", *tagged, f"{consumer}-sql", "sql=index >= 0 AND TAGS = 'tag0'", "count=1")
    run("Steps", *where, consumer)


def _drive_mqadmin(recorder: Recorder, namesrv: str, broker: str, directory: Path) -> None:
    """Commands whose requests a broker or name server is asked often; two consumers are on line meanwhile."""
    topic, group = "golden-admin", "golden-admin-group"

    def run(command: str, *arguments: str, addressed: bool = True) -> str:
        done = apache.mqadmin(command, *arguments, namesrv=namesrv if addressed else None, directory=directory, timeout_s=90)
        (directory / "said.txt").open("a").write(f"$ {command} {arguments}\n{done.stdout}\n{done.stderr}\n")
        return done.stdout

    run("updateTopic", "-b", broker, "-t", topic, "-r", "4", "-w", "4")
    run("updateTopic", "-c", CLUSTER, "-t", f"{topic}-ordered", "-r", "2", "-w", "2", "-o", "true")
    run("updateTopic", "-c", CLUSTER, "-t", f"{topic}-pop", "-r", "2", "-w", "2")
    run("updateSubGroup", "-c", CLUSTER, "-g", group)
    run("setConsumeMode", "-c", CLUSTER, "-t", f"{topic}-pop", "-g", f"{group}-pop", "-m", "POP", "-q", "1")
    where = f"namesrv={namesrv}", f"topic={topic}"
    popped = f"namesrv={namesrv}", f"topic={topic}-pop", f"group={group}-pop"
    recorder.phase = "5.5.0"
    with ExitStack() as running:
        producer = running.enter_context(apache.program("5.5.0", "Producer", *where, "count=8", directory=directory))
        producer.wait(90)
        consumer = apache.program("5.5.0", "PushConsumer", *where, f"group={group}", directory=directory)
        consumer = running.enter_context(consumer)
        wait_for(consumer, "message", 8)
        producer = running.enter_context(apache.program("5.5.0", "Producer", *popped[:2], "count=4", directory=directory))
        producer.wait(90)
        popper = apache.program("5.5.0", "PushConsumer", *popped, "pop=true", "failOnce=1", directory=directory, name="pop")
        popper = running.enter_context(popper)
        wait_for(popper, "message", 4)
        message_id = events(consumer, "message")[0]["msgId"]
        offset_id = events(producer, "sent")[0]["offsetMsgId"]
        client_id = _client_id(recorder.recorded, group)
        recorder.phase = "mqadmin"
        for command, *arguments in (
            ("clusterList",),
            ("topicList",),
            ("topicList", "-c"),
            ("topicRoute", "-t", topic),
            ("topicRoute", "-t", "no-such-topic"),
            ("topicStatus", "-t", topic),
            ("topicClusterList", "-t", topic),
            ("consumerProgress", "-g", group),
            ("consumerConnection", "-g", group),
            ("consumerStatus", "-g", group, "-i", client_id),
            ("producerConnection", "-g", "producer-group", "-t", topic),
            ("queryMsgById", "-t", f"{topic}-pop", "-i", offset_id),
            ("queryMsgByUniqueKey", "-t", topic, "-i", message_id),
            ("queryMsgByUniqueKey", "-t", topic, "-i", message_id, "-g", group, "-d", client_id),
            ("queryMsgByKey", "-t", topic, "-k", content("message-sync", 1).key),
            ("queryMsgByOffset", "-t", topic, "-b", BROKER, "-i", "0", "-o", "0"),
            ("printMsg", "-t", topic),
            ("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0"),
            ("resetOffsetByTime", "-g", "golden-offline", "-t", topic, "-s", "0"),
            ("consumerStatus", "-g", group),
            ("updateTopicPerm", "-t", topic, "-p", "4", "-b", broker),
            ("updateBrokerConfig", "-b", broker, "-k", "flushDiskType", "-v", "ASYNC_FLUSH"),
            ("brokerStatus", "-b", broker),
            ("brokerConsumeStats", "-b", broker),
            ("getConsumerConfig", "-g", group),
            ("updateKvConfig", "-s", "golden", "-k", "key", "-v", "value"),
            ("deleteKvConfig", "-s", "golden", "-k", "key"),
            ("getNamesrvConfig",),
            ("updateNamesrvConfig", "-k", "clusterTest", "-v", "false"),
            ("updateOrderConf", "-t", topic, "-m", "put", "-v", f"{BROKER}:2"),
            ("updateOrderConf", "-t", topic, "-m", "get"),
            ("getBrokerConfig", "-b", broker),
            ("wipeWritePerm", "-b", BROKER),
            ("addWritePerm", "-b", BROKER),
            ("sendMessage", "-t", f"{topic}-pop", "-p", "body", "-k", "key", "-c", "tag"),
            ("queryCq", "-t", topic, "-q", "0", "-i", "0", "-c", "3"),
            ("statsAll", "-t", topic),
            ("cloneGroupOffset", "-s", group, "-d", "golden-cloned", "-t", topic),
            ("haStatus", "-b", broker),
            ("cleanUnusedTopic", "-b", broker),
            ("cleanExpiredCQ", "-b", broker),
        ):
            run(command, *arguments)
    for command, *arguments in (
        ("deleteSubGroup", "-g", group, "-c", CLUSTER),
        ("deleteTopic", "-t", topic, "-c", CLUSTER),
    ):
        run(command, *arguments)


def _client_id(recorded: Iterable[Recorded], group: str) -> str:
    """Of the last client whose heartbeat named the group."""
    beats = (r.frame.body for r in recorded if r.frame.code == 34 and f'"groupName":"{group}"'.encode() in r.frame.body)
    client_id: str = json.loads(list(beats)[-1])["clientID"]
    return client_id


Kind = tuple[str, str, int, str, int, str, bool]  # who, serializer, request code, request or response, code, fields, body


def _labelled(recordings: list[Recorded]) -> Iterable[tuple[str, int, Recorded]]:
    """(who asked, request code) of each frame."""
    of_broker = {r.connection for r in recordings if r.frame.code in BROKER_CODES and not r.frame.is_response}
    own = {r.connection for r in recordings if r.frame.version == OWN_VERSION and not r.frame.is_response}
    asked: dict[tuple[int, int, bool], int] = {}
    for recorded in recordings:
        if recorded.connection in own:
            continue
        frame = recorded.frame
        who = "broker" if recorded.connection in of_broker else recorded.phase
        if not frame.is_response:
            asked[recorded.connection, frame.opaque, recorded.from_server] = frame.code
            yield who, frame.code, recorded
        elif (code := asked.get((recorded.connection, frame.opaque, not recorded.from_server))) is not None:
            yield who, code, recorded


def _distinct(labelled: Iterable[tuple[str, int, Recorded]]) -> dict[Kind, Recorded]:
    smallest: dict[Kind, Recorded] = {}
    for who, code, recorded in labelled:
        frame = recorded.frame
        if len(frame.body) > BODY_SIZE_MAX:
            continue
        role = "response" if frame.is_response else "request"
        names = " ".join(sorted(frame.fields))
        kind = (who, frame.serializer, code, role, frame.code, names, bool(frame.body))
        if kind not in smallest or len(frame.data) < len(smallest[kind].frame.data):
            smallest[kind] = recorded
    return smallest


def _chosen(smallest: dict[Kind, Recorded]) -> list[tuple[Kind, Recorded]]:
    """The kinds to keep, in order of their file names."""
    of_client = {kind[1:] for kind in smallest if kind[0] == apache.SERVER}
    kept: dict[tuple[str, str, int, str, int], list[tuple[Kind, Recorded]]] = {}
    for kind, recorded in sorted(smallest.items(), key=lambda item: item[0]):
        if kind[0] != "mqadmin" or kind[1:] not in of_client:
            kept.setdefault(kind[:5], []).append((kind, recorded))
    return [
        each
        for variants in kept.values()
        for each in sorted(variants, key=lambda item: len(item[1].frame.data))[:VARIANTS_MAX]
    ]


def _save(
    who: str, serializer: str, request_code: int, role: str, code: int, _: str, __: bool, recorded: Recorded
) -> dict[str, Any]:
    frame = recorded.frame
    stem = f"{who}-{serializer}-{request_code}-{role}" + (f"-{code}" if role == "response" else "")
    for variant in range(1, 100):
        path = FRAMES / f"{stem}{f'-{variant}' if variant > 1 else ''}.bin"
        if not path.exists():
            break
    path.write_bytes(frame.data)
    peer = "broker" if who == "broker" else "client"
    return {
        "file": path.name,
        "who": who,
        "serializer": serializer,
        "role": role,
        "direction": f"{recorded.server}->{peer}" if recorded.from_server else f"{peer}->{recorded.server}",
        "requestCode": request_code,
        "code": frame.code,
        "language": frame.language,
        "version": frame.version,
        "opaque": frame.opaque,
        "flag": frame.flag,
        "remark": frame.remark,
        "fields": frame.fields,
        "bodySize": len(frame.body),
    }


# The store


def capture_store(directory: Path) -> None:
    """A broker of small files and messages of known content, ended in order."""
    names, port = free_port(), free_broker_port()
    properties = {
        "mappedFileSizeCommitLog": str(LOG_FILE_SIZE),
        "mappedFileSizeConsumeQueue": str(QUEUE_FILE_SIZE),
        "maxHashSlotNum": "50",
        "maxIndexNum": "200",
        "flushDiskType": "SYNC_FLUSH",
        "timerWheelEnable": "false",
        "transactionTimeOut": "3000",
        "transactionCheckInterval": "3000",
    }
    with ExitStack() as running:
        namesrv = running.enter_context(apache.name_server(directory / "namesrv", names)).address
        started = apache.broker(directory / "broker", port, namesrv, name=BROKER, cluster=CLUSTER, properties=properties)
        broker = running.enter_context(started)
        topic = "golden"
        apache.mqadmin(
            "updateTopic", "-b", broker.address, "-t", topic, "-r", "2", "-w", "2", namesrv=namesrv, directory=directory
        )
        where = f"namesrv={namesrv}", f"topic={topic}"

        def send(client: str, prefix: str, modes: str, count: int, compression: str = "ZLIB") -> None:
            name = f"{prefix}-{modes.replace(',', '-')}"
            arguments = f"prefix={prefix}", f"modes={modes}", f"count={count}", "batch=3"
            system = {"rocketmq.message.compressType": compression}
            with apache.program(
                client, "Producer", *where, *arguments, directory=directory, name=name, system=system
            ) as producer:
                assert producer.wait(90) == 0, producer.tail()
                assert not events(producer, "failed"), producer.tail()

        send("5.5.0", "new", "sync,selector,batch,bare", 3)
        send("4.9.8", "old", "sync,batch", 3)
        for compression in ("ZLIB", "LZ4", "ZSTD"):
            send("5.5.0", compression.lower(), "large", 1, compression)
        steps = f"namesrv={namesrv}", "topic=steps", "group=steps-group", "steps=delay,transaction"
        with apache.program("5.5.0", "Steps", *steps, directory=directory) as program:
            assert program.wait(200) == 0, program.tail()
        keys = {content(f"new-{mode}", i).key for mode in ("sync", "selector", "batch") for i in range(3)}
        with apache.program("5.5.0", "PushConsumer", *where, "group=golden-group", directory=directory) as consumer:
            wait_for_keys(consumer, keys)
        broker.terminate()
    _save_store(directory / "broker" / "store", broker.address)


def _save_store(store: Path, address: str) -> None:
    shutil.rmtree(STORE, ignore_errors=True)
    files = []
    wanted = ("commitlog/*", "consumequeue/*/*/*", "index/*", "checkpoint", "config/*.json")
    for path in sorted(path for pattern in wanted for path in store.glob(pattern)):
        data = path.read_bytes()
        target = STORE / path.relative_to(store)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.rstrip(b"\0") if path.suffix != ".json" else data)
        files.append({"path": str(path.relative_to(store)), "size": len(data)})
    checkpoint = dict(
        zip(
            ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp", "masterFlushedOffset", "confirmPhyOffset"),
            struct.unpack_from(">5q", (store / "checkpoint").read_bytes()),
            strict=True,
        )
    )
    records = _records(store)
    manifest = {
        "broker": {"version": apache.SERVER, "name": BROKER, "cluster": CLUSTER, "address": address},
        "logFileSize": LOG_FILE_SIZE,
        "queueFileSize": QUEUE_FILE_SIZE,
        "checkpoint": checkpoint,
        "files": files,
        "queues": _queue_entries(store),
        "records": records,
    }
    (STORE / "manifest.json").write_text(
        "{\n" + ",\n".join(f'"{key}": {_value(value)}' for key, value in manifest.items()) + "\n}\n", encoding="utf-8"
    )
    print(f"store: {len(files)} files, {len(records)} records, {_size_of(STORE) >> 10} KiB")


def _queue_entries(store: Path) -> list[dict[str, Any]]:
    """Every entry: 0 i64 position, 8 i32 size, 12 i64 tag hash (a time in the queues of delay levels)."""
    entries = []
    for path in sorted((store / "consumequeue").glob("*/*/*")):
        for offset, (position, size, tag_code) in enumerate(struct.iter_unpack(">qiq", path.read_bytes())):
            if size:
                topic, queue_id = path.parts[-3], int(path.parts[-2])
                entries.append(
                    {"topic": topic, "queueId": queue_id, "queueOffset": offset, "position": position, "size": size,
                     "tagCode": tag_code}
                )  # fmt: skip
    return entries


def _records(store: Path) -> list[dict[str, Any]]:
    """As Apache's decoder reads them."""
    logs = map(str, sorted((store / "commitlog").iterdir()))
    with apache.program("5.5.0", "DumpRecords", *logs, directory=store.parent) as dump:
        assert dump.wait(60) == 0, dump.tail()
        assert not dump.err.read_text(encoding="utf-8"), dump.tail()
        return [{key: value for key, value in event.items() if key != "event"} for event in events(dump, "record")]


def _value(value: object) -> str:
    return _lines_of(value).rstrip() if isinstance(value, list) else json.dumps(value, ensure_ascii=False)


def _lines_of(entries: list[dict[str, Any]]) -> str:
    """A JSON array with one entry a line, so that a change of one is a change of one line."""
    return "[\n" + ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries) + "\n]\n"


def _size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def main() -> None:
    if missing := apache.available():
        sys.exit(missing)
    with tempfile.TemporaryDirectory(prefix="golden-") as temporary:
        capture_store(Path(temporary) / "store")
        asyncio.run(capture_frames(Path(temporary) / "frames"))


if __name__ == "__main__":
    main()
