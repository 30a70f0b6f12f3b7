"""The message number i of a run of the Java programs; the twin of `java/Content.java`."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Content:
    """What a producer sent and a consumer must show."""

    body: bytes
    tag: str
    key: str
    properties: dict[str, str]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


def content(prefix: str, index: int, size: int = 0) -> Content:
    """Message `index` with a body of at least `size` characters."""
    body = f"{prefix}-{index} ü"
    counter = 0
    while len(body) < size:
        body += f" {counter}"
        counter += 1
    return Content(
        body.encode(),
        f"tag{index % 3}",
        f"{prefix}-key-{index}",
        {"index": str(index), "greeting": f"grüß dich 你好 {index}"},
    )
