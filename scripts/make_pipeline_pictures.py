"""Makes the pictures of docs/pipeline/ from a run: python scripts/make_pipeline_pictures.py [DIR for the reports and tables]

An hour and a half of a shop passes in some seconds (`VirtualTime`): orders come, more of them around noon, one customer
orders most, and the consumer, which is slower than that for a while, falls behind and begins to catch up. Of its ledgers
some lines are taken away and some made up, for `reconcile` to find. Another group gives messages up, for `redrive`.
"""

import asyncio
import json
import math
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from rockmq import embedded
from rockmq.base.virtual_time import VirtualTime
from rockmq.client import Client, Message
from rockmq.pipeline import lag, plots, profile, reconcile, trace
from rockmq.pipeline.archive import archive, paths
from rockmq.pipeline.comparing import Sources, compare
from rockmq.pipeline.drain import drain
from rockmq.pipeline.messages import messages
from rockmq.pipeline.redrive import redrive
from rockmq.pipeline.replay import Selection, replay
from rockmq.spark import session

DOCS = Path(__file__).parents[1] / "docs" / "pipeline"
TOPIC, TRACES, GROUP = "orders", "traces", "billing"
WIDE, BEHIND = "orders-wide", "shipping"
"""A topic with more queues, and a group that hasn't consumed anything yet."""
AGAIN, RATE = "orders-again", 200
"""Where the archive is sent to, and how many of its messages a second."""
COUPONS, GIVES_UP = "coupons", "warehouse"
"""A topic that is deleted at the end, and a group that doesn't get on with every fifth message."""
MINUTES = 90
Lines = list[dict[str, Any]]


async def shop(namesrv: str, time: VirtualTime, samples: Path) -> tuple[Lines, Lines]:
    """The ledgers of what was sent and what was consumed; how far the consumer is behind is sampled each minute."""
    dice = random.Random(7)
    customers = [f"customer-{number}" for number in range(200)]
    weights = [1 / (number + 1) for number in range(200)]
    sent: Lines = []
    consumed: Lines = []
    seqs: dict[str, int] = {}
    client = Client(namesrv, trace=TRACES, clock=time)
    async with (
        client as mq,
        mq.producer("shop") as producer,
        mq.consumer(GROUP, [TOPIC], from_where="first") as consumer,
    ):
        for minute in range(MINUTES):
            began = time.now_ms()
            count = round(30 + 25 * math.sin(math.pi * minute / MINUTES) + (60 if 30 <= minute < 40 else 0))
            for customer in dice.choices(customers, weights, k=count):
                body = b"x" * int(dice.lognormvariate(5, 1))
                tag = dice.choice(["paid", "paid", "open"])
                receipt = await producer.send(Message(TOPIC, body, tag=tag), key=customer)
                seqs[customer] = seq = seqs.get(customer, -1) + 1
                sent.append({"id": receipt.msg_id, "time": time.now_ms(), "key": customer, "seq": seq})
            room = 60 if minute < 30 or minute > 48 else 35
            while room and (found := await consumer.fetch(min(room, 16), 0.05)):
                room -= len(found)
                for message in found:
                    await time.advance(dice.lognormvariate(-4, 0.6 if minute < 60 else 1.2))
                    await message.ack()
                    consumed.append({"id": message.msg_id, "time": time.now_ms()})
            await consumer.commit()
            lag.append(samples, await lag.sample(mq, [GROUP], [TOPIC], clock=time))
            await time.advance(max(60 - (time.now_ms() - began) / 1_000, 0))
    return sent, consumed


async def give_up(mq: Client, orders: int) -> None:
    coupons = 80
    await mq.create_topic(COUPONS, 1)
    async with mq.producer("shop") as producer:
        for number in range(coupons):
            await producer.send(Message(COUPONS, b"%d%% off" % (number % 50)))
    async with mq.consumer(GIVES_UP, [TOPIC, COUPONS], from_where="first") as consumer, asyncio.timeout(120):
        for number in range(orders + coupons):
            message = await anext(consumer)
            await (message.ack() if number % 5 else message.dead_letter())
    await mq.admin.topics.delete(COUPONS)


def write(path: Path, lines: Lines) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


async def main(directory: Path) -> None:
    time = VirtualTime()
    samples = directory / "lag"
    async with embedded.serve(directory / "store", flush="ASYNC_FLUSH", clock=time) as server:
        async with Client(server.namesrv, clock=time) as mq:
            await mq.create_topic(TOPIC, 4)
            await mq.create_topic(TRACES, 2)
            await mq.create_topic(WIDE, 12)
            await mq.create_topic(AGAIN, 4)
            for queue in await mq.queues(TOPIC):
                await mq.commit(BEHIND, queue, 0)
        sent, consumed = await shop(server.namesrv, time, samples)
        noon = sent[len(sent) // 2]["time"]
        made_up = [{"id": f"made-up-{number}", "time": noon + number * 20_000} for number in range(37)]
        write(directory / "sent.jsonl", [*sent[:1_000], *sent[1_007:], *made_up])
        write(directory / "consumed.jsonl", [*consumed[:700], *consumed[713:], *consumed[2_000:2_021]])
        async with Client(server.namesrv, clock=time) as mq:
            await give_up(mq, len(sent))
        await asyncio.to_thread(jobs, server.namesrv, directory, time)
    rows = lag.read(samples)
    lag.report(rows).save(samples / "lag.html")
    (DOCS / "lag.svg").write_text(lag.charts(rows)[0])


def jobs(namesrv: str, directory: Path, time: VirtualTime) -> None:
    spark = session("pictures", {"spark.log.level": "ERROR", "spark.sql.session.timeZone": "UTC"})
    ledgers = {"sent": f"ledger:{directory}/sent.jsonl", "consumed": f"ledger:{directory}/consumed.jsonl"}
    sources = Sources(topic=TOPIC, name_server=namesrv, **ledgers)
    found = compare(spark, sources, directory / "reconcile", window_seconds=300, late_seconds=300, clock=time)
    sys.stdout.write(f"{found}\n")
    windows = spark.read.parquet(f"{directory}/reconcile/windows").selectExpr(
        "* except (window)", "unix_millis(window) window"
    )
    rows = [row.asDict() for row in windows.orderBy("window").collect()]
    (DOCS / "reconcile.svg").write_text(reconcile.charts(True, rows)[1])

    bodies = messages(spark, TRACES, ["body"], name_server=namesrv)
    sys.stdout.write(f"{trace.trace(spark, bodies, directory / 'trace', slow_ms=100)}\n")
    latency = [row.asDict() for row in spark.read.parquet(f"{directory}/trace/latency").drop("minute").collect()]
    (DOCS / "trace.svg").write_text(trace.charts(latency)[2])

    stored = messages(spark, TOPIC, profile.COLUMNS, name_server=namesrv)
    seen = profile.profile(spark, stored, directory / "profile", handler_ms=200, name=TOPIC)
    sys.stdout.write("\n".join(seen.advice) + "\n")
    keys = spark.read.parquet(f"{directory}/profile/keys").orderBy("messages", ascending=False).limit(12).collect()
    shares = {row["key"]: 100 * row["share"] for row in keys}
    (DOCS / "profile.svg").write_text(profile.keys_chart(shares))
    archived(spark, namesrv, directory)
    drained(spark, namesrv, directory)
    redriven(spark, namesrv, directory)
    spark.stop()


def archived(spark: SparkSession, namesrv: str, directory: Path) -> None:
    """Keep all, and send some of it again."""
    done = archive(spark, namesrv, TOPIC, directory / "archive", records_per_file=500)
    sys.stdout.write(f"{done.rows} messages in {len(done.files)} files\n")
    kept = pq.read_table(paths(directory / "archive", TOPIC), columns=["tags", "storeTimestamp"], partitioning=None)
    found = Counter((row["storeTimestamp"].timestamp() // 300 * 300, row["tags"]) for row in kept.to_pylist())
    times = sorted({time for time, _ in found})
    names = [plots.clock(time * 1_000, "%H:%M") for time in times]
    tags = {tag: [found[time, tag] for time in times] for tag in ("paid", "open")}
    title = "What an archive holds, by tag and the time of storing, in five minutes each"
    (DOCS / "archive.svg").write_text(plots.columns(title, names, tags))

    replay(spark, namesrv, directory / "archive", TOPIC, AGAIN, directory / "replay", Selection(tags="open"), rate=RATE)
    stored = messages(spark, AGAIN, ["storeTimestamp"], name_server=namesrv).toArrow().column(0).to_pylist()
    seconds = Counter(int(time.timestamp()) for time in stored)
    rates = [seconds[second] for second in range(min(seconds), max(seconds) + 1)]
    names = [str(second) for second in range(len(rates))]
    title = f"Messages stored in each second of a replay with --rate {RATE}"
    (DOCS / "replay.svg").write_text(plots.columns(title, names, {"messages": rates}))


def drained(spark: SparkSession, namesrv: str, directory: Path) -> None:
    done = drain(spark, namesrv, TOPIC, WIDE, BEHIND, directory / "drain")
    sys.stdout.write(f"{done.done.sent} messages drained\n")
    bars = {}
    for topic in (TOPIC, WIDE):
        counted = messages(spark, topic, ["queueId"], name_server=namesrv).groupBy("queueId").count()
        bars |= {f"{topic}, queue {row['queueId']}": row["count"] for row in counted.orderBy("queueId").collect()}
    (DOCS / "drain.svg").write_text(plots.bars("Messages in each queue of the old topic and of the new one", bars))


def redriven(spark: SparkSession, namesrv: str, directory: Path) -> None:
    done = redrive(spark, namesrv, GIVES_UP, directory / "redrive", options={"maxMessageSize": "1024"})
    sys.stdout.write(f"{done}\n")
    result = spark.read.parquet(f"{directory}/redrive/result").groupBy("realTopic", "outcome").count()
    counts = {f"{row['realTopic']}: {row['outcome']}": row["count"] for row in result.collect()}
    title = f"What became of the dead letters of group {GIVES_UP}, by topic"
    (DOCS / "redrive.svg").write_text(plots.bars(title, dict(sorted(counts.items(), key=lambda each: -each[1]))))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as name:
            asyncio.run(main(Path(name)))
