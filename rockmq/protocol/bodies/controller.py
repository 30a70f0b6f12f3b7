"""What controllers know of brokers, and brokers of their masters (BrokerReplicasInfo.java, ElectMasterResponseBody.java,
EpochEntryCache.java)."""

from msgspec import field

from rockmq.protocol.bodies.common import Body
from rockmq.protocol.bodies.route import BrokerMemberGroup
from rockmq.protocol.header import Int, Long


class ReplicaIdentity(Body, kw_only=True):
    """A broker of a name; `alive` if it sends heartbeats to the controller."""

    broker_name: str
    broker_id: Long
    address: str | None = field(default=None, name="brokerAddress")
    alive: bool = False


class ReplicaSet(Body, kw_only=True):
    """Brokers of a name: the master, if there is one, and who has what it has. The epochs grow with each change."""

    master_id: Long | None = field(default=None, name="masterBrokerId")
    master_address: str | None = None
    master_epoch: Int = 0
    sync_state_set_epoch: Int = 0
    in_sync: list[ReplicaIdentity] = field(default_factory=list, name="inSyncReplicas")
    not_in_sync: list[ReplicaIdentity] = field(default_factory=list, name="notInSyncReplicas")


class ReplicaSets(Body, kw_only=True):
    """By broker name; without those that the controller doesn't know."""

    replicas_info_table: dict[str, ReplicaSet] = field(default_factory=dict)


class ElectedBody(Body, kw_only=True):
    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[Long] = field(default_factory=list)


class Epoch(Body, kw_only=True):
    """What of the log was written under one master: from `start` up to `end`, which for the present one isn't reached."""

    epoch: Int
    start: Long = field(name="startOffset")
    end: Long = field(name="endOffset")


class Epochs(Body, kw_only=True):
    """Under which masters a broker's log was written; `end` is the log's."""

    cluster_name: str
    broker_name: str
    broker_id: Long
    epochs: list[Epoch] = field(default_factory=list, name="epochList")
    end: Long = field(name="maxOffset")
