"""What the journal keeps of the topics' changes, wherever a crash comes between its steps."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from rockmq.base import files
from rockmq.base.errors import StoreUnavailable
from rockmq.broker import documents
from rockmq.broker.journal import Journal
from rockmq.broker.topics import WHOLE_MAX, TopicTable
from rockmq.protocol.bodies.common import DataVersion, TopicConfig
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import options

MANY = WHOLE_MAX + 500


def opened(directory: Path) -> TopicTable:
    return TopicTable(directory, options(directory), FakeClock())


def journals(directory: Path) -> list[Path]:
    return sorted(directory.glob("topics.json.journal.*[0-9]"), key=lambda path: int(path.name.rpartition(".")[2]))


def document_of(directory: Path) -> dict[str, dict[str, object]]:
    """Topics of the document, by name."""
    topics: dict[str, dict[str, object]] = json.loads((directory / "topics.json").read_text())["topicConfigTable"]
    return topics


def in_document(directory: Path) -> set[str]:
    return set(document_of(directory))


async def put(table: TopicTable, *names: str, perm: int = 6) -> None:
    waits = [table.put(TopicConfig(topic_name=name, perm=perm)) for name in names]
    await asyncio.gather(*(wait for wait in waits if wait is not None))


async def delete(table: TopicTable, name: str) -> None:
    wait = table.delete(name)
    assert wait is not None
    await wait


@pytest.fixture
async def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TopicTable:
    """A table that was saved whole, and is now too large to be so for each change; the next save is far away."""
    table = opened(tmp_path)
    await put(table, *(f"t{number}" for number in range(MANY)))
    await table.close()
    assert len(in_document(tmp_path)) == MANY
    monkeypatch.setattr(documents, "PAUSE_PER_COST", 1e9)
    table = opened(tmp_path)
    await put(table, "first")
    async with asyncio.timeout(30):
        while journals(tmp_path) or "first" not in in_document(tmp_path):
            await asyncio.sleep(0.01)
    return table


def crashed(directory: Path) -> TopicTable:
    """The table that another process finds now."""
    copy = directory.with_name(directory.name + "-crashed")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy)
    return opened(copy)


async def test_a_small_table_is_whole_after_each_change_and_has_no_journal(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for name in ("a", "b", "c"):
        await put(table, name)
        assert name in in_document(tmp_path)
    assert journals(tmp_path) == []
    await table.close()


async def test_changes_of_a_large_table_are_in_the_journal_when_they_are_answered(tmp_path: Path, large: TopicTable) -> None:
    await put(large, "new", "gone")
    await put(large, "t7", perm=4)
    await delete(large, "gone")
    await delete(large, "t8")
    assert not {"new", "gone"} & in_document(tmp_path), "the document follows later"
    found = crashed(tmp_path)
    assert found.all() == large.all()
    assert found.version == large.version
    await large.close()


async def test_a_clean_stop_leaves_a_whole_document_and_no_journal(tmp_path: Path, large: TopicTable) -> None:
    await put(large, "new")
    await delete(large, "t8")
    assert journals(tmp_path)
    await large.close()
    assert journals(tmp_path) == []
    assert in_document(tmp_path) == set(large.all())
    document = json.loads((tmp_path / "topics.json").read_text())
    assert set(document) == {"dataVersion", "topicConfigTable"}
    assert document["topicConfigTable"]["new"] == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 16,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "new",
        "topicSysFlag": 0,
        "writeQueueNums": 16,
    }


async def test_batch_queues_are_in_the_document_when_they_are_answered(tmp_path: Path, large: TopicTable) -> None:
    """Apache's broker, which reads no journal, doesn't start with queues of another type than the document says."""
    batch = TopicConfig(topic_name="batch", attributes={"queue.type": "BatchCQ"})
    for config in (batch, replace(batch, perm=4)):
        saved = large.put(config)
        assert saved is not None
        await saved
        assert document_of(tmp_path)["batch"]["perm"] == config.perm
        assert document_of(tmp_path)["batch"]["attributes"] == config.attributes
        assert crashed(tmp_path).all() == large.all()
    await delete(large, "batch")
    assert "batch" not in document_of(tmp_path)
    assert crashed(tmp_path).all() == large.all()
    await put(large, "batch")
    assert "batch" not in document_of(tmp_path), "what has simple queues follows later, as they are what a topic has"
    await large.close()


async def test_files_that_are_no_journals_are_left_alone(tmp_path: Path, large: TopicTable) -> None:
    await put(large, "new")
    others = [
        tmp_path / f"topics.json.journal.{ending}" for ending in ("007", "0", "\u0663", "-1", "1_0", "1.unrelated", "")
    ]
    for path in others:
        path.write_bytes(b"not ours")
    found = crashed(tmp_path)
    assert found.all() == large.all()
    await large.close()
    assert all(path.read_bytes() == b"not ours" for path in others)


async def test_a_torn_end_is_passed_over_wherever_it_was_torn(tmp_path: Path, large: TopicTable) -> None:
    await put(large, "kept")
    path = journals(tmp_path)[-1]
    size = path.stat().st_size
    await put(large, "torn")
    data = path.read_bytes()
    for end in range(size, len(data) - 1, 5):
        path.write_bytes(data[:end])
        found = crashed(tmp_path)
        assert found.get("kept") is not None
        assert found.get("torn") is None
    path.write_bytes(data[: size + 20] + bytes(512) + data[size + 532 :])
    assert crashed(tmp_path).get("torn") is None, "a sector that never arrived"
    path.write_bytes(data)
    assert crashed(tmp_path).get("torn") is not None
    await large.close()


async def test_nothing_is_lost_between_any_two_steps_of_a_save(
    tmp_path: Path, large: TopicTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps: begin a journal, write the document, delete the journals it covers."""
    seen: list[str] = []

    def check(step: str) -> None:
        assert crashed(tmp_path).all() == expected, step
        seen.append(step)

    def around(step: str, work: Callable[..., None]) -> Callable[..., None]:
        def wrapped(*arguments: object) -> None:
            check(f"before {step}")
            work(*arguments)
            check(f"after {step}")

        return wrapped

    await put(large, "t1", perm=4)
    await put(large, "t1", "behind", perm=2)
    expected = dict(large.all())
    monkeypatch.setattr("rockmq.base.files.save_parts", around("the document", files.save_parts))
    monkeypatch.setattr(Path, "unlink", around("a deletion", Path.unlink))
    await large.close()
    assert seen[0] == "before the document"
    behind = seen[seen.index("after the document") + 1 :]
    assert behind == ["before a deletion", "after a deletion"] * 2, "what it covers, and the one that told so"


async def test_a_journal_does_not_undo_what_a_later_document_says(tmp_path: Path, large: TopicTable) -> None:
    """A crash may leave journals that a document covers, and the document goes on without them."""
    await put(large, "t1", perm=4)
    left = journals(tmp_path)[-1]
    text = left.read_bytes()
    await put(large, "t1", perm=2)
    await large.close()
    left.write_bytes(text)
    found = opened(tmp_path)
    assert found.all() == large.all()
    assert found.version == large.version


@pytest.mark.parametrize("ahead", [True, False])
async def test_a_journal_of_another_history_is_ignored_aloud(
    tmp_path: Path, large: TopicTable, caplog: pytest.LogCaptureFixture, ahead: bool
) -> None:
    """Apache's broker ran here after a kill, or a backup was put in place: its counter may be behind or ahead of ours."""
    await put(large, "ours")
    text = json.loads((tmp_path / "topics.json").read_text())
    text["dataVersion"]["counter"] += 1000 if ahead else 1
    text["dataVersion"]["timestamp"] += 1
    copy = tmp_path.with_name(tmp_path.name + "-other")
    shutil.copytree(tmp_path, copy)
    (copy / "topics.json").write_text(json.dumps(text))
    for _ in range(2):
        found = opened(copy)
        assert found.get("ours") is None
        assert found.version.counter == text["dataVersion"]["counter"]
    assert journals(copy) == []
    (aside,) = copy.glob("topics.json.journal.*.unrelated")
    assert b'"ours"' in aside.read_bytes()
    (said,) = [record.getMessage() for record in caplog.records if "follows another document" in record.getMessage()]
    assert str(aside) in said
    await large.close()


async def test_a_journal_that_the_document_covers_is_passed_over_in_silence(
    tmp_path: Path, large: TopicTable, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between the save and the deletion is nothing to complain of."""
    await put(large, "t1", perm=4)
    await put(large, "t1", perm=2)
    monkeypatch.setattr(Journal, "_delete", lambda self, before: None)
    await large.close()
    assert journals(tmp_path)
    found = crashed(tmp_path)
    assert found.all() == large.all()
    assert found.version == large.version
    assert "another document" not in caplog.text


async def test_a_journal_follows_a_document_that_was_not_saved_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table outgrows whole saves while one is under way: its first change in the journal must not need it."""
    table = opened(tmp_path)
    await put(table, *(f"t{number}" for number in range(WHOLE_MAX)))
    (tmp_path / "topics.json.tmp").mkdir()  # no save succeeds from here on
    lost, kept = table.put(TopicConfig(topic_name="t1", perm=4)), table.put(TopicConfig(topic_name="new"))
    assert kept is not None
    assert lost is not None
    await kept
    with pytest.raises(StoreUnavailable):
        await lost
    assert crashed(tmp_path).get("new") is not None
    (tmp_path / "topics.json.tmp").rmdir()
    await table.close()


def version(counter: int) -> DataVersion:
    return DataVersion(counter=counter)


async def test_journals_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    document = tmp_path / "topics.json"
    for number in (10, 2, 9):
        (tmp_path / f"topics.json.journal.{number}").touch()
    journal = Journal(document, version(1))
    await journal.begin(version(2))
    for entry in (b'{"a":1}', b'{"b":2}'):
        await journal.append(entry)
    await journal.begin(version(3))
    await journal.append(b'{"c":3}')
    await journal.close()
    whole = [b'{"a":1}', b'{"b":2}', b'{"c":3}']
    assert [list(Journal(document, version(each)).read()) for each in (1, 2, 3)] == [whole, whole, whole[2:]]
    await journal.finish()
    assert [path.name for path in journals(tmp_path)] == ["topics.json.journal.13"]
    assert list(Journal(document, version(3)).read()) == whole[2:]


async def test_what_cannot_be_written_is_refused_and_the_next_goes_elsewhere(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "topics.json", version(1))
    (tmp_path / "topics.json.journal.1").mkdir()
    with pytest.raises(StoreUnavailable, match=r"journal\.1 can't be written"):
        await journal.append(b'{"a":1}')
    await journal.append(b'{"b":2}')
    await journal.close()
    (tmp_path / "topics.json.journal.1").rmdir()
    assert list(Journal(tmp_path / "topics.json", version(1)).read()) == [b'{"b":2}']
