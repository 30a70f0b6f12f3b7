"""Orders from end to end with Spark: in, summed up by product and quarter of an hour back to a topic, archived, replayed to
another topic, and compared with what the shop has noted of its sends.

Run it as `python examples/orders_pipeline.py`, or cell by cell in an editor that knows `# %%`. It makes topics of its own,
and the folder ./orders-pipeline with the files, a page with pictures (sales.html) and the report of the comparison.
"""

# %% Where everything is
import asyncio
import json
import os
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import functions as F

from rockmq.client import Client, Message
from rockmq.pipeline import plots
from rockmq.pipeline.archive import archive
from rockmq.pipeline.reconcile import reconcile
from rockmq.pipeline.replay import replay
from rockmq.pipeline.report import Report
from rockmq.spark import commit_offsets, session

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
FOLDER = Path("orders-pipeline").resolve()
STAMP = time.strftime("%Y%m%d-%H%M%S")
ORDERS, SALES, AGAIN = f"orders-{STAMP}", f"sales-{STAMP}", f"orders-again-{STAMP}"
COUNT = 2_000
PRODUCTS = {"tea": 4, "coffee": 7, "cups": 12}


# %% A day in the shop: orders come in, those of a customer stay in order
async def shop() -> str:
    """What it notes, a line of JSON for each order: the id of its message, and when it was acknowledged."""
    choose = random.Random(7)
    opening = datetime(2026, 3, 2, 9, tzinfo=UTC)
    async with Client(NAMESRV) as mq, mq.producer("shop", linger=0) as producer:
        for topic in (ORDERS, SALES, AGAIN):
            await mq.create_topic(topic, queues=4)
        orders: list[tuple[Message, str]] = []
        for number in range(COUNT):
            product = choose.choice(list(PRODUCTS))
            at = opening + timedelta(seconds=number * 15)
            order = {"id": number, "product": product, "pieces": choose.randint(1, 5), "at": at.isoformat()}
            customer = f"customer-{choose.randrange(50)}"
            message = Message(ORDERS, json.dumps(order).encode(), tag=product, keys=[f"order-{number}"])
            orders.append((message, customer))
        receipts = await asyncio.gather(*(producer.send(message, key=customer) for message, customer in orders))
    now = datetime.now(UTC).isoformat()
    return "".join(json.dumps({"id": receipt.msg_id, "time": now}) + "\n" for receipt in receipts)


SENDS = FOLDER / f"sends-{STAMP}.jsonl"
FOLDER.mkdir(exist_ok=True)
SENDS.write_text(asyncio.run(shop()), encoding="utf-8")
print(f"{COUNT} orders were sent")

# %% Spark reads them as a stream, with columns made of the JSON
spark = session("orders", {"spark.sql.session.timeZone": "UTC", "spark.log.level": "ERROR"})
orders = (
    spark.readStream.format("rockmq")
    .options(nameServer=NAMESRV, topic=ORDERS, startingOffsets="earliest", columns="queueId")
    .option("jsonSchema", "id bigint, product string, pieces int, at timestamp")
    .load()
    .select("json.*")
)

# %% Sums by product and quarter of an hour go back to a topic, each when its quarter is over (the last one isn't)
listed = ", ".join(f"('{product}', {price})" for product, price in PRODUCTS.items())
prices = spark.sql(f"select * from values {listed} as prices(product, price)")
sums = (
    orders.withWatermark("at", "1 minute")
    .join(F.broadcast(prices), "product")
    .groupBy(F.window("at", "15 minutes"), "product")
    .agg(F.sum("pieces").alias("pieces"), F.sum(F.col("pieces") * F.col("price")).alias("euros"))
    .select(
        F.to_json(F.struct(F.col("window.start").alias("at"), "product", "pieces", "euros")).alias("body"),
        F.col("product").alias("shardingKey"),
        F.col("product").alias("tags"),
    )
)
with commit_offsets(spark, "sales-by-product", nameServer=NAMESRV):  # so that its lag shows like that of any group
    query = (
        sums.writeStream.format("rockmq")
        .options(nameServer=NAMESRV, topic=SALES, checkpointLocation=str(FOLDER / "checkpoint" / STAMP))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

# %% What came of it, as a table and a picture
sales = (
    spark.read.format("rockmq")
    .options(nameServer=NAMESRV, topic=SALES, columns="queueId")
    .option("jsonSchema", "at timestamp, product string, pieces bigint, euros bigint")
    .load()
    .select("json.*")
)
sales.groupBy("product").agg(F.sum("pieces").alias("pieces"), F.sum("euros").alias("euros")).orderBy("product").show()
by_time = sales.groupBy("at").pivot("product", list(PRODUCTS)).agg(F.first("euros")).na.fill(0).orderBy("at").collect()
page = Report("Sales", "Euros by product and quarter of an hour")
quarters = [f"{row['at']:%H:%M}" for row in by_time]
page.chart(
    plots.columns("Euros per quarter of an hour", quarters, {name: [row[name] for row in by_time] for name in PRODUCTS})
)
print(f"pictures: {page.save(FOLDER / 'sales.html').name}")

# %% The archive: all orders as Parquet files, before the broker's retention takes them
kept = archive(spark, NAMESRV, ORDERS, FOLDER / "archive")
print(f"{kept.rows} orders are archived in {len(kept.files)} files")

# %% The replay: what was archived goes to another topic, each once and those of a customer in order
sent = replay(spark, NAMESRV, FOLDER / "archive", ORDERS, AGAIN, FOLDER / "replay" / STAMP)
print(f"{sent.done.sent} orders are replayed")

# %% The comparison: is all stored that the shop was told is stored?
stored = (
    spark.read.format("rockmq")
    .options(nameServer=NAMESRV, topic=ORDERS, columns="msgId,topic,broker,queueId,queueOffset,storeTimestamp")
    .load()
    .withColumnRenamed("msgId", "id")
)
found = reconcile(
    spark, spark.read.json(f"file:{SENDS}", "id string, time timestamp"), stored, FOLDER / "compared" / STAMP, name=ORDERS
)
print(f"{found.sent} sent, {found.stored} stored: {'nothing is wrong' if found.clean else found.faults}")
print(f"report: {found.report.name}")

# %%
spark.stop()
