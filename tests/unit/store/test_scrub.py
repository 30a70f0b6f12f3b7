"""The scrub of a store that is open: what it finds, says and remembers."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from rockmq.store import scrub
from tests.unit.store.test_message_store import opened, put

SECONDS_MAX = 20


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "IDLE_SECONDS", 0.02)
    monkeypatch.setattr(scrub, "ROUND_MS", 0)


async def test_a_flipped_byte_is_found_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path) as (store, _):
        for _ in range(40):
            put(store, b"x" * 4000)
        path = tmp_path / "commitlog" / f"{0:020}"
        with path.open("r+b") as file:
            file.seek(1000)
            file.write(b"\xff")
        assert store.scrub is not None
        with caplog.at_level(logging.CRITICAL):
            async with asyncio.timeout(SECONDS_MAX):
                rounds: set[int] = set()
                while not store.scrub.faults or len(rounds - {0}) < 2:
                    await asyncio.sleep(0.01)
                    rounds.add(store.scrub.last_round)
        (told,) = (record for record in caplog.records if "damaged" in record.message)
        assert f"{path}, byte 0" in told.message
        assert store.scrub.faults == 1
        assert store.scrub.scrubbed >= 2 * 60_000
    assert json.loads((tmp_path / "config" / "scrub.json").read_text())["lastRound"] > 0


async def test_the_place_is_remembered(tmp_path: Path) -> None:
    async with opened(tmp_path, scrubBytesPerSecond="20000") as (store, _):
        for _ in range(40):
            put(store, b"x" * 4000)
        assert store.scrub is not None
        async with asyncio.timeout(SECONDS_MAX):
            while not store.scrub.scrubbed:
                await asyncio.sleep(0.01)
    place = json.loads((tmp_path / "config" / "scrub.json").read_text())["position"]
    assert 0 < place < 131072
    async with opened(tmp_path, scrubBytesPerSecond="0") as (store, _):
        assert store.scrub is None


async def test_a_store_without_cold_files_writes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        put(store, b"x")
        await asyncio.sleep(0.1)
        assert store.scrub is not None
        assert store.scrub.scrubbed == 0
    assert not (tmp_path / "config" / "scrub.json").exists()
