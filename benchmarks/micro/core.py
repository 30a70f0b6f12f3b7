"""Time the hot calls of the native core: `python benchmarks/micro/core.py [seconds per call]`.

The store lives in a temporary directory of the repository's `.cache`, so that log pages are those of a real disk. Figures
are the best of several rounds: what the code costs when nothing disturbs it.
"""

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rockmq import _core
from rockmq.filter import sql

ROUNDS = 5
NOW_MS = 1_700_000_000_000
HOST = bytes((127, 0, 0, 1)) + (10_911).to_bytes(4, "big")
TOPIC = "MICRO"
QUEUES = 4
BODY = b"x" * 128
FRAME_MAX = 16 << 20
LOG_FILE_SIZE = 1 << 30
QUEUE_FILE_SIZE = 6_000_000
JSON, BINARY = 0, 1
EVERYTHING = 1 << 62
SCANNED = 800
"""Messages that one call looks at when it finds none."""


def send(serializer: int, opaque: int, batch: int = 0) -> bytes:
    properties = f"UNIQ_KEY\x017F000001{opaque:024X}\x02WAIT\x01true\x02"
    fields = {
        "a": "micro", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(opaque % QUEUES), "f": "0",
        "g": str(NOW_MS), "h": "0", "i": properties, "j": "0", "k": "false", "m": "true" if batch else "false",
    }  # fmt: skip
    code = 320 if batch else 310
    return _core.encode_frame(serializer, code, opaque, 0, None, fields, batch_body(batch) if batch else BODY)


def batch_body(count: int) -> bytes:
    parts = []
    for i in range(count):
        properties = f"UNIQ_KEY\x017F000001{i:024X}\x02WAIT\x01true\x02".encode()
        size = 22 + len(BODY) + len(properties)
        parts += [size.to_bytes(4, "big"), bytes(12), len(BODY).to_bytes(4, "big"), BODY]
        parts += [len(properties).to_bytes(2, "big"), properties]
    return b"".join(parts)


def best_us(call: Callable[[], object], seconds: float) -> float:
    """Microseconds of one call, in the best round."""
    best = float("inf")
    for _ in range(ROUNDS):
        calls, start = 0, time.perf_counter()
        end = start + seconds / ROUNDS
        while (now := time.perf_counter()) < end:
            for _ in range(50):
                call()
            calls += 50
        best = min(best, (now - start) / calls)
    return best * 1e6


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    cache = Path(__file__).resolve().parents[2] / ".cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="micro-", dir=cache) as directory, contextlib.ExitStack() as stack:
        store = opened(Path(directory))
        stack.callback(store.close)
        store.recover(0, True)
        store.set_ordinary(TOPIC, QUEUES, False)
        lane = _core.Lane(store, HOST, FRAME_MAX)
        heartbeat = _core.encode_frame(JSON, 34, 1, 0, None, {}, b"{}")
        chunks = {
            "Lane.feed: 1 JSON send": (send(JSON, 1), 1),
            "Lane.feed: 1 binary send": (send(BINARY, 1), 1),
            "Lane.feed: 64 binary sends": (b"".join(send(BINARY, i) for i in range(64)), 64),
            "Lane.feed: 64 JSON sends": (b"".join(send(JSON, i) for i in range(64)), 64),
            "Lane.feed: 1 batch of 32": (send(BINARY, 1, batch=32), 32),
            "Lane.feed: 1 command": (heartbeat, 0),
        }
        print(f"{'call':34} {'us/call':>9} {'ns/message':>11}")
        for name, (chunk, messages) in chunks.items():
            _, position, commands, _, error = lane.feed(chunk, NOW_MS)
            if error or (messages and (commands or not position)):
                raise SystemExit(f"{name}: the core did not take it: {error or commands}")
            show(name, best_us(lambda chunk=chunk: lane.feed(chunk, NOW_MS), seconds), messages)  # type: ignore[misc]
            store.flush_queues(False)
        for count in (1, 32):
            offset = 0

            def get(count: int = count) -> object:
                nonlocal offset
                got = store.get(TOPIC, 0, offset, count, 256 << 10, EVERYTHING, None)
                offset = got[1] if got[1] + count < got[3] else got[2]
                return got

            if get()[4] != count:  # type: ignore[index]
                raise SystemExit(f"Store.get: {count} messages wanted")
            show(f"Store.get: {count} of 4 interleaved queues", best_us(get, seconds), count)
        for expression in ("WAIT = 'false'", "WAIT = 'false' OR amount > 5 AND region IN ('eu', 'us')"):
            offset, filter = 0, _core.Filter(sql.program(expression))

            def scan(filter: _core.Filter = filter) -> object:
                nonlocal offset
                got = store.get(TOPIC, 0, offset, 32, 256 << 10, EVERYTHING, None, filter)
                offset = got[1] if got[1] + SCANNED < got[3] else got[2]
                return got

            if scan()[1] != SCANNED:  # type: ignore[index]
                raise SystemExit(f"Store.get: {SCANNED} messages to be looked at")
            show(f"Store.get: 800 by {expression[:16]}…", best_us(scan, seconds), SCANNED)
        store.close()
        show_recovery(Path(directory))


def opened(directory: Path) -> _core.Store:
    return _core.Store(
        [str(directory / "commitlog")], str(directory / "consumequeue"),
        log_file_size=LOG_FILE_SIZE, queue_file_size=QUEUE_FILE_SIZE, store_host=HOST, max_message_size=4 << 20,
        region="DefaultRegion", trace_on=True, cluster="DefaultCluster",
    )  # fmt: skip


def show_recovery(directory: Path) -> None:
    """Read the whole log from its beginning, CRCs checked: with the queues that are there, and made again from it."""
    for name, is_lost in (("queues there", False), ("queues lost", True)):
        best = 0.0
        for _ in range(3):
            if is_lost:
                shutil.rmtree(directory / "consumequeue")
            store = opened(directory)
            start = time.perf_counter()
            end, records = store.recover(0, True)
            best = max(best, end / (time.perf_counter() - start))
            store.close()
        print(f"Store.recover, {name + ':':19} {best / 1e9:9.2f} GB/s of log, {records} records of {end / 1e9:.2f} GB")


def show(name: str, us: float, messages: int) -> None:
    each = f"{us * 1000 / messages:11.0f}" if messages else " " * 11
    print(f"{name:34} {us:9.2f} {each}")


if __name__ == "__main__":
    main()
