"""A log in several directories: who gets the next file, and which of them belong together."""

from pathlib import Path

import pytest

from rockmq._core import Store, StoreError
from tests.support.model import Record
from tests.unit.core import stores

FILE = 1 << 16
BODY = 20_000
"""Three such messages fit a file."""


def opened(path: Path, *directories: str, read_only: tuple[str, ...] = ()) -> Store:
    return stores.opened(path, log_file_size=FILE, log_directories=directories, read_only=read_only)


def fresh(path: Path, *directories: str, read_only: tuple[str, ...] = ()) -> Store:
    store = opened(path, *directories, read_only=read_only)
    files = store.files()
    store.recover(files[0][0] if files else 0, True)
    return store


def put(store: Store, number: int) -> None:
    body = number.to_bytes(4, "big") * (BODY // 4)
    record = Record("T", 0, body, b"")
    assert stores.append(store, record)[2] == number


def fill(store: Store, files: int, first: int = 0) -> int:
    """Messages until the log has so many files; the number of the next one."""
    while store.max_position <= (files - 1) * FILE:
        put(store, first)
        first += 1
    return first


def bodies(store: Store) -> list[int]:
    low, high = store.queue_bounds("T", 0) or (0, 0)
    found = []
    for offset in range(low, high):
        data = stores.joined(store.get("T", 0, offset, 1, 1 << 20, store.max_position, None)[5])
        assert data.count(data[88:92]) >= BODY // 4
        found.append(int.from_bytes(data[88:92], "big"))
    return found


def numbers(path: Path, directory: str) -> list[int]:
    return sorted(int(file.name) // FILE for file in (path / directory).iterdir())


def move(path: Path, number: int, source: str, target: str) -> None:
    (path / target).mkdir(exist_ok=True)
    name = f"{number * FILE:020}"
    (path / source / name).rename(path / target / name)


def test_files_go_around_and_are_one_log(tmp_path: Path) -> None:
    live = tmp_path / "live"
    store = fresh(live, "a", "b", "c")
    count = fill(store, 5)
    assert store.prepare_next_file()
    assert [numbers(live, each) for each in "abc"] == [[0, 3], [1, 4], [2, 5]]
    assert bodies(store) == list(range(count))
    copy = stores.copied(live, tmp_path / "killed")
    store.close()
    assert [numbers(live, each) for each in "abc"] == [[0, 3], [1, 4], [2]], "the one made ahead is deleted"
    for path in (live, copy):
        again = fresh(path, "c", "a", "b")
        assert [base // FILE for base, _ in again.files()] == [0, 1, 2, 3, 4], "whichever order they are named in"
        assert bodies(again) == list(range(count))
        fill(again, 6, count)
        assert numbers(path, "b") == [1, 4, 5], "number 5 mod 3 of them"
        again.close()


def test_files_are_made_where_there_is_room(tmp_path: Path) -> None:
    store = fresh(tmp_path, "a", "b")
    count = fill(store, 1)
    store.set_log_targets([str(tmp_path / "a")])
    count = fill(store, 3, count)
    assert store.prepare_next_file()
    store.set_log_targets([str(tmp_path / "b")])
    count = fill(store, 4, count)
    assert (numbers(tmp_path, "a"), numbers(tmp_path, "b")) == ([0, 1, 2, 3], []), "one made ahead stays where it is"
    count = fill(store, 5, count)
    assert numbers(tmp_path, "b") == [4]
    with pytest.raises(ValueError, match="no directory that log files may be made in"):
        store.set_log_targets([])
    store.close()
    assert bodies(fresh(tmp_path, "a", "b")) == list(range(count))


def test_read_only_directories_keep_what_they_have(tmp_path: Path) -> None:
    store = fresh(tmp_path, "old")
    count = fill(store, 3)
    store.close()
    (tmp_path / "new").mkdir()
    store = fresh(tmp_path, "new", read_only=("old",))
    assert bodies(store) == list(range(count))
    count = fill(store, 5, count)
    assert (numbers(tmp_path, "old"), numbers(tmp_path, "new")) == ([0, 1, 2], [3, 4])
    deleted = [path.removeprefix(f"{tmp_path}/") for path in store.delete_files_below(4 * FILE)]
    assert deleted == [f"old/{0:020}", f"old/{FILE:020}", f"old/{2 * FILE:020}", f"new/{3 * FILE:020}"]
    assert (numbers(tmp_path, "old"), numbers(tmp_path, "new")) == ([], [4])
    left = bodies(store)
    assert left == list(range(count))[-len(left) :]
    store.close()
    assert bodies(fresh(tmp_path, "new", read_only=("old",))) == left


def test_one_position_in_two_directories_is_refused(tmp_path: Path) -> None:
    fill(fresh(tmp_path, "a"), 2)
    second = f"{FILE:020}"
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / second).write_bytes(bytes(FILE))
    with pytest.raises(StoreError, match=f"a/{second} and .*b/{second} are the same part.*; .*b/{second} begins with zeros"):
        opened(tmp_path, "a", "b")
    (tmp_path / "b" / second).write_bytes((tmp_path / "a" / second).read_bytes())
    with pytest.raises(StoreError, match=f"a/{second} and .*b/{second} are the same part.*other out of these directories$"):
        opened(tmp_path, "a", "b")
    (tmp_path / "b" / second).write_bytes(b"")
    assert len(opened(tmp_path, "a", "b").files()) == 2, "a crash left it before it had a size"
    assert numbers(tmp_path, "b") == []


def test_directories_that_cannot_be_used(tmp_path: Path) -> None:
    store = fresh(tmp_path, "a", "b")
    count = fill(store, 4)
    store.close()
    with pytest.raises(StoreError, match=r"/c isn't there, and .*/b holds a part of the log: mount it, or make it by hand"):
        opened(tmp_path, "b", "c")
    (tmp_path / "c").mkdir()
    with pytest.raises(
        StoreError, match=f"b/{3 * FILE:020} starts at {3 * FILE}, not at {2 * FILE}: .*or name the directory"
    ):
        opened(tmp_path, "b", "c")
    with pytest.raises(StoreError, match=r"/away isn't there, and readOnlyCommitLogStorePaths says .*: mount it"):
        opened(tmp_path, "a", "b", read_only=("away",))
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(StoreError, match=r"/a and .*/link are the same directory: name it once"):
        opened(tmp_path, "a", "b", "link")
    with pytest.raises(ValueError, match="no directory that log files may be made in"):
        opened(tmp_path, read_only=("a", "b"))
    move(tmp_path, 2, "a", "c")
    assert bodies(fresh(tmp_path, "a", "b", "c")) == list(range(count)), "a file may be moved to another directory"


def test_what_follows_the_end_is_deleted_wherever_it_is(tmp_path: Path) -> None:
    store = fresh(tmp_path, "a", "b")
    count = fill(store, 2)
    store.close()
    for number, directory in ((2, "b"), (3, "a"), (4, "b")):
        (tmp_path / directory / f"{number * FILE:020}").write_bytes(b"x" * FILE)
    assert bodies(fresh(tmp_path, "a", "b")) == list(range(count))
    assert (numbers(tmp_path, "a"), numbers(tmp_path, "b")) == ([0], [1])
