"""docs/configuration.md says what the declarations say."""

import asyncio
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


async def test_the_page_is_up_to_date() -> None:
    words = str(ROOT / "scripts" / "make_configuration.py"), "--check"
    # Whatever this machine says of itself.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NAMESRV_ADDR": "elsewhere:9876", "ROCKETMQ_HOME": "/opt/mq"}
    process = await asyncio.create_subprocess_exec(sys.executable, *words, env={**environment, "HOME": "/home/somebody"})
    assert await process.wait() == 0
