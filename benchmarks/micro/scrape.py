"""What scraping costs sends: `python -m benchmarks.micro.scrape [rounds]`.

A `rockmq serve` gets messages in `TOPICS` topics and a client that is a member of `GROUPS` groups, which makes more than
10,000 series. Then the load generator sends in a closed loop, `SECONDS` with a scrape at the beginning of every second, and
as long without, in turn; the time of a send is what the generator has measured.
"""

import asyncio
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from benchmarks.support.loadgen import Generator, Load
from rockmq.protocol import codec, json
from rockmq.protocol.bodies.client import ConsumerData, HeartbeatData
from rockmq.protocol.bodies.common import SubscriptionData
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.client import HeartBeat
from rockmq.remoting.client import RemotingClient
from tests.support.process import free_port
from tests.support.server import serve

TOPICS = 700
GROUPS = 700
SECONDS = 15
LOAD = {"topic": "SCRAPE", "queues": 4, "conns": 8, "window": 1, "size": 128}


async def join(broker: str) -> RemotingClient:
    """Become a member of the groups; each subscribes to one of the topics."""
    remote = RemotingClient()
    groups = [
        ConsumerData(
            group_name=f"group-{number}",
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscription_data_set=[SubscriptionData(topic=f"MANY_{number % TOPICS:06}", sub_string="*", sub_version=1)],
        )
        for number in range(GROUPS)
    ]
    for start in range(0, GROUPS, 100):
        body = HeartbeatData(client_id="scraped", consumer_data_set=groups[start : start + 100])
        await remote.ask(broker, codec.request(RequestCode.HEART_BEAT, HeartBeat(), json.encode(body)), 30)
    return remote


def scrapes(url: str, stop: threading.Event, seconds: list[float], series: list[int]) -> None:
    while not stop.is_set():
        began = time.monotonic()
        with urllib.request.urlopen(url) as answer:
            text = answer.read()
        seconds.append(time.monotonic() - began)
        series.append(sum(not line.startswith(b"#") for line in text.splitlines()))
        stop.wait(max(0.0, 1 - seconds[-1]))


async def main(rounds: int) -> None:
    generator = Generator.build()
    with tempfile.TemporaryDirectory() as directory:
        port = free_port()
        settings = ("--set", f"metricsPromExporterPort={port}", "--set", "flushDiskType=ASYNC_FLUSH")
        with serve(Path(directory), *settings) as server:
            many = {**LOAD, "topic": "MANY", "topics": TOPICS}
            generator.topic(server.broker, many)
            generator.topic(server.broker, LOAD)
            generator.load("preload", {**many, "messages": 10 * TOPICS}, address=server.broker)
            remote = await join(server.broker)
            figures: dict[bool, list[Load]] = {True: [], False: []}
            took: list[float] = []
            series: list[int] = []
            for number in range(2 * rounds):
                scraped, stop = bool(number % 2), threading.Event()
                url = f"http://127.0.0.1:{port}/metrics"
                thread = threading.Thread(target=scrapes, args=(url, stop, took, series))
                if scraped:
                    thread.start()
                run = asyncio.to_thread(
                    generator.load, "send", LOAD, address=server.broker, seconds=SECONDS, warmup=2, pids=[server.pid]
                )
                figures[scraped].append(await run)
                stop.set()
                if scraped:
                    thread.join()
            await remote.close()
    print(f"{max(series)} series; a scrape took {statistics.median(took) * 1000:.0f} ms, {max(took) * 1000:.0f} at most")
    for scraped, loads in figures.items():
        print("scraped every second" if scraped else "not scraped")
        for each in loads:
            print(
                f"  {each.messages_per_second:8.0f} sends/s   p50 {each.p50_us / 1000:6.3f}   p99 {each.p99_us / 1000:6.3f}"
                f"   p99.9 {each.p999_us / 1000:6.3f}   max {each.max_us / 1000:7.3f} ms"
            )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
