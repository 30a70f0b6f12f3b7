"""The recorded store of a broker 5.5.0: what is in it, and a copy with its files at their full size."""

import json
from pathlib import Path
from typing import Any

STORE = Path(__file__).parent / "store"
MANIFEST: dict[str, Any] = json.loads((STORE / "manifest.json").read_text(encoding="utf-8"))
LOG_FILE_SIZE: int = MANIFEST["logFileSize"]
QUEUE_FILE_SIZE: int = MANIFEST["queueFileSize"]
RECORDS: list[dict[str, Any]] = MANIFEST["records"]
QUEUES: list[dict[str, Any]] = MANIFEST["queues"]


def unpack(directory: Path) -> Path:
    """Write the store to `directory` as the broker left it."""
    for file in MANIFEST["files"]:
        target = directory / file["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((STORE / file["path"]).read_bytes().ljust(file["size"], b"\0"))
    return directory
