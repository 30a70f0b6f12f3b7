"""A second reading of frames, independent of `rockmq`, so that the recorded expectations don't come from what they judge.

    0  u32 size of what follows    4  u8 serializer (0 JSON, 1 ROCKETMQ), u24 header size    8  header, body
ROCKETMQ header: code i16, language i8, version i16, opaque i32, flag i32, remark (i32 length), fields (i32 length), and
each field as key (i16 length), value (i32 length).
"""

import json
import struct
from dataclasses import dataclass

SERIALIZERS = ("json", "rocketmq")
LANGUAGES = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST")
_FIXED = struct.Struct(">hbhiii")


@dataclass(frozen=True)
class Frame:
    data: bytes
    serializer: str
    code: int
    language: str
    version: int
    opaque: int
    flag: int
    remark: str | None
    fields: dict[str, str]
    body: bytes

    @property
    def is_response(self) -> bool:
        return bool(self.flag & 1)


def read(data: bytes) -> Frame:
    """The frame that `data` is."""
    size, head = struct.unpack_from(">II", data)
    assert size == len(data) - 4
    serializer, header_size = SERIALIZERS[head >> 24], head & 0xFFFFFF
    header, body = data[8 : 8 + header_size], data[8 + header_size :]
    if serializer == "json":
        known = json.loads(header)
        remark, fields = known.get("remark"), known.get("extFields") or {}
        return Frame(
            data,
            serializer,
            known["code"],
            known["language"],
            known["version"],
            known["opaque"],
            known["flag"],
            remark,
            fields,
            body,
        )
    code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(header)
    at = _FIXED.size
    remark = header[at : at + remark_size].decode() or None
    at += remark_size + 4
    fields = {}
    while at < len(header):
        key, at = _text(header, at, ">h")
        fields[key], at = _text(header, at, ">i")
    return Frame(data, serializer, code, LANGUAGES[language], version, opaque, flag, remark, fields, body)


def _text(header: bytes, at: int, size_format: str) -> tuple[str, int]:
    (size,) = struct.unpack_from(size_format, header, at)
    at += struct.calcsize(size_format)
    return header[at : at + size].decode(), at + size
