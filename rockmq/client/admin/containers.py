"""Processes in which several brokers run (BrokerContainerProcessor.java)."""

from rockmq.client.admin.cluster import Cluster
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.controller import AddBroker, RemoveBroker

TIMEOUT = 60.0
"""A broker starts, or ends, before the answer comes."""


class ContainerAdmin:
    """`container` is the `host:port` of one, which isn't that of a broker in it. `BrokerAdmin.config` and `update_config`
    are for its configuration, too."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def add(self, container: str, config_path: str) -> None:
        """Start a broker in the container, as a file there configures it. Raises ResponseError when it doesn't start."""
        header = AddBroker(config_path=config_path)
        await self._cluster.instance.ask(container, RequestCode.ADD_BROKER, header, timeout=TIMEOUT)

    async def remove(self, container: str, cluster: str, broker_name: str, broker_id: int) -> None:
        """Stop a broker of the container. Raises ResponseError (BROKER_NOT_EXIST) when there is none."""
        header = RemoveBroker(cluster_name=cluster, broker_name=broker_name, broker_id=broker_id)
        await self._cluster.instance.ask(container, RequestCode.REMOVE_BROKER, header, timeout=TIMEOUT)
