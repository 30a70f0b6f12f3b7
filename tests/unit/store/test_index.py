"""When the index follows the log, and what becomes of it at a stop, a kill and a failure."""

import asyncio
import logging
from pathlib import Path

import pytest

from rockmq.base.errors import StoreUnavailable
from rockmq.protocol import properties
from rockmq.store import index as index_module
from rockmq.store.checkpoint import Checkpoint
from rockmq.store.message_store import MessageStore, Put
from tests.unit.store.stores import HOST
from tests.unit.store.test_message_store import opened

SMALL = {"maxHashSlotNum": "7", "maxIndexNum": "12"}
FOREVER = 2**63 - 1


def put(store: MessageStore, key: str, size: int = 10) -> Put:
    text = properties.encode({"KEYS": key})
    return store.append("T", 0, b"x" * size, text, born_host=HOST, born_timestamp=0)


async def keys(store: MessageStore, key: str, count: int = 64) -> int:
    return len((await store.query("T", key, count, 0, FOREVER, is_tag=False)).records)


def files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


async def until_indexed(root: Path) -> None:
    async with asyncio.timeout(30):
        while not files(root):
            await asyncio.sleep(0.02)


async def test_query_sees_what_was_stored_just_now(tmp_path: Path) -> None:
    async with opened(tmp_path, flushDiskType="ASYNC_FLUSH", **SMALL) as (store, _):
        for number in range(100):
            stored = put(store, f"k{number}")
            found = await store.query("T", f"k{number}", 64, 0, FOREVER, is_tag=False)
            assert found.records == [store.core.read(stored.position)]
            assert found.indexed_position == stored.position
            assert abs(found.indexed_timestamp - store._clock.now_ms()) < 60_000


async def test_sync_flush_hides_what_is_not_on_disk(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, events):
        put(store, "k")
        assert await keys(store, "k") == 0
        store.request_flush()
        await asyncio.wait_for(events.changed.wait(), 30)
        assert await keys(store, "k") == 1


async def test_index_follows_without_being_asked(tmp_path: Path) -> None:
    async with opened(tmp_path, flushDiskType="ASYNC_FLUSH", **SMALL) as (store, _):
        put(store, "k")
        await until_indexed(tmp_path)


async def test_index_is_complete_after_a_stop_and_goes_on_after_it(tmp_path: Path) -> None:
    async with opened(tmp_path, **SMALL) as (store, _):
        for number in range(30):
            put(store, f"k{number}")
    before = [file.read_bytes() for file in files(tmp_path)]
    assert len(before) == 3
    async with opened(tmp_path, **SMALL) as (store, _):
        assert await keys(store, "k0") == 1
        assert [file.read_bytes() for file in files(tmp_path)] == before
        put(store, "later")
    async with opened(tmp_path, **SMALL) as (store, _):
        assert await keys(store, "later") == 1
        assert len(files(tmp_path)) == 3


async def test_full_files_are_in_the_checkpoint_and_outlast_a_kill(tmp_path: Path) -> None:
    async with opened(tmp_path, flushDiskType="ASYNC_FLUSH", **SMALL) as (store, _):
        for number in range(30):
            put(store, f"k{number}")
            await asyncio.sleep(0.002)  # so that files end at different times
        assert await keys(store, "k29") == 1
        checkpoint = Checkpoint.load(tmp_path / "checkpoint")
        last = store.core.store_timestamp("T", 0, 21)
        assert checkpoint.index == last, "the second file is full with the 22nd key"
    kept = [(file.name, file.read_bytes()) for file in files(tmp_path)]
    (tmp_path / "abort").write_text("4711")
    async with opened(tmp_path, flushDiskType="ASYNC_FLUSH", **SMALL) as (store, _):
        assert len(files(tmp_path)) in (2, 3)
        assert [await keys(store, f"k{number}") for number in range(30)] == [1] * 30
        assert [(file.name, file.read_bytes()) for file in files(tmp_path)][:2] == kept[:2]
        assert files(tmp_path)[2].name > kept[2][0], "made again"
        assert files(tmp_path)[2].read_bytes() == kept[2][1]
    assert Checkpoint.load(tmp_path / "checkpoint").index == last


async def test_other_sizes_make_the_index_anew(tmp_path: Path) -> None:
    async with opened(tmp_path, **SMALL) as (store, _):
        put(store, "k")
    async with opened(tmp_path, maxHashSlotNum="8", maxIndexNum="12") as (store, _):
        assert await keys(store, "k") == 1
    (file,) = files(tmp_path)
    assert file.stat().st_size == 40 + 8 * 4 + 12 * 20


async def test_without_the_index_nothing_is_made_and_nothing_found(tmp_path: Path) -> None:
    async with opened(tmp_path, messageIndexEnable="false", flushDiskType="ASYNC_FLUSH") as (store, _):
        put(store, "k")
        assert await keys(store, "k") == 0
    assert not (tmp_path / "index").exists()


async def test_answer_is_bounded_and_keeps_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "RESULT_BYTES_MAX", 2500)
    async with opened(tmp_path, flushDiskType="ASYNC_FLUSH") as (store, _):
        stored = [put(store, "k", 1000) for _ in range(5)]
        found = await store.query("T", "k", 64, 0, FOREVER, is_tag=False)
        assert found.records == [store.core.read(each.position) for each in stored[-2:]]
        big = put(store, "k", 5000)
        found = await store.query("T", "k", 64, 0, FOREVER, is_tag=False)
        assert found.records == [store.core.read(big.position)]


async def test_queries_at_once_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "QUERIES_MAX", 2)
    async with opened(tmp_path, flushDiskType="ASYNC_FLUSH") as (store, _):
        put(store, "k")
        results = await asyncio.gather(*(keys(store, "k") for _ in range(5)), return_exceptions=True)
        assert results[:2] == [1, 1]
        assert all(isinstance(result, StoreUnavailable) for result in results[2:])
        assert await keys(store, "k") == 1


async def test_long_index_is_made_in_steps_and_queries_come_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path, messageIndexEnable="false") as (store, _):
        for number in range(200):
            put(store, f"k{number}", 500)
    monkeypatch.setattr(index_module, "STEP_BYTES", 1000)
    async with opened(tmp_path, **SMALL) as (store, _):
        assert await asyncio.gather(keys(store, "k199"), keys(store, "k0"), keys(store, "none")) == [1, 1, 0]


async def test_index_that_cannot_be_written_stops_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(index_module, "INTERVAL_SECONDS", 0.01)
    async with opened(tmp_path, flushDiskType="ASYNC_FLUSH", **SMALL) as (store, events):
        directory = tmp_path / "index"
        directory.rename(tmp_path / "away")
        directory.write_text("in the way")
        put(store, "k")
        with caplog.at_level(logging.ERROR), pytest.raises(StoreUnavailable, match="index"):
            await keys(store, "k")
        await asyncio.sleep(0.1)
        assert sum("doesn't follow" in record.message for record in caplog.records) <= 1
        put(store, "k")
        directory.unlink()
        (tmp_path / "away").rename(directory)
        assert await keys(store, "k") == 2
        assert not events.failures


async def test_index_of_a_deleted_log_goes_with_it(tmp_path: Path) -> None:
    async with opened(tmp_path, flushDiskType="ASYNC_FLUSH", **SMALL) as (store, _):
        for number in range(300):
            put(store, f"k{number}", 1000)
        assert await keys(store, "k0") == 1
        count = len(files(tmp_path))
        store.core.delete_files_below(store.core.max_position - 70_000)
        assert await keys(store, "k0") == 0
        async with asyncio.timeout(30):
            while len(files(tmp_path)) > count // 2:
                await asyncio.sleep(0.02)
        assert await keys(store, "k299") == 1
