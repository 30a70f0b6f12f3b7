"""How far each part of the store is known to be on disk (StoreCheckpoint.java; store spec, 1.6).

A file of 4096 bytes, big-endian 64-bit milliseconds since the epoch:
    0  physic  store time up to which the commit log is forced
    8  logics  store time up to which consume queues are forced
   16  index   end time of the last index file that is forced
   24, 32      masterFlushedOffset and confirmPhyOffset of 5.x, 0 here
Behind what Apache writes or reads:
   40  the position below which log and queues are forced
   48  i32, 1 when there were no simple consume queues then, 2 more when there were batch queues, and 4 more when what came
       behind could be put into light queues
   52  i32, CRC-32 of bytes 0 to 47, 0 when the position isn't known
A value must never be ahead of the disk (a pitfall: too new skips damaged files, too old only costs time). Times fail when a
clock goes back, so recovery goes by the position. Apache leaves that in place and changes the times, and the CRC tells.
"""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from rockmq.base import files

SIZE = 4096
MARGIN_MS = 3000
_TIMES = struct.Struct(">qqq16x")
_FIELDS = struct.Struct(">qqq16xq")
_BEHIND = struct.Struct(">II")


@dataclass
class Checkpoint:
    physic: int = 0
    logics: int = 0
    index: int = 0
    position: int | None = None
    """None when no broker of ours has saved this, or another has since."""
    had_queues: bool = True
    had_batch_queues: bool = False
    """Whether there were simple queues, and batch queues, at `position`: a start that finds none then has lost them."""
    had_light_queues: bool = False
    """Whether messages behind `position` may be in light queues, though those are no longer wanted."""

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        """The checkpoint on disk; zeros (recover everything) when there is none or it is too short to be one."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        if len(data) < _TIMES.size:
            return cls()
        fields, behind = data[: _FIELDS.size], data[_FIELDS.size : _FIELDS.size + _BEHIND.size]
        if len(behind) == _BEHIND.size:
            kinds, crc = _BEHIND.unpack(behind)
            if kinds < 8 and crc == zlib.crc32(fields):
                known = cls(*_FIELDS.unpack(fields))
                known.had_queues, known.had_batch_queues = not kinds & 1, bool(kinds & 2)
                known.had_light_queues = bool(kinds & 4)
                return known
        return cls(*_TIMES.unpack_from(data))

    def save(self, path: Path) -> None:
        fields = _FIELDS.pack(self.physic, self.logics, self.index, self.position or 0)
        if self.position is not None:
            kinds = (not self.had_queues) + 2 * self.had_batch_queues + 4 * self.had_light_queues
            fields += _BEHIND.pack(kinds, zlib.crc32(fields))
        files.overwrite(path, fields, SIZE)

    @property
    def safe(self) -> int:
        """Everything stored before this time is on disk, in the log and in the queues."""
        return max(0, min(self.physic, self.logics) - MARGIN_MS)
