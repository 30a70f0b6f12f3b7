"""RockMQ beside Apache RocketMQ on this machine, in one run: `python benchmarks/macro.py [--quick] [--rows a,b]`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.support.run import main

if __name__ == "__main__":
    sys.exit(main())
