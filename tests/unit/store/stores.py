"""Message stores as tests make them."""

from collections.abc import Callable
from pathlib import Path

from rockmq.base import address
from rockmq.base.clock import Clock, SystemClock
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import load
from rockmq.store.message_store import MessageStore

HOST = address.to_bytes("127.0.0.1", 10911)


def made(
    root: Path,
    settings: dict[str, str],
    clock: Clock | None = None,
    *,
    store_host: bytes = HOST,
    flushed: Callable[[int], None] = lambda position: None,
    failed: Callable[[BaseException], None] = lambda error: None,
) -> tuple[MessageStore, BrokerOptions]:
    """A store in `root` that isn't started yet, and the options it was made from."""
    options = load(BrokerOptions, {"storePathRootDir": str(root), **settings})
    store = MessageStore(
        options.store,
        retention=options.retention,
        store_host=store_host,
        region="r",
        trace_on=True,
        cluster="c",
        clock=clock or SystemClock(),
        flushed=flushed,
        failed=failed,
    )
    return store, options
