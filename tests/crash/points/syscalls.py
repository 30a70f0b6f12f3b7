"""Stops a process at each system call that changes files (seccomp's user notification; Linux 5.5, x86-64 and ARM).

The kernel hands every such call to the one who listens, however it was made: through libc, or past it. While the
listener looks, the calling thread stands still. A sync isn't executed but answered, so that what counts as durable is what
the listener saw.
"""

import ctypes
import fcntl
import os
import platform
import struct
from typing import NamedTuple

_X86_64 = {
    "open": 2, "openat": 257, "creat": 85, "write": 1, "pwrite64": 18, "writev": 20, "pwritev": 296, "pwritev2": 328,
    "truncate": 76, "ftruncate": 77, "fallocate": 285, "copy_file_range": 326, "sendfile": 40,
    "rename": 82, "renameat": 264, "renameat2": 316, "link": 86, "linkat": 265, "unlink": 87, "unlinkat": 263,
    "mkdir": 83, "mkdirat": 258, "rmdir": 84, "symlink": 88, "symlinkat": 266,
    "msync": 26, "fsync": 74, "fdatasync": 75, "sync_file_range": 277, "syncfs": 306, "sync": 162,
}  # fmt: skip
_AARCH64 = {
    "openat": 56, "write": 64, "pwrite64": 68, "writev": 66, "pwritev": 70, "pwritev2": 287,
    "truncate": 45, "ftruncate": 46, "fallocate": 47, "copy_file_range": 285, "sendfile": 71,
    "renameat": 38, "renameat2": 276, "linkat": 37, "unlinkat": 35, "mkdirat": 34, "symlinkat": 36,
    "msync": 227, "fsync": 82, "fdatasync": 83, "sync_file_range": 84, "syncfs": 267, "sync": 81,
}  # fmt: skip
_MACHINES = {"x86_64": (_X86_64, 317), "aarch64": (_AARCH64, 277)}
NUMBERS, _SECCOMP = _MACHINES.get(platform.machine(), ({}, 0))
NAMES = {number: name for name, number in NUMBERS.items()}
SYNCS = {"msync", "fsync", "fdatasync"}
UNKNOWN_SYNCS = {"sync_file_range", "syncfs", "sync"}
"""Nothing uses them; if that changes, `disk` has to learn what they promise."""

_LOAD, _EQUAL, _BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_NO_NEW_PRIVS, _SET_FILTER, _NEW_LISTENER = 38, 1, 8
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_FLAGS_AT = 16 + 2 * 8  # third argument of openat


class _Step(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("steps", ctypes.POINTER(_Step)))


class Call(NamedTuple):
    id: int
    thread: int
    name: str
    arguments: tuple[int, ...]


def listen_to_myself() -> int:
    """From now on all threads of this process stop at the calls in `NUMBERS`; the descriptor to give to the listener.

    Raises OSError where the kernel doesn't do it.
    """
    if not NUMBERS:
        raise OSError(f"system calls of {platform.machine()} aren't known here")
    numbers = [number for name, number in NUMBERS.items() if name != "openat"]
    steps = [_Step(_LOAD, 0, 0, 0), _Step(_EQUAL, 0, 2, NUMBERS["openat"])]
    steps += [_Step(_LOAD, 0, 0, _FLAGS_AT), _Step(_BITS, len(numbers) + 1, len(numbers), os.O_CREAT)]
    steps += [_Step(_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    steps += [_Step(_RETURN, 0, 0, _ALLOW), _Step(_RETURN, 0, 0, _NOTIFY)]
    program = _Program(len(steps), (_Step * len(steps))(*steps))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    descriptor: int = libc.syscall(_SECCOMP, _SET_FILTER, _NEW_LISTENER, ctypes.byref(program))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "seccomp with a listener")
    return descriptor


def receive(listener: int) -> Call:
    """The next call somebody stands at. Raises OSError (ENOENT) when it was given up in the meantime."""
    notification = bytearray(80)
    fcntl.ioctl(listener, _RECEIVE, notification)
    number, thread, _, call, _, _, *arguments = struct.unpack("=QIIiIQ6Q", notification)
    return Call(number, thread, NAMES[call], tuple(arguments))


def let_go(listener: int, call: Call) -> bool:
    """Have the kernel execute the call; False when it is given up: it comes again, as after a SIGSTOP."""
    return _respond(listener, call, _CONTINUE)


def answer(listener: int, call: Call) -> bool:
    """Have the call succeed without the kernel; False as above."""
    return _respond(listener, call, 0)


def _respond(listener: int, call: Call, flags: int) -> bool:
    try:
        fcntl.ioctl(listener, _SEND, struct.pack("=QqiI", call.id, 0, 0, flags))
    except FileNotFoundError:
        return False
    return True
