"""How far each part of the store is known to be on disk (StoreCheckpoint.java; store spec, 1.6).

A file of 4096 bytes, big-endian 64-bit milliseconds since the epoch:
    0  physic  store time up to which the commit log is forced
    8  logics  store time up to which consume queues are forced
   16  index   end time of the last index file that is forced
   24, 32      masterFlushedOffset and confirmPhyOffset of 5.x, 0 here
Recovery begins at the newest log file whose first record is older than both physic and logics, with 3 s to spare; so a
value must never be ahead of the disk (a pitfall: too new skips damaged files, too old only costs time).
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path

SIZE = 4096
MARGIN_MS = 3000
_FIELDS = struct.Struct(">qqq")


@dataclass
class Checkpoint:
    physic: int = 0
    logics: int = 0
    index: int = 0

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        """The checkpoint on disk; zeros (recover everything) when there is none or it is too short to be one."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        return cls(*_FIELDS.unpack_from(data)) if len(data) >= _FIELDS.size else cls()

    def save(self, path: Path) -> None:
        """Overwrite in place and force: 24 bytes lie in one sector, so they change together."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(descriptor, SIZE)
            fields = _FIELDS.pack(self.physic, self.logics, self.index)
            written = 0
            # A write may be short. Half of a number would be a time that never was.
            while written < len(fields):
                written += os.pwrite(descriptor, fields[written:], written)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @property
    def safe(self) -> int:
        """Everything stored before this time is on disk, in the log and in the queues."""
        return max(0, min(self.physic, self.logics) - MARGIN_MS)
