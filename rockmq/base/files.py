"""Small documents and records on disk that are never seen half-written.

Apache keeps the last good text beside the new one (`ConfigManager`, `MixAll.string2File`): `X` and `X.bak`. Saving here
writes `X.tmp`, forces it, keeps the old `X` as `X.bak`, and renames; so at every moment `X` or `X.bak` is whole. Its mode
stays, and its owner if the process may set it.
"""

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path


def save(path: Path, text: str) -> None:
    """Replace the document atomically and durably. Raises OSError; the old document stays then."""
    save_parts(path, [text.encode()])


def save_parts(path: Path, parts: Iterable[bytes]) -> None:
    """As `save`, for a text that is made while it is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".tmp")
    old = path.stat() if path.exists() else None
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode)
    with open(fresh, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        if old is not None:
            for user, group in ((-1, old.st_gid), (old.st_uid, -1)):
                with contextlib.suppress(OSError):
                    os.fchown(file.fileno(), user, group)
            os.fchmod(file.fileno(), mode)
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
    backup = path.with_name(path.name + ".bak")
    if old is not None:
        # A link and a rename leave no moment without X, unlike renaming X itself away.
        second = path.with_name(path.name + ".bak.tmp")
        with contextlib.suppress(FileNotFoundError):
            second.unlink()
        os.link(path, second)
        os.replace(second, backup)
    os.replace(fresh, path)
    sync_directory(path.parent)


def overwrite(path: Path, fields: bytes, size: int) -> None:
    """Put `fields`, 512 bytes at most, at the beginning of a file of `size` bytes, and force them.

    They lie in one sector, so they change together. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.ftruncate(descriptor, size)
        written = 0
        # A write may be short. Half of a number would be one that never was.
        while written < len(fields):
            written += os.pwrite(descriptor, fields[written:], written)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def candidates(path: Path) -> list[tuple[Path, bytes]]:
    """The texts to try in order: the document, then its backup; missing and empty ones left out."""
    found = []
    for each in (path, path.with_name(path.name + ".bak")):
        try:
            text = each.read_bytes()
        except FileNotFoundError:
            continue
        if text.strip():
            found.append((each, text))
    return found


def sync_directory(directory: Path) -> None:
    """Make names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
