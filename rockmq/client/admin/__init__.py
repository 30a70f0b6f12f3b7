"""What administrators do (DefaultMQAdminExtImpl.java; protocol spec, 3.1 and 5.1): `Client.admin`.

    await mq.admin.topics.put(TopicSettings("orders", read_queues=8, write_queues=8))
    progress = await mq.admin.groups.progress("billing")
    print(progress.lag)

Questions about a topic go to the masters that have it, others to the masters of all clusters or of the one that is named. A
server that refuses raises ResponseError with its code and words, one that can't be reached RemotingError; an answer is
never made up of those servers alone that happened to answer. Times are milliseconds since the epoch.
"""

from rockmq.client.admin.brokers import BrokerAdmin, BrokerStats, Clusters, Measured, RuntimeInfo
from rockmq.client.admin.cluster import Cluster
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
from rockmq.client.admin.members import DirectResult, MemberAdmin, RunningInfo
from rockmq.client.admin.messages import MessageAdmin
from rockmq.client.admin.names import NameServerAdmin
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


__all__ = [
    "Admin",
    "BrokerAddresses",
    "BrokerAdmin",
    "BrokerStats",
    "ClientConnection",
    "Clusters",
    "DirectResult",
    "GroupAdmin",
    "GroupConnections",
    "GroupProgress",
    "GroupSettings",
    "Measured",
    "MemberAdmin",
    "MessageAdmin",
    "NameServerAdmin",
    "QueueBounds",
    "QueueProgress",
    "QueueTimes",
    "RunningInfo",
    "RuntimeInfo",
    "Subscription",
    "TopicAdmin",
    "TopicQueues",
    "TopicRoute",
    "TopicSettings",
    "TopicStats",
]
