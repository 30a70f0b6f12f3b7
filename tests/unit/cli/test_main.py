import os
import subprocess
import sys

import pytest

from rockmq.cli.main import main
from tests.unit.cli.conftest import Command

HELP_SECONDS_MAX = 0.2
COMMANDS = ("serve", "namesrv", "broker", "send", "consume", "demo", "store", "acl")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['rockmq', '--help']\n"
        "from rockmq.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"asyncio", "msgspec", "rich", "pyspark", "rockmq._core", "rockmq.base.errors"} & set(ended.stderr.split())


def test_help_answers_at_once() -> None:
    """By processor time: what else the machine does is not the command's fault."""
    seconds = []
    for _ in range(5):
        before = os.times()
        subprocess.run([sys.executable, "-m", "rockmq.cli", "--help"], stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        seconds.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(seconds) < HELP_SECONDS_MAX


@pytest.mark.parametrize("command", COMMANDS)
async def test_each_command_has_help(rockmq: Command, command: str) -> None:
    ended = await rockmq(command, "--help")
    assert ended.code == 0
    assert f"Usage: rockmq {command}" in ended.out


async def test_version(rockmq: Command) -> None:
    ended = await rockmq("--version")
    assert ended.code == 0
    assert ended.out.startswith("rockmq 0.")


async def test_a_wrong_option_is_a_usage_error(rockmq: Command) -> None:
    ended = await rockmq("serve", "--brokerport", "1")
    assert ended.code == 2
    assert "--broker-port" in ended.err


def test_main_is_the_installed_command() -> None:
    from importlib.metadata import entry_points

    (command,) = entry_points(group="console_scripts", name="rockmq")
    assert command.load() is main
