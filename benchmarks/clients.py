"""RockMQ's client beside aiokafka, nats-py and Apache's clients: `python benchmarks/clients.py [--quick] [--rows a]`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.support.clients import main

if __name__ == "__main__":
    sys.exit(main())
