"""The demo from begin to end."""

import asyncio
import csv
import importlib.util
import shutil
import tempfile
from pathlib import Path

from rich.console import Console

from rockmq.base.errors import ConfigError
from rockmq.cli import logs
from rockmq.cli.demo.orders import Plan
from rockmq.cli.demo.reconcile import reconcile
from rockmq.cli.demo.server import Server
from rockmq.cli.demo.traffic import Records, Traffic


def run(orders: int, directory: Path | None, *, keep: bool) -> int:
    """Run it and show it; 1 when anything doesn't reconcile."""
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError("the demo ends in PySpark, which isn't installed: pip install 'rockmq[spark]'")
    from rockmq.cli.demo import archive
    from rockmq.cli.demo.report import Screen

    folder = _folder(directory)
    logs.to_file(folder / "demo.log")
    plan = Plan(orders)
    screen = Screen(Console())
    with Server(folder / "store", folder / "server.log") as server:
        seconds = server.start()
        screen.say(f"rockmq serve is ready after {seconds:.2f} s; everything is in {folder}")
        with screen.bars(orders) as watcher:
            records = asyncio.run(Traffic(plan, server, folder, watcher).run())
        _save(records, folder / "acknowledged.csv")
        with screen.working("archiving with Spark"), archive.session(folder / "spark.log") as spark:
            archived = archive.to_parquet(spark, server.namesrv, folder / "archive")
    outcome = reconcile(plan, records.acknowledged, archived.rows, records.consumed, records.ends)
    screen.rates(records, archived)
    screen.checks(outcome, records)
    if not keep and outcome.holds:
        shutil.rmtree(folder / "store")
    screen.files(folder, archived, kept=(folder / "store").exists())
    return 0 if outcome.holds else 1


def _folder(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="rockmq-demo-"))
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"{directory} isn't empty; the demo wants a folder of its own")
    directory.mkdir(parents=True, exist_ok=True)
    return directory.resolve()


def _save(records: Records, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["order", "broker", "queue", "offset"])
        for order, (queue, offset) in sorted(records.acknowledged.items()):
            writer.writerow([order, queue.broker, queue.queue_id, offset])
