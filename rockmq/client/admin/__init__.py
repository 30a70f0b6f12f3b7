"""What administrators do (DefaultMQAdminExtImpl.java; protocol spec, 3.1 and 5.1): `Client.admin`.

    await mq.admin.topics.put(TopicSettings("orders", read_queues=8, write_queues=8))
    progress = await mq.admin.groups.progress("billing")
    print(progress.lag)

Questions about a topic go to the masters that have it, others to the masters of all clusters or of the one that is named. A
server that refuses raises ResponseError with its code and words, one that can't be reached RemotingError; an answer is
never made up of those servers alone that happened to answer. What a server doesn't know raises ResponseError with
REQUEST_CODE_NOT_SUPPORTED, RockMQ's among them: some calls are about what only Apache's have. Times are milliseconds since
the epoch.

With `namespace_v1` names are the user's here too; topics and groups of others have the names that servers know.
"""

from rockmq.client.admin.access import AccessAdmin, Acl, Rule, User
from rockmq.client.admin.brokers import BrokerAdmin, BrokerStats, Clusters, Measured, RuntimeInfo
from rockmq.client.admin.cluster import Cluster
from rockmq.client.admin.containers import ContainerAdmin
from rockmq.client.admin.controllers import ControllerAdmin, ControllerMetadata, Elected
from rockmq.client.admin.groups import (
    ClientConnection,
    GroupAdmin,
    GroupConnections,
    GroupProgress,
    GroupSettings,
    QueueProgress,
    QueueTimes,
    Subscription,
)
from rockmq.client.admin.lite import LiteAdmin
from rockmq.client.admin.members import DirectResult, MemberAdmin, RunningInfo
from rockmq.client.admin.messages import Consumption, MessageAdmin
from rockmq.client.admin.names import NameServerAdmin
from rockmq.client.admin.static_topics import StaticTopicAdmin
from rockmq.client.admin.storage import StorageAdmin
from rockmq.client.admin.topics import (
    BrokerAddresses,
    QueueBounds,
    TopicAdmin,
    TopicQueues,
    TopicRoute,
    TopicSettings,
    TopicStats,
)
from rockmq.client.instance import Instance
from rockmq.protocol.bodies.static_topic import QueueMapping, Segment


class Admin:
    """The subjects that there are to administer."""

    def __init__(self, instance: Instance) -> None:
        cluster = Cluster(instance)
        self.topics = TopicAdmin(cluster)
        self.groups = GroupAdmin(cluster)
        self.members = MemberAdmin(cluster)
        self.messages = MessageAdmin(cluster)
        self.brokers = BrokerAdmin(cluster)
        self.name_servers = NameServerAdmin(cluster)
        self.access = AccessAdmin(cluster)
        self.storage = StorageAdmin(cluster)
        self.controllers = ControllerAdmin(cluster)
        self.containers = ContainerAdmin(cluster)
        self.static_topics = StaticTopicAdmin(cluster)
        self.lite = LiteAdmin(cluster)


__all__ = [
    "AccessAdmin",
    "Acl",
    "Admin",
    "BrokerAddresses",
    "BrokerAdmin",
    "BrokerStats",
    "ClientConnection",
    "Clusters",
    "Consumption",
    "ContainerAdmin",
    "ControllerAdmin",
    "ControllerMetadata",
    "DirectResult",
    "Elected",
    "GroupAdmin",
    "GroupConnections",
    "GroupProgress",
    "GroupSettings",
    "LiteAdmin",
    "Measured",
    "MemberAdmin",
    "MessageAdmin",
    "NameServerAdmin",
    "QueueBounds",
    "QueueMapping",
    "QueueProgress",
    "QueueTimes",
    "Rule",
    "RunningInfo",
    "RuntimeInfo",
    "Segment",
    "StaticTopicAdmin",
    "StorageAdmin",
    "Subscription",
    "TopicAdmin",
    "TopicQueues",
    "TopicRoute",
    "TopicSettings",
    "TopicStats",
    "User",
]
