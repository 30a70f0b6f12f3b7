"""What Apache's Java client 5.5.0 tells in message trace about the messages of tests/support/java/5.5.0/Traced.java.

`tests/interop/test_traces.py` compares it with that client, `tests/client/test_trace.py` ours with it. Records have `|` for
0x01 here, and words in < > for what differs from run to run.
"""

from rockmq.client.trace import FIELD_END, RECORD_END
from rockmq.protocol.message import StoredMessage

RECORDS = """\
EndTransaction|<time>|DefaultRegion|<producers>|<topic>|<id>|paid|k6|<broker>|2|<id>|COMMIT_MESSAGE|false
EndTransaction|<time>|DefaultRegion|<producers>|<topic>|<id>|paid|k7|<broker>|2|<id>|ROLLBACK_MESSAGE|false
Pub|<time>|DefaultRegion|<producers>|<topic>|<id>|null|null|<broker>|4|<cost>|0|<offset id>|true
Pub|<time>|DefaultRegion|<producers>|<topic>|<id>|paid|k1 k2|<broker>|6|<cost>|0|<offset id>|true
Pub|<time>|DefaultRegion|<producers>|<topic>|<id>|paid|k3|<broker>|7|<cost>|0|<offset id>|true
Pub|<time>|DefaultRegion|<producers>|<topic>|<id>|paid|k4|<broker>|6|<cost>|0|<offset id>|true
Pub|<time>|DefaultRegion|<producers>|<topic>|<id>|paid|k5|<broker>|7|<cost>|3|<offset id>|true
Pub|<time>|DefaultRegion|<producers>|<topic>|<id>|paid|k6|<broker>|9|<cost>|1|<offset id>|true
Pub|<time>|DefaultRegion|<producers>|<topic>|<id>|paid|k7|<broker>|11|<cost>|1|<offset id>|true
SubAfter|<request>|<id>|<cost>|false|k3|4|<time>|<consumers>
SubAfter|<request>|<id>|<cost>|false|k4|2|<time>|<consumers>
SubAfter|<request>|<id>|<cost>|true|k1 k2|0|<time>|<consumers>
SubAfter|<request>|<id>|<cost>|true|k6|0|<time>|<consumers>
SubAfter|<request>|<id>|<cost>|true|null|0|<time>|<consumers>
SubBefore|<time>|DefaultRegion|<consumers>|<request>|<id>|0|k1 k2
SubBefore|<time>|DefaultRegion|<consumers>|<request>|<id>|0|k3
SubBefore|<time>|DefaultRegion|<consumers>|<request>|<id>|0|k4
SubBefore|<time>|DefaultRegion|<consumers>|<request>|<id>|0|k6
SubBefore|<time>|DefaultRegion|<consumers>|<request>|<id>|0|null
"""
VARIABLE = {
    "Pub": {1: "<time>", 5: "<id>", 8: "<broker>", 10: "<cost>", 12: "<offset id>"},
    "SubBefore": {1: "<time>", 4: "<request>", 5: "<id>"},
    "SubAfter": {1: "<request>", 2: "<id>", 3: "<cost>", 7: "<time>"},
    "EndTransaction": {1: "<time>", 5: "<id>", 8: "<broker>", 10: "<id>"},
}
"""What differs, by its place in a record."""


def records(messages: list[StoredMessage], topic: str, producers: str, consumers: str) -> str:
    """The records in trace messages as they are above, in an order of their own."""
    names = {topic: "<topic>", producers: "<producers>", consumers: "<consumers>"}
    texts = "".join(message.body.decode() for message in messages).split(RECORD_END)
    assert texts.pop() == ""
    found = []
    for text in texts:
        fields = [names.get(field, field) for field in text.split(FIELD_END)]
        for place, name in VARIABLE[fields[0]].items():
            fields[place] = name
        found.append("|".join(fields) + "\n")
    return "".join(sorted(found))
