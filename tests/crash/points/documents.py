"""The broker's tables on disk: topics, by whole documents and by a journal, and the offsets that groups have committed.

The table of topics begins a little below the size at which its changes go to the journal, and goes to and fro over it.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rockmq.base.errors import ConfigError
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.topics import WHOLE_MAX, TopicTable
from rockmq.config.broker import BrokerOptions
from rockmq.protocol.bodies.common import TopicConfig
from tests.crash.points.history import Fault, require
from tests.crash.points.load import Tell
from tests.crash.points.loop import LoopClock, SeededLoop

TOPICS_AT_FIRST = WHOLE_MAX - 5
CHANGED = 40
"""Topics that are changed and deleted again and again."""
OPERATIONS = 40
LONG_S = 1000.0
"""So long that everything is saved that anybody has asked for."""

OffsetKey = tuple[str, str, int]
"""Group, topic, queue id."""


def config_of(topic: str, queues: int) -> TopicConfig:
    return TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)


@dataclass
class Tables:
    """`changes` are (topic, queues) in order, 0 queues where it was deleted; `topics` is what there was before them."""

    topics: dict[str, int] = field(default_factory=dict)
    changes: list[tuple[str, int]] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    """Indexes of changes."""
    counter: int = 0
    """Of the version before the changes; each makes it one more."""
    commits: dict[OffsetKey, list[int | None]] = field(default_factory=dict)
    """The offset that is surely on disk, and all since."""

    def told(self, what: str, *values: object) -> bool:
        match what, values:
            case "change", [list() as changes]:
                self.changes += changes
            case "acknowledged", [list() as numbers]:
                self.acknowledged.update(numbers)
                return True
            case "commit", [tuple() as key, int() as offset]:
                self.commits.setdefault(key, [None]).append(offset)
            case "saved", [dict() as offsets]:
                for key, count in offsets.items():
                    del self.commits[key][:count]
                return True
            case "opened", [dict() as topics, dict() as offsets]:
                self.check(topics, self.counter + len(self.changes), offsets, is_complete=True)
        return False

    def check(
        self, topics: Mapping[str, int], counter: int, offsets: Mapping[OffsetKey, int], *, is_complete: bool = False
    ) -> None:
        """What was found is what it may be, or with `is_complete` what it was last. Raises Fault."""
        states: dict[str, list[int]] = {topic: [queues] for topic, queues in self.topics.items()}
        for number, (topic, queues) in enumerate(self.changes):
            of_topic = states.setdefault(topic, [0])
            if number in self.acknowledged:
                of_topic.clear()
            of_topic.append(queues)
        for topic, of_topic in states.items():
            found, allowed = topics.get(topic, 0), of_topic[-1:] if is_complete else of_topic
            require(found in allowed, f"{topic} has {found} queues, not one of {allowed}")
        require(topics.keys() <= states.keys(), f"topics that never were: {topics.keys() - states.keys()}")
        low = self.counter + max(self.acknowledged, default=-1) + 1
        high = self.counter + len(self.changes)
        require(low <= counter <= high, f"the version is {counter}, not within {low} … {high}")
        for key, committed in self.commits.items():
            wanted = committed[-1:] if is_complete else committed
            require(offsets.get(key) in wanted, f"{key} has the offset {offsets.get(key)}, not one of {wanted}")
        require(offsets.keys() <= self.commits.keys(), f"offsets that nobody committed: {offsets}")


class Opened:
    """Both tables as a broker opens them, in `root`. Raises ConfigError."""

    def __init__(self, root: Path, begin: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SeededLoop)
        self.clock = LoopClock(loop, begin)
        self.topics = TopicTable(root, BrokerOptions(), self.clock)
        self.offsets = ConsumerOffsets(root, self.clock)

    def queues(self) -> dict[str, int]:
        for topic, config in self.topics.all().items():
            require(config == config_of(topic, config.read_queue_nums), f"{topic} is {config}")
        return {topic: config.read_queue_nums for topic, config in self.topics.all().items()}

    def committed(self) -> dict[OffsetKey, int]:
        return {
            (group, topic, queue_id): offset
            for group in GROUPS
            for topic, queues in self.offsets.by_group(group).items()
            for queue_id, offset in queues.items()
        }

    def change(self, topic: str, queues: int) -> "asyncio.Future[None] | None":
        return self.topics.put(config_of(topic, queues)) if queues else self.topics.delete(topic)

    async def close(self) -> None:
        await self.topics.close()
        await self.offsets.close()


GROUPS = ("readers", "others")


class DocumentsLoad:
    def __init__(self, root: Path, seed: str, first_number: int, now: int, tell: Tell) -> None:
        self._root = root
        self._choice = random.Random(seed)
        self._next_offset = first_number
        self._begin = now
        self._tell = tell
        self._changed = 0
        self._since_saved: dict[OffsetKey, int] = {}

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: SeededLoop(self._choice)) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self._up = Opened(self._root, self._begin)
        missing = TOPICS_AT_FIRST - len(self._up.topics.all())
        await asyncio.gather(*self._change([(f"t{number}", 4) for number in range(missing)]))
        self._tell("acknowledged", list(range(self._changed)))
        steps = {self._topics: 20, self._commit: 10, self._flush: 5, self._save: 2, self._wait: 10, self._stop: 1}
        for step in self._choice.choices(list(steps), list(steps.values()), k=OPERATIONS):
            await step()
        await self._up.close()

    def _change(self, changes: list[tuple[str, int]]) -> "list[asyncio.Future[None]]":
        self._tell("change", changes)
        self._changed += len(changes)
        found = [self._up.change(*change) for change in changes]
        return [saved for saved in found if saved is not None]

    def _acknowledged(self, number: int, saved: "asyncio.Future[None]") -> None:
        assert saved.exception() is None, "no disk fails here"
        self._tell("acknowledged", [number])

    async def _topics(self) -> None:
        """Some changes at once, each of them a real one."""
        changes: dict[str, int] = {}
        for _ in range(self._choice.choice((1, 1, 2, 5))):
            topic = f"u{self._choice.randrange(CHANGED)}"
            before = self._up.topics.get(topic)
            changes[topic] = 0 if before and self._choice.random() < 0.5 else (before.read_queue_nums if before else 0) + 1
        first = self._changed
        for number, saved in enumerate(self._change(list(changes.items())), first):
            saved.add_done_callback(partial(self._acknowledged, number))

    async def _commit(self) -> None:
        for _ in range(self._choice.randint(1, 4)):
            key = self._choice.choice(GROUPS), f"u{self._choice.randrange(3)}", self._choice.randrange(2)
            self._next_offset += 1
            self._since_saved[key] = self._since_saved.get(key, 0) + 1
            self._tell("commit", key, self._next_offset)
            self._up.offsets.commit(*key, self._next_offset)

    async def _flush(self) -> None:
        self._up.offsets.flush()

    async def _save(self) -> None:
        """Flush, and wait until that is done."""
        self._up.offsets.flush()
        await self._wait_for_all()

    async def _wait(self) -> None:
        await asyncio.sleep(self._choice.choice((0.001, 0.1, 5.0)))

    async def _wait_for_all(self) -> None:
        await asyncio.sleep(LONG_S)
        self._told_saved()

    def _told_saved(self) -> None:
        self._tell("saved", self._since_saved)
        self._since_saved = {}

    async def _stop(self) -> None:
        await self._up.close()
        self._told_saved()
        self._up = Opened(self._root, self._up.clock.now_ms())
        self._tell("opened", self._up.queues(), self._up.committed())


def check(root: Path, tables: Tables, choice: random.Random) -> Tables:
    """Open the image in `root`, change something, and open it again."""
    with asyncio.Runner(loop_factory=lambda: SeededLoop(choice)) as runner:
        return runner.run(_check(root, tables, choice))


async def _check(root: Path, tables: Tables, choice: random.Random) -> Tables:
    up = opened(root)
    topics, counter, offsets = up.queues(), up.topics.version.counter, up.committed()
    tables.check(topics, counter, offsets)
    found = Tables(topics, [], set(), counter, {key: [offset] for key, offset in offsets.items()})
    if choice.random() < 0.3:
        after = replace(found, topics=topics | {"new": 1})
        saved = up.change("new", 1)
        assert saved is not None
        await saved
        if choice.random() < 0.5:
            await up.close()
        again = opened(root)
        after.counter += 1
        after.check(again.queues(), again.topics.version.counter, again.committed(), is_complete=True)
        await again.close()
    await up.close()
    return found


def opened(root: Path) -> Opened:
    try:
        return Opened(root, 1 << 41)
    except ConfigError as error:
        raise Fault(f"the image can't be opened: {error}") from error
