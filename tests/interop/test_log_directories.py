"""A log in two directories, served by Apache's broker and by ours in turn, each of them stopped and killed."""

from contextlib import ExitStack
from pathlib import Path

from rockmq.cli.store_verify import layout_of
from rockmq.protocol import properties
from rockmq.store.dump import Wanted, records
from rockmq.store.verify import verify
from tests.interop.test_store_moves import Moving, judge
from tests.support import apache
from tests.support.cluster import wait_for_route
from tests.support.process import free_port

FILE = 16 << 10
"""What is sent with one prefix fills some such files."""


def numbers(directory: Path) -> list[int]:
    return sorted(int(path.name) // FILE for path in directory.iterdir())


def test_a_log_in_two_directories_moves_to_our_broker_and_back(tmp_path: Path) -> None:
    first, second = tmp_path / "disk-1", tmp_path / "disk" / "2"
    paths = {"storePathCommitLog": f"{second},{first}", "mappedFileSizeCommitLog": str(FILE)}
    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        moving = Moving(apache.SERVER, apache.SERVER, tmp_path, names.address, **paths)
        with moving.apaches():
            sent = moving.send("first")
        counts = [whole_log(first, second)]
        assert stored(moving) == sent
        with moving.ours():
            wait_for_route(moving.namesrv, "moving")
            sent |= moving.send("second")
        counts.append(whole_log(first, second))
        with moving.apaches(killed=True):
            wait_for_route(moving.namesrv, "moving")
            judge(moving.consume("third", sent), {"first", "second"})
            sent |= moving.send("third")
        counts.append(whole_log(first, second))
        with moving.ours(killed=True):
            wait_for_route(moving.namesrv, "moving")
            judge(moving.consume("fourth", sent), {"first", "second", "third"})
            sent |= moving.send("fourth")
        counts.append(whole_log(first, second))
        with moving.apaches(killed=True):
            wait_for_route(moving.namesrv, "moving")
            judge(moving.consume("fifth", sent), {"first", "second", "third", "fourth"})
        assert counts == sorted(set(counts)), "each of them has made files"
        assert counts[0] > 1


def stored(moving: Moving) -> set[str]:
    """The keys of all messages in a store without a fault."""
    layout = layout_of(moving.directory / "broker" / "store", moving.configuration)
    report = verify(layout, lambda done, total: None)
    assert report.is_clean, report.findings
    return {properties.decode(text)["KEYS"] for *_, text in records(layout, Wanted(topic="moving"))}


def whole_log(first: Path, second: Path) -> int:
    """How many files the log has, which both brokers put into the same directories: those take turns in the order in which
    Java sorts their names."""
    odd_and_even = numbers(first) + numbers(second)
    assert numbers(first) == [each for each in sorted(odd_and_even) if each % 2 == 0]
    assert sorted(odd_and_even) == list(range(len(odd_and_even)))
    return len(odd_and_even)
