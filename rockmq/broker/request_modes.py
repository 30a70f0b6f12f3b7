"""Whether groups pull or pop the messages of a topic (MessageRequestModeManager.java): `config/messageRequestMode.json`."""

import asyncio
from pathlib import Path

from rockmq.broker.documents import Saver, load, save
from rockmq.config.broker import Pop as Options
from rockmq.config.broker import RequestModes as DefaultMode
from rockmq.protocol import json, topics
from rockmq.protocol.bodies.pop import Mode, RequestMode
from rockmq.protocol.bodies.pop import RequestModes as Document


class RequestModes:
    def __init__(self, directory: Path, options: Options) -> None:
        """Raises ConfigError when the document can't be read."""
        self._options = options
        self._path = directory / "messageRequestMode.json"
        self._document = load(self._path, Document) or Document()
        self._saver = Saver(self._path, self._save)

    def get(self, topic: str, group: str) -> RequestMode:
        """What was set, else the default; retry topics are always pulled."""
        found = self._document.message_request_mode_map.get(topic, {}).get(group)
        if found is not None:
            return found
        if topics.is_retry(topic):
            return RequestMode(topic=topic, consumer_group=group)
        mode: Mode = "POP" if self._options.default_message_request_mode is DefaultMode.POP else "PULL"
        share = self._options.default_pop_share_queue_num
        return RequestMode(topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=share)

    def put(self, mode: RequestMode) -> "asyncio.Future[None]":
        """Set a mode; done when it is on disk."""
        self._document.message_request_mode_map.setdefault(mode.topic, {})[mode.consumer_group] = mode
        return self._saver.now()

    def text(self) -> bytes:
        return json.encode(self._document)

    async def _save(self) -> None:
        await save(self._path, [self.text()])

    async def close(self) -> None:
        await self._saver.close()
