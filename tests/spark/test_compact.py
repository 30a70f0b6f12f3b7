"""Files of an archive that are put together, and what a kill at any point leaves: in this process, without Spark.

What is archived comes from a store. Spark's tasks are called one after the other; what would be killed ends at some call
that changes names of files, and nothing after it is done.
"""

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rockmq.base.errors import ConfigError
from rockmq.pipeline import archive_tasks
from rockmq.pipeline.archive import archive, manifest, paths
from rockmq.pipeline.archive_tasks import Item
from rockmq.pipeline.compact import compact
from rockmq.pipeline.manifest import ArchivedTopic
from rockmq.spark.options import ReadOptions
from tests.spark.test_store import closed
from tests.support.clock import FakeClock

__all__ = ["closed"]

TOPIC = "few"
COUNT = 30


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_turn(
        spark: object, items: Sequence[Item], todo: Sequence[int], read: ReadOptions | None, look: object
    ) -> list[tuple[int, Any, Any, Any]]:
        return [(number, *archive_tasks._done(items[number], read)) for number in todo]

    monkeypatch.setattr(archive_tasks, "_in_tasks", in_turn)


def archived(store: Path, directory: Path, end: int = COUNT, size: int = 7, **more: Any) -> None:
    ending = f'{{"{TOPIC}": {{"broker-a": {{"0": {end}}}}}}}'
    options = {"readFrom": f"store:{store}", "brokerName": "broker-a", "endingOffsets": ending}
    archive(None, "", TOPIC, directory, records_per_file=size, options=options, **more)  # type: ignore[arg-type]


def compacted(directory: Path, size: int = 1_000, **more: Any) -> None:
    compact(None, directory, records_per_file=size, **more)  # type: ignore[arg-type]


def offsets(files: list[str]) -> list[int]:
    found = [pq.read_table(path, columns=["queueOffset"]).column(0).to_pylist() for path in files]
    return sorted(offset for each in found for offset in each)


def there(directory: Path) -> list[str]:
    return sorted(map(str, directory.rglob("*.parquet")))


def test_small_files_become_one_and_stay_for_a_while(closed: Path, tmp_path: Path) -> None:
    clock = FakeClock()
    archived(closed, tmp_path, 20)
    small = paths(tmp_path, TOPIC)

    compacted(tmp_path, clock=clock)

    (large,) = manifest(tmp_path, TOPIC)
    assert (large.start, large.end, large.rows) == (0, 20, 20)
    assert offsets(small) == offsets(paths(tmp_path, TOPIC)) == list(range(20)), "who began before can go on"
    archived(closed, tmp_path)
    assert offsets(paths(tmp_path, TOPIC)) == list(range(COUNT))
    clock.seconds = (ArchivedTopic(tmp_path / TOPIC).folder / "00000002.all.jsonl").stat().st_mtime + 3_601
    compacted(tmp_path, size=1, clock=clock)
    assert there(tmp_path) == sorted(paths(tmp_path, TOPIC))
    assert not set(small) & set(there(tmp_path))


def test_what_is_large_stays_as_it_is(closed: Path, tmp_path: Path) -> None:
    archived(closed, tmp_path, 12, size=12)
    archived(closed, tmp_path, size=3)

    compacted(tmp_path, size=20, keep_seconds=0)

    assert [(each.start, each.end) for each in manifest(tmp_path, TOPIC)] == [(0, 12), (12, 30)]
    before = there(tmp_path)
    compacted(tmp_path, size=20, keep_seconds=0)
    assert there(tmp_path) == before


def test_a_file_that_was_damaged_is_named_and_nothing_goes(closed: Path, tmp_path: Path) -> None:
    archived(closed, tmp_path)
    victim = Path(paths(tmp_path, TOPIC)[2])
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")

    with pytest.raises(ConfigError, match=f"{victim.name} isn't what was archived"):
        compacted(tmp_path, keep_seconds=0)
    assert len(manifest(tmp_path, TOPIC)) == 5


def test_what_is_no_archive_is_told(closed: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{tmp_path} holds no archive"):
        compacted(tmp_path)
    with pytest.raises(ConfigError, match="nothing is no archive of a topic"):
        compacted(tmp_path, topics=["nothing"])
    archived(closed, tmp_path)
    (tmp_path / TOPIC / "_manifest" / "00000001.jsonl").write_text("{")
    with pytest.raises(ConfigError, match=r"00000001\.jsonl is no list of an archive"):
        compacted(tmp_path)


class Killed(BaseException):
    """What a process would be."""


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> "Callable[[int, Callable[[], None]], bool]":
    """`killed(n, work)`: do the work, but end before or after its nth change of a file's name; whether it came so far."""

    def run(point: int, work: Callable[[], None]) -> bool:
        steps = itertools.count()
        dead = False

        def cut(call: Callable[..., None]) -> Callable[..., None]:
            def changed(*words: Any, **more: Any) -> None:
                nonlocal dead
                step = next(steps)
                dead = dead or step >= point // 2
                if dead and (step > point // 2 or point % 2 == 0):
                    raise Killed
                call(*words, **more)
                if dead:
                    raise Killed

            return changed

        with monkeypatch.context() as patch:
            for name in ("replace", "link", "unlink"):
                patch.setattr(os, name, cut(getattr(os, name)))
            try:
                work()
            except Killed:
                return True
        return dead

    return run


def test_a_kill_at_any_point_leaves_each_message_once(
    closed: Path, tmp_path: Path, killed: Callable[[int, Callable[[], None]], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs of the archive and one that puts their files together, cut at each step: readers of the manifest see each
    message once at any time, and so does who lists the directory when all is done again."""

    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # changes no name, and takes the time

    def work(shelf: Path) -> None:
        archived(closed, shelf, 12, size=12)
        archived(closed, shelf, size=12)
        compacted(shelf, keep_seconds=0)

    for point in itertools.count():
        shelf = tmp_path / str(point)
        if not killed(point, lambda: work(shelf)):  # noqa: B023
            break
        seen = offsets(paths(shelf, TOPIC))
        assert seen in ([], list(range(12)), list(range(COUNT))), point
        work(shelf)
        assert offsets(paths(shelf, TOPIC)) == list(range(COUNT)), point
        assert there(shelf) == sorted(paths(shelf, TOPIC)), point
    assert point > 40
