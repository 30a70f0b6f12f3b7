from pathlib import Path

import pytest

from rockmq.store import memory


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(memory, "_MOUNT", tmp_path / "cgroup")
    return tmp_path


def put(root: Path, own: str, **limits: str) -> None:
    (root / "own").write_text(own)
    for name, text in limits.items():
        *groups, file = name.split("__")
        directory = root.joinpath("cgroup", *(group.replace("_", ".") for group in groups))
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"memory.{file}").write_text(text)


@pytest.mark.parametrize(
    ("own", "file"),
    [
        ("0::/\n", "max"),
        ("0::/system.slice/docker-4711.scope\n", "max"),  # the host's path, of which the container sees nothing
        ("0::/../../other\n", "max"),
        ("12:cpu,cpuacct:/x\n7:memory:/docker/4711\n1:name=systemd:/x\n", "memory__limit_in_bytes"),
    ],
)
def test_a_container_has_what_its_limit_says(root: Path, own: str, file: str) -> None:
    put(root, "0::/\n")
    machine = memory.size.__wrapped__()
    for text, expected in (("max\n", machine), (f"{2**63 - 4096}\n", machine), ("4194304\n", 4 << 20)):
        put(root, own, **{file: text})
        assert memory.size.__wrapped__() == expected


def test_a_service_has_the_least_that_it_and_what_is_above_it_may_use(root: Path) -> None:
    put(root, "0::/system.slice/mq.service\n", system_slice__mq_service__max="max\n", system_slice__max="max\n")
    machine = memory.size.__wrapped__()
    put(root, "0::/system.slice/mq.service\n", system_slice__mq_service__max="8388608\n")
    assert memory.size.__wrapped__() == 8 << 20
    put(root, "0::/system.slice/mq.service\n", system_slice__mq_service__high="6291456\n")
    assert memory.size.__wrapped__() == 6 << 20
    put(root, "0::/system.slice/mq.service\n", system_slice__max="4194304\n")
    assert memory.size.__wrapped__() == 4 << 20
    put(root, "0::/user.slice\n")
    assert memory.size.__wrapped__() == machine, "others are not ours"


def test_a_system_without_control_groups(root: Path) -> None:
    machine = memory.size.__wrapped__()
    assert not (root / "own").exists()
    assert machine > 1 << 20
