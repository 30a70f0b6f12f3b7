"""The process that is stopped at its system calls: runs one load after the other, as it is told over a socket.

worker -> listener   the descriptor to listen at; then (what, ...) before and after each step, and waits for a byte
listener -> worker   pickled arguments of a load; a byte for each of those
"""

import os
import pickle
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.crash.points import syscalls
from tests.crash.points.documents import DocumentsLoad
from tests.crash.points.load import CoreLoad, SpreadLoad
from tests.crash.points.store_load import StoreLoad

LOADS: dict[str, type[CoreLoad | StoreLoad | DocumentsLoad]] = {
    "core": CoreLoad,
    "spread": SpreadLoad,
    "store": StoreLoad,
    "documents": DocumentsLoad,
}


def receive(channel: socket.socket) -> Any:
    head = channel.recv(4, socket.MSG_WAITALL)
    return pickle.loads(channel.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)) if head else None


def send(channel: socket.socket, *values: object) -> None:
    data = pickle.dumps(values)
    channel.sendall(len(data).to_bytes(4, "big") + data)


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))

    def tell(*values: object) -> None:
        send(channel, *values)
        if not channel.recv(1):
            os._exit(1)  # the listener is gone, and no call would be answered

    socket.send_fds(channel, [b"x"], [syscalls.listen_to_myself()])
    while (wanted := receive(channel)) is not None:
        kind, root, *arguments = wanted
        try:
            LOADS[kind](Path(root), *arguments, tell).run()  # type: ignore[call-arg]
            tell("done")
        except BaseException:  # the listener reports it  # noqa: BLE001
            tell("broken", traceback.format_exc())


if __name__ == "__main__":
    main()
