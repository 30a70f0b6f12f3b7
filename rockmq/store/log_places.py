"""Which directory has which of the log's newest files, in `config/logDirectories.json` (beyond Apache).

A disk that isn't mounted leaves an empty directory. If it has the log's newest files nobody misses them: the log looks
shorter, and what comes next would take the same positions. So with several directories the newest file with messages of each
is kept here, forced, within a second of its first message; a start that doesn't find it opens nothing.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from rockmq.base import files
from rockmq.base.errors import ConfigError, ProtocolError
from rockmq.protocol import json

log = logging.getLogger(__name__)

_NAME_DIGITS = 20

Position = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class LogPlaces:
    def __init__(self, path: Path, directories: Sequence[str], file_size: int) -> None:
        """Raises ConfigError when the document can't be read."""
        self._path = path
        self._directories = [Path(each) for each in directories]
        self._file_size = file_size
        self._known: dict[str, int] = {}
        self._noted = -1
        self._failing = False
        for each, text in files.candidates(path):
            try:
                self._known = json.decode(text, dict[str, Position], str(each))
                return
            except ProtocolError as error:
                log.warning("%s", error)
        if path.exists():
            raise ConfigError(
                f"neither {path} nor its backup can be read; delete both if all of the log's disks are mounted"
            )

    def check(self) -> None:
        """Raise ConfigError if the newest file of a directory isn't there, unless retention has taken it, which begins with
        the oldest."""
        present = {each: _positions(each) for each in {*map(Path, self._known), *self._directories}}
        lowest = min((position for found in present.values() for position in found), default=0)
        for name, position in self._known.items():
            if position not in present[Path(name)] and position >= lowest:
                raise ConfigError(
                    f"{name} had the log's file {position:0{_NAME_DIGITS}}, and it isn't there: is its disk mounted, and is "
                    f"it in storePathCommitLog or readOnlyCommitLogStorePaths? If the file is lost, and with it the end of "
                    f"the log, delete {self._path}"
                )

    def note(self, end: int) -> None:
        """The log ends at `end` now: keep what is new. What can't be saved is tried again with the next call."""
        number = max(end - 1, 0) // self._file_size
        if number == self._noted or (len(self._directories) < 2 and not self._known):
            return
        newest = {str(each): max((at for at in _positions(each) if at < end), default=-1) for each in self._directories}
        known = {name: position for name, position in newest.items() if position >= 0}
        try:
            if known != self._known:
                files.save(self._path, json.encode(known).decode())
        except OSError as error:
            if not self._failing:
                log.error("%s can't be saved; it is tried again until it can: %s", self._path, error)
            self._failing = True
            return
        self._known, self._noted, self._failing = known, number, False


def _positions(directory: Path) -> set[int]:
    """First positions of the log files in a directory."""
    if not directory.is_dir():
        return set()
    names = (each.name for each in directory.iterdir())
    return {int(name) for name in names if len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()}
