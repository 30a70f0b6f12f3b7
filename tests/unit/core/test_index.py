"""Index files against a plain model of Apache's, and what becomes of them after crashes and damage."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockmq._core import Index, Store, StoreError
from tests.support import index_model
from tests.support.index_model import key_hash
from tests.support.model import Record
from tests.unit.core.stores import PEER, append, fresh, opened

SLOTS, ENTRIES = 7, 12
LOG_FILE = 2048
ALWAYS = (0, 2**63 - 1)
NAME = "20260102030405678"


@dataclass(frozen=True)
class Sent:
    topic: str
    properties: dict[str, str]
    sys_flag: int
    timestamp: int

    @property
    def text(self) -> bytes:
        return "".join(f"{key}\x01{value}\x02" for key, value in self.properties.items()).encode()

    def record(self) -> Record:
        return Record(
            self.topic, 0, b"body", self.text, born_host=PEER, store_timestamp=self.timestamp, sys_flag=self.sys_flag
        )


def sent(timestamp: int, keys: str = "", *, unique: str = "", tags: str = "", topic: str = "T") -> Sent:
    properties = {"KEYS": keys, "UNIQ_KEY": unique, "TAGS": tags}
    return Sent(topic, {key: value for key, value in properties.items() if value}, 0, timestamp)


def index_of(store: Store, path: Path, *, trusted_until: int | None = None, entries: int = ENTRIES) -> Index:
    return Index(store, str(path / "index"), slots=SLOTS, entries=entries, trusted_until=trusted_until)


def catch_up(index: Index, store: Store) -> None:
    index.catch_up(store.max_position, 1 << 30, NAME)


def contents(path: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted((path / "index").iterdir())]


def positions(
    index: Index, key: str, *, topic: str = "T", count: int = 64, begin: int = 0, end: int = ALWAYS[1]
) -> list[int]:
    return index.find(topic, key, is_tag=False, count_max=count, begin=begin, end=end)[0]


def filled(path: Path, messages: list[Sent]) -> tuple[Store, index_model.Index]:
    store, model = fresh(path, log_file_size=LOG_FILE), index_model.Index(SLOTS, ENTRIES)
    put_all(store, model, messages)
    return store, model


def put_all(store: Store, model: index_model.Index, messages: list[Sent]) -> None:
    for each in messages:
        position = append(store, each.record())[0]
        model.put(each.topic, each.properties, each.sys_flag, position, each.timestamp)


def reopened(path: Path) -> Store:
    store = opened(path, log_file_size=LOG_FILE)
    store.recover(store.files()[0][0] if store.files() else 0, True)
    return store


words = st.sampled_from(["a", "b", "ключ", "k-1", "polygenelubricants", "😀", "Aa", "BB"])
messages = st.builds(
    Sent,
    topic=st.sampled_from(["T", "U", "Тема"]),
    properties=st.fixed_dictionaries(
        {},
        optional={
            "KEYS": st.lists(words, min_size=1, max_size=4).map(" ".join) | st.sampled_from([" ", "a  b", " a"]),
            "UNIQ_KEY": words,
            "TAGS": words,
            "other": words,
        },
    ),
    sys_flag=st.sampled_from([0, 0, 4, 8, 12]),
    timestamp=st.integers(1, 20_000) | st.just(1 << 45),
)
actions = st.lists(messages | st.sampled_from(["all", "step", "restart", "restart all", "crash"]), max_size=40)


@settings(max_examples=150)
@given(actions=actions)
def test_files_are_those_of_the_model(actions: list[Sent | str]) -> None:
    """Row 3.5."""
    path = Path(tempfile.mkdtemp())
    try:
        store, model = filled(path, [])
        index = index_of(store, path)
        for action in [*actions, "all"]:
            if isinstance(action, Sent):
                put_all(store, model, [action])
                continue
            if action == "step":
                index.catch_up(store.max_position, 1, NAME)
                continue
            if action in ("all", "restart all"):
                catch_up(index, store)
                assert index.position == store.max_position
            if action.startswith("restart"):
                index.close()
            if action != "all":
                store.close()
                store = reopened(path)
                # Half of what a crash leaves is thrown away here, as nothing in the checkpoint vouches for it.
                index = index_of(store, path, trusted_until=10_000 if action == "crash" else None)
        assert contents(path) == [file.encode(model.file_size) for file in model.files]
        for topic, key in {
            (m.topic, k) for m in actions if isinstance(m, Sent) for k in ["a", "Aa", *m.properties.values()]
        }:
            for begin, end in [ALWAYS, (5_000, 15_000), (0, 3_000), (19_000, 1 << 60)]:
                for count in (0, 2, 64):
                    found = positions(index, key, topic=topic, count=count, begin=begin, end=end)
                    assert found == model.find(topic, key, count, begin, end)
            tagged = index.find(topic, key, is_tag=True, count_max=64, begin=0, end=ALWAYS[1])[0]
            assert tagged == model.find(topic, "T#" + key, 64, *ALWAYS)
        store.close()
    finally:
        shutil.rmtree(path)


def test_nothing_is_made_before_a_message_has_keys(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, [sent(1000)] * 3)
    index = index_of(store, tmp_path)
    catch_up(index, store)
    assert index.position == store.max_position
    assert contents(tmp_path) == []
    assert index.find("T", "a", is_tag=False, count_max=1, begin=0, end=1) == ([], 0, 0)


def test_limit_is_kept_and_the_end_told(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, [sent(1000, "a")])
    first_end = store.max_position
    second = append(store, sent(2500, "a").record())[0]
    index = index_of(store, tmp_path)
    index.catch_up(first_end, 1 << 30, NAME)
    assert index.position == first_end
    assert index.find("T", "a", is_tag=False, count_max=64, begin=0, end=9999) == ([0], 1000, 0)
    catch_up(index, store)
    assert index.find("T", "a", is_tag=False, count_max=64, begin=0, end=9999) == ([second, 0], 2500, second)


def test_files_get_the_time_as_name_or_the_number_after_the_last(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, [sent(1000 + n, f"k{n}") for n in range(3 * (ENTRIES - 1))])
    index = index_of(store, tmp_path)
    catch_up(index, store)
    names = [file.name for file in sorted((tmp_path / "index").iterdir())]
    assert names == [NAME, "20260102030405679", "20260102030405680"]
    assert index.sealed_until == 1000 + 2 * (ENTRIES - 1) - 1, "the last file is full, but the next isn't begun"
    for name in ("", "2026", "2026010203040567x"):
        with pytest.raises(ValueError, match="17 digits"):
            index.catch_up(store.max_position, 1, name)


def test_keys_of_one_message_that_are_spread_over_two_files_are_put_once(tmp_path: Path) -> None:
    messages = [sent(1000, " ".join(f"k{n}" for n in range(ENTRIES - 3))), sent(2000, "x y z", unique="u", tags="t")]
    store, model = filled(tmp_path, messages)
    index = index_of(store, tmp_path)
    catch_up(index, store)
    whole = contents(tmp_path)
    assert [len(file.entries) for file in model.files] == [ENTRIES - 1, 3]
    index.close()
    # The checkpoint vouches for the first file; the second is made again, from the middle of the message.
    index = index_of(store, tmp_path, trusted_until=2000)
    assert len(contents(tmp_path)) == 1
    catch_up(index, store)
    assert contents(tmp_path) == whole == [file.encode(model.file_size) for file in model.files]


@pytest.mark.parametrize(
    ("trusted_until", "kept"), [(None, 3), (0, 0), (1010, 1), (1020, 1), (1021, 2), (9999, 2)]
)  # the third isn't full
def test_after_a_crash_only_what_the_checkpoint_vouches_for_is_kept(
    tmp_path: Path, trusted_until: int | None, kept: int
) -> None:
    """Row 3.5."""
    store, model = filled(tmp_path, [sent(1000 + n, f"k{n}") for n in range(2 * (ENTRIES - 1) + 3)])
    index = index_of(store, tmp_path)
    catch_up(index, store)
    index.close()
    index = index_of(store, tmp_path, trusted_until=trusted_until)
    assert len(contents(tmp_path)) == kept
    assert index.position == (0 if kept == 0 else model.files[kept - 1].end_position)
    catch_up(index, store)
    assert contents(tmp_path) == [file.encode(model.file_size) for file in model.files]


def shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def lengthen(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")


def overwritten(at: int, value: bytes) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        data = bytearray(file.read_bytes())
        data[at : at + len(value)] = value
        file.write_bytes(data)

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        shorten,
        lengthen,
        Path.unlink,
        lambda file: file.write_bytes(b""),
        overwritten(36, b"\0\0\1\0"),
        overwritten(32, b"\0\0\1\0"),
        overwritten(24, b"\0\0\0\0\0\0\0\1"),
        overwritten(40 + 4 * SLOTS + 20, b"\xff" * 20),
    ],
    ids=["short", "long", "gone", "empty", "count", "slots", "end", "first entry"],
)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_damaged_file_is_made_again_with_all_behind_it(tmp_path: Path, damage: Callable[[Path], None], number: int) -> None:
    store, model = filled(tmp_path, [sent(1000 + n, f"k{n}") for n in range(2 * (ENTRIES - 1) + 3)])
    index = index_of(store, tmp_path)
    catch_up(index, store)
    index.close()
    damage(sorted((tmp_path / "index").iterdir())[number])
    index = index_of(store, tmp_path)
    catch_up(index, store)
    if damage is Path.unlink and number < 2:
        return  # only whoever counts entries could tell; what is left stays as it is
    assert contents(tmp_path) == [file.encode(model.file_size) for file in model.files]


def test_a_ring_of_entries_ends(tmp_path: Path) -> None:
    """Pitfall 9.16."""
    store, _ = filled(tmp_path, [sent(1000, "a"), sent(1001, "b"), sent(1002, "a")])
    index = index_of(store, tmp_path)
    catch_up(index, store)
    index.close()
    (file,) = (tmp_path / "index").iterdir()
    overwritten(40 + 4 * SLOTS + 20 + 16, b"\0\0\0\3")(file)
    assert len(positions(index_of(store, tmp_path), "a")) == 2


def test_entries_behind_the_logs_end_are_dropped(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, [sent(1000 + n, f"k{n}") for n in range(5)])
    cut = store.max_position
    append(store, sent(2000, "lost").record())
    index = index_of(store, tmp_path)
    catch_up(index, store)
    index.close()
    store.close()
    (log,) = [file for file in (tmp_path / "commitlog").iterdir() if int(file.name) <= cut < int(file.name) + LOG_FILE]
    overwritten(cut % LOG_FILE, bytes(64))(log)
    store = reopened(tmp_path)
    assert store.max_position == cut
    index = index_of(store, tmp_path)
    catch_up(index, store)
    assert positions(index, "lost") == []
    assert [len(positions(index, f"k{n}")) for n in range(5)] == [1] * 5


def test_files_below_the_logs_beginning_are_deleted(tmp_path: Path) -> None:
    """Row 4.2."""
    store, model = filled(tmp_path, [sent(1000 + n, f"k{n}", tags="t" * 50) for n in range(60)])
    index = index_of(store, tmp_path)
    catch_up(index, store)
    assert index.delete_below(0) == []
    store.delete_files_below(2 * LOG_FILE)
    expected = sum(file.end_position < store.min_position for file in model.files)
    assert 0 < expected < len(model.files)
    assert len(index.delete_below(store.min_position)) == expected
    assert contents(tmp_path) == [file.encode(model.file_size) for file in model.files[expected:]]
    assert len(index.delete_below(1 << 60)) == len(model.files) - expected - 1, "never the newest"
    index.close()
    shutil.rmtree(tmp_path / "index")
    index = index_of(store, tmp_path)
    assert index.position == store.min_position
    catch_up(index, store)
    assert positions(index, "k59")


def test_a_hole_in_an_old_log_file_is_passed_over(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, [sent(1000 + n, f"k{n}") for n in range(60)])
    store.close()
    first, *_ = sorted((tmp_path / "commitlog").iterdir())
    overwritten(200, bytes(64))(first)
    store = opened(tmp_path, log_file_size=LOG_FILE)
    store.recover(LOG_FILE, True)
    index = index_of(store, tmp_path)
    catch_up(index, store)
    assert index.position == store.max_position
    assert positions(index, "k0") == [0]
    assert positions(index, "k59")


def test_foreign_files_stay(tmp_path: Path) -> None:
    (tmp_path / "index" / "20200101000000000").mkdir(parents=True)
    (tmp_path / "index" / "rocksdb").write_text("x")
    store, _ = filled(tmp_path, [sent(1000, "a")])
    index = index_of(store, tmp_path)
    catch_up(index, store)
    assert len(list((tmp_path / "index").iterdir())) == 3


def test_closed_index_says_so(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, [sent(1000, "a")])
    index = index_of(store, tmp_path)
    index.close()
    index.close()
    with pytest.raises(StoreError, match="closed"):
        catch_up(index, store)


@pytest.mark.parametrize(("slots", "entries"), [(0, 10), (10, 1), (2**31 - 1, 10), (10, 2**30), (-1, 10)])
def test_sizes_that_cannot_be_are_refused(tmp_path: Path, slots: int, entries: int) -> None:
    store = fresh(tmp_path)
    with pytest.raises(ValueError, match="index file"):
        Index(store, str(tmp_path / "index"), slots=slots, entries=entries, trusted_until=None)


def test_hashes_are_javas() -> None:
    """Pitfall 9.10."""
    assert key_hash("polygenelubricants") == 0
    assert key_hash("TagA") == 2_598_919
    assert key_hash("标签") == 857_175
