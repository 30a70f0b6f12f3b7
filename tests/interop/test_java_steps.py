"""Each thing a Java client can ask for, once, with the answer Apache's own server gives."""

from collections.abc import Callable

import pytest

from tests.support import apache
from tests.support.cluster import Cluster
from tests.support.events import Event, events

EXPECTED: dict[str, object] = {
    "send": [0, 1, 2, 3, 4],
    "queues": "4/4",
    "offsets": "0/5/true",
    "search": "0/5",
    "view": "steps-0 ü",
    "query": "1/steps-key-1",
    "pull": "FOUND/5/5",
    "pullNothing": "NO_NEW_MSG/5/5",
    "pullFilter": "FOUND/2/5",
    "commit": 3,
    "sendBack": "accepted",
    "litePull": 5,
    "orderly": 5,
    "delay": "1/true",
    "transaction": "[COMMIT_MESSAGE, UNKNOW]/true",  # UNKNOW: the broker asked back and got a commit
    "request": "answer to a question",
}


@pytest.fixture(scope="module", params=apache.CLIENTS)
def answers(
    request: pytest.FixtureRequest,
    shared: Cluster,
    unique: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Event]:
    arguments = f"namesrv={shared.namesrv}", f"topic={unique('steps')}", f"group={unique('steps-group')}"
    directory = tmp_path_factory.mktemp("steps")
    with apache.program(request.param, "Steps", *arguments, directory=directory) as steps:
        assert steps.wait(400) == 0, steps.tail()
        return {event["name"]: event for event in events(steps, "step")}


@pytest.mark.parametrize("step", EXPECTED)
def test_answer_is_what_apache_answers(answers: dict[str, Event], step: str) -> None:
    assert answers[step].get("result", answers[step].get("error")) == EXPECTED[step]
