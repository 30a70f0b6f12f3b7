"""Where each member of a broadcast stands, kept in its own file (LocalFileOffsetStore.java; clients' spec, 3.9).

    <directory>/<client id>/<group>/offsets.json        {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}

with `~/.rocketmq_offsets` as the directory and `ip@instance name` as the client id, as Java's clients have it, so that one
may go on where the other stopped. The text before the last save stays beside it as `.bak`, and is read when the file isn't
whole. One consumer uses the file at a time: two would overwrite each other's offsets, so a lock beside it keeps a second
one out, also one in another process. Give the clients of one machine an `instance_name` each.
"""

import asyncio
import fcntl
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import field

from rockmq.base import files
from rockmq.base.errors import ClientError, ProtocolError
from rockmq.client.instance import Instance
from rockmq.client.offsets import FromWhere, first_start
from rockmq.protocol import json
from rockmq.protocol.bodies.common import Body, MessageQueue
from rockmq.protocol.header import Long

log = logging.getLogger(__name__)

DEFAULT_DIRECTORY = Path("~/.rocketmq_offsets")


class _Document(Body, kw_only=True):
    offset_table: dict[str, Long] = field(default_factory=dict)


class LocalOffsets:
    """The offsets of one member, from `open` to `close`."""

    def __init__(self, instance: Instance, group: str, from_where: FromWhere, directory: Path | None) -> None:
        self._instance = instance
        self._from_where = from_where
        self.path = (directory or DEFAULT_DIRECTORY).expanduser() / instance.stable_id / group / "offsets.json"
        self._saved = asyncio.Lock()
        self._lock: int | None = None
        self._table: dict[MessageQueue, int] = {}

    def open(self) -> None:
        """Read the file and keep others out. Raises ClientError."""
        self._lock = self._take_lock()
        try:
            self._table = self._load()
        except BaseException:
            self.close()
            raise

    def _take_lock(self) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path.with_name("offsets.json.lock"), os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ClientError(f"the offsets of a broadcast can't be kept in {self.path}: {error}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ClientError(
                f"another consumer keeps its offsets in {self.path}: give each Client of this machine its own instance_name"
            ) from None
        return lock

    def _load(self) -> dict[MessageQueue, int]:
        fault: ProtocolError | None = None
        for path, text in files.candidates(self.path):
            try:
                document = json.decode(text, _Document, str(path))
                return {MessageQueue.parse(key): offset for key, offset in document.offset_table.items()}
            except ProtocolError as error:
                log.warning("%s can't be read, trying what was saved before: %s", path, error)
                fault = error
        if fault is not None:
            raise ClientError(f"the offsets of this broadcast are damaged, delete {self.path} to begin anew: {fault}")
        return {}

    async def start_of(self, queue: MessageQueue) -> int:
        """Where to begin: the kept offset, else what `from_where` says. Raises ResponseError, RemotingError."""
        kept = self._table.get(queue)
        return kept if kept is not None else await first_start(self._instance, queue, self._from_where)

    async def committed(self, queue: MessageQueue) -> int | None:
        return self._table.get(queue)

    async def tell(self, offsets: Mapping[MessageQueue, int]) -> None:
        await self.commit(offsets)

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """As `store`; what fails is logged."""
        try:
            await self.store(offsets)
        except ClientError as error:
            log.warning("%s: messages may come again", error)

    async def store(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Save them if they differ from what is saved. Raises ClientError."""
        async with self._saved:
            if self._lock is None or all(self._table.get(queue) == offset for queue, offset in offsets.items()):
                return
            table = self._table | dict(offsets)
            members = json.object_map({queue.key(): offset for queue, offset in sorted(table.items())})
            saving = asyncio.ensure_future(
                asyncio.to_thread(files.save_parts, self.path, [b'{"offsetTable":', members, b"}"])
            )
            try:
                await asyncio.shield(saving)
            except OSError as error:
                raise ClientError(f"the offsets in {self.path} aren't saved: {error}") from error
            except asyncio.CancelledError:
                await asyncio.wait([saving])  # two must not write at a time
                raise
            else:
                self._table = table

    def forget(self) -> None:
        """Brokers know nothing of these offsets."""

    def close(self) -> None:
        """Let others use the file."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)
