"""When a table is saved, and what those who wait for it are told."""

import asyncio
from pathlib import Path

import pytest

from rockmq.base.errors import StoreUnavailable
from rockmq.broker.documents import Saver
from rockmq.broker.journal import Journal
from rockmq.protocol.bodies.common import DataVersion


class Table:
    """What is saved is how often it was changed; a save waits for `allowed`, and fails while there is a `fault`."""

    def __init__(self) -> None:
        self.saved = 0
        self.changes = 0
        self.begun = 0
        self.fault: Exception | None = None
        self.allowed = asyncio.Event()
        self.allowed.set()
        self.saver = Saver(Path("table.json"), self._save)

    def change(self) -> "asyncio.Future[None]":
        self.changes += 1
        return self.saver.now()

    async def _save(self) -> None:
        self.begun += 1
        changes = self.changes
        await self.allowed.wait()
        if self.fault is not None:
            raise self.fault
        self.saved = changes


@pytest.mark.parametrize("fault", [OSError("no room"), ValueError("no table of ours")])
async def test_whoever_waits_hears_of_any_fault(fault: Exception) -> None:
    table = Table()
    table.fault = fault
    for wait in [table.change() for _ in range(3)]:
        with pytest.raises(StoreUnavailable, match=f"can't be saved: {fault}"):
            await wait
    table.fault = None
    await table.change()
    assert table.saved == 4
    await table.saver.close()


async def test_who_gives_up_waiting_does_not_end_the_save() -> None:
    table = Table()
    table.allowed.clear()
    saved = table.change()
    closing = asyncio.create_task(table.saver.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    table.allowed.set()
    await saved
    assert table.saved == 1


async def test_a_change_during_a_last_save_that_fails_is_answered() -> None:
    table = Table()
    table.allowed.clear()
    table.fault = OSError("no room")
    first = table.change()
    closing = asyncio.create_task(table.saver.close())
    while not table.begun:
        await asyncio.sleep(0)
    second = table.change()
    table.allowed.set()
    for wait in (first, second):
        with pytest.raises(StoreUnavailable, match="no room"):
            await wait
    await closing


@pytest.mark.parametrize("fault", [OSError("no room"), RuntimeError("can't start new thread")])
async def test_whoever_waits_for_the_journal_hears_of_any_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def fail(_: int) -> None:
        raise fault

    journal = Journal(tmp_path / "topics.json", DataVersion())
    with monkeypatch.context() as patch:
        patch.setattr("rockmq.broker.journal.os.fdatasync", fail)
        for wait in [journal.append(b'{"a":%d}' % number) for number in range(3)]:
            with pytest.raises(StoreUnavailable, match=f"journal.1 can't be written: {fault}"):
                await wait
    await journal.append(b'{"b":1}')
    assert b'{"b":1}' in (tmp_path / "topics.json.journal.2").read_bytes()
    closing = asyncio.create_task(journal.close())
    kept = journal.append(b'{"c":1}')
    await asyncio.sleep(0)
    closing.cancel()
    await kept
    assert b'{"c":1}' in (tmp_path / "topics.json.journal.2").read_bytes()
    await journal.close()
