from pathlib import Path

import pytest

from rockmq.store import memory


def test_a_container_has_what_its_limit_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [tmp_path / name for name in ("memory.max", "limit_in_bytes")]
    monkeypatch.setattr(memory, "_LIMITS", limits)
    machine = memory.size.__wrapped__()
    for text, expected in (("max\n", machine), (f"{2**63 - 4096}\n", machine), ("4194304\n", 4 << 20)):
        limits[0].write_text(text)
        assert memory.size.__wrapped__() == expected
