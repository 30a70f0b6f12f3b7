"""Body compression (CompressionType.java): zlib streams, LZ4 frames, zstd frames. The broker never compresses.

The kind stands in bits 8-10 of the message's sysFlag, with bit 0 saying that the body is compressed at all; 0 there means
zlib, as written by clients that know nothing else.
"""

import zlib
from enum import IntEnum

from rockmq.base.errors import ProtocolError
from rockmq.protocol.flags import MessageFlag

BODY_SIZE_MAX = 64 * 1024 * 1024
"""Bytes a body may have after decompression: a few kilobytes must not become all of the memory."""

ZSTD_PIECE = 1024
"""Bytes of a zstd body taken at a time: at most 256 blocks, 32 MiB unfolded."""


class Compression(IntEnum):
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def flags(self) -> int:
        """The sysFlag bits of a body compressed this way."""
        return MessageFlag.COMPRESSED | self << 8


def compress(kind: Compression, body: bytes, level: int = 5) -> bytes:
    if kind is Compression.ZLIB:
        return zlib.compress(body, level)
    if kind is Compression.LZ4:
        import lz4.frame

        return bytes(lz4.frame.compress(body, compression_level=level))
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(body)


def decompress(sys_flag: int, body: bytes) -> bytes:
    """The body as its producer wrote it. Raises ProtocolError for a broken or oversized one and for an unknown kind."""
    if not sys_flag & MessageFlag.COMPRESSED:
        return body
    kind = (sys_flag & MessageFlag.COMPRESSION_TYPE) >> 8
    try:
        plain = _decompress(Compression(kind or Compression.ZLIB), body)
    except ValueError:
        raise ProtocolError(f"unknown compression type {kind} in sysFlag {sys_flag:#x}") from None
    except Exception as error:  # each library has its own; all mean the same to a reader
        raise ProtocolError(f"body can't be decompressed: {error}") from error
    if len(plain) > BODY_SIZE_MAX:
        raise ProtocolError(f"body is over {BODY_SIZE_MAX} bytes after decompression")
    return plain


def _decompress(kind: Compression, body: bytes) -> bytes:
    bound = BODY_SIZE_MAX + 1
    if kind is Compression.ZLIB:
        stream = zlib.decompressobj()
        plain = stream.decompress(body, bound)
        if not stream.eof and len(plain) < bound:
            raise zlib.error("stream ends early")
        return plain
    if kind is Compression.LZ4:
        import lz4.frame

        decoder = lz4.frame.LZ4FrameDecompressor()
        plain = bytes(decoder.decompress(body, max_length=bound))
        if not decoder.eof and len(plain) < bound:
            raise EOFError("frame ends early")
        return plain
    import zstandard

    decoder = zstandard.ZstdDecompressor().decompressobj()
    parts, size = [], 0
    for at in range(0, len(body), ZSTD_PIECE):
        # The library offers no bound on what comes out, so what goes in is small.
        part = decoder.decompress(body[at : at + ZSTD_PIECE])
        parts.append(part)
        size += len(part)
        if size >= bound or decoder.eof:
            break
    if not decoder.eof and size < bound:
        raise EOFError("frame ends early")
    return b"".join(parts)
