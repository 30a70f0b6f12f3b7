"""Small stores for the tests of this folder."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from rockmq._core import Slice, Store
from tests.support.model import Record

HOST = bytes([10, 0, 0, 1, 0, 0, 42, 159])
HOST_V6 = bytes(15) + b"\x01\x00\x00\x2a\x9f"
PEER = bytes([192, 168, 0, 7, 0, 0, 200, 1])
PEER_V6 = bytes.fromhex("20010db8000000000000000000000005") + b"\x00\x00\xc8\x01"
ADDED = b"MSG_REGION\x01Here\x02TRACE_ON\x01true\x02CLUSTER\x01Main\x02"


def opened(
    path: Path,
    *,
    log_file_size: int = 1 << 20,
    queue_file_size: int = 20 * 100,
    store_host: bytes = HOST,
    max_message_size: int = 1 << 16,
    region: str = "Here",
    append_crc_property: bool = False,
    batch_queue_file_size: int = 46 * 100,
    light_queues_max: int = 0,
    log_directories: Sequence[str] = ("commitlog",),
    read_only: Sequence[str] = (),
    delay_levels: Sequence[int] = (),
) -> Store:
    return Store(
        [str(path / each) for each in log_directories],
        str(path / "consumequeue"),
        log_file_size=log_file_size,
        queue_file_size=queue_file_size,
        store_host=store_host,
        max_message_size=max_message_size,
        region=region,
        trace_on=True,
        cluster="Main",
        append_crc_property=append_crc_property,
        batch_queue_file_size=batch_queue_file_size,
        light_queues_max=light_queues_max,
        read_only_log_directories=[str(path / each) for each in read_only],
        delay_levels=delay_levels,
    )


def fresh(path: Path, *, log_file_size: int = 1 << 20, queue_file_size: int = 20 * 100) -> Store:
    store = opened(path, log_file_size=log_file_size, queue_file_size=queue_file_size)
    store.recover(0, True)
    return store


def append(store: Store, record: Record, light_queues: Sequence[str] = (), kind: int = 4) -> tuple[int, int, int, bool]:
    return store.append(
        record.topic,
        record.queue_id,
        record.body,
        record.properties,
        now=record.store_timestamp,
        born_host=record.born_host,
        born_timestamp=record.born_timestamp,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        light_queues=light_queues,
        kind=kind,
    )


def joined(buffers: list[bytes | Slice]) -> bytes:
    return b"".join(bytes(buffer) for buffer in buffers)


def copied(source: Path, target: Path) -> Path:
    """What a crash leaves, as the kernel had it: the files without what only the process knew."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
