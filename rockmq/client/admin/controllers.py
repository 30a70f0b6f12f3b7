"""Controllers, which say who is the master of brokers that can stand in for each other (ControllerRequestProcessor.java)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rockmq.base.errors import ClientError
from rockmq.client.admin.cluster import Cluster
from rockmq.client.admin.topics import BrokerAddresses, addresses
from rockmq.config import properties
from rockmq.protocol import json
from rockmq.protocol.bodies.controller import ElectedBody, ReplicaSet, ReplicaSets
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Header, decode
from rockmq.protocol.headers.controller import (
    CleanBrokerData,
    ControllerMetadataResponse,
    ElectMaster,
    ElectMasterResponse,
    GetControllerConfig,
    GetControllerMetadata,
    GetReplicaSets,
    UpdateControllerConfig,
)

TIMEOUT = 10.0
"""A controller waits 5 s for the others."""


@dataclass(frozen=True)
class ControllerMetadata:
    """What a controller knows of its group: who leads it, if anybody does, and whether it does itself. `peers` are all in
    the group, `host:port`, with `id:` before that where DLedger holds it together."""

    group: str | None
    leader_id: str | None
    leader: str | None
    leads: bool
    peers: list[str]


@dataclass(frozen=True)
class Elected:
    """The master that was elected, the epochs of that, and who has what it has (broker ids)."""

    master_id: int
    master_address: str
    master_epoch: int
    sync_state_set_epoch: int
    in_sync: list[int]
    brokers: BrokerAddresses | None


class ControllerAdmin:
    """`controller` is the `host:port` of any of a group. What concerns brokers is asked of the leader, and raises
    ClientError while there is none; what a controller doesn't do raises ResponseError, with one of the codes
    CONTROLLER_…."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def metadata(self, controller: str) -> ControllerMetadata:
        """What this one knows of its group."""
        answer = await self._ask(controller, RequestCode.CONTROLLER_GET_METADATA_INFO, GetControllerMetadata())
        found = decode(ControllerMetadataResponse, answer.fields)
        return ControllerMetadata(
            found.group,
            found.controller_leader_id or None,
            found.controller_leader_address or None,
            found.is_leader,
            [peer for peer in (found.peers or "").split(";") if peer],
        )

    async def replicas(self, controller: str, broker_names: Iterable[str]) -> dict[str, ReplicaSet]:
        """Masters and who has what they have, by broker name; without names that the controller doesn't know."""
        names = [broker_names] if isinstance(broker_names, str) else list(broker_names)
        leader = await self._leader(controller)
        answer = await self._ask(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, GetReplicaSets(), json.encode(names))
        # To a question about no name a controller has no answer.
        return json.decode(answer.body, ReplicaSets, "replicas").replicas_info_table if answer.body else {}

    async def elect(self, controller: str, cluster: str, broker_name: str, broker_id: int) -> Elected:
        """Make a broker the master of its name. Raises ResponseError, CONTROLLER_MASTER_STILL_EXIST when it is that already,
        CONTROLLER_ELECT_MASTER_FAILED when it isn't there or isn't in sync."""
        header = ElectMaster(
            cluster_name=cluster,
            broker_name=broker_name,
            broker_id=broker_id,
            designate_elect=True,
            invoke_time=self._cluster.instance.clock.now_ms(),
        )
        answer = await self._ask(await self._leader(controller), RequestCode.CONTROLLER_ELECT_MASTER, header)
        made = decode(ElectMasterResponse, answer.fields)
        body = json.decode(answer.body, ElectedBody, "elected master")
        members = body.broker_member_group
        return Elected(
            broker_id if made.master_broker_id is None else made.master_broker_id,
            made.master_address or "",
            made.master_epoch or 0,
            made.sync_state_set_epoch or 0,
            sorted(body.sync_state_set),
            None if members is None else addresses(members),
        )

    async def forget(
        self,
        controller: str,
        cluster: str,
        broker_name: str,
        broker_ids: Iterable[int] | None = None,
        *,
        living: bool = False,
    ) -> None:
        """Have controllers know nothing more of brokers: these, or all of the name. Raises ResponseError
        (CONTROLLER_INVALID_CLEAN_BROKER_METADATA) when one is alive, except with `living`, or none is known."""
        header = CleanBrokerData(
            cluster_name=cluster,
            broker_name=broker_name,
            broker_controller_ids_to_clean=None if broker_ids is None else ";".join(map(str, broker_ids)),
            is_clean_living_broker=living,
            invoke_time=self._cluster.instance.clock.now_ms(),
        )
        await self._ask(await self._leader(controller), RequestCode.CLEAN_BROKER_DATA, header)

    async def config(self, controller: str) -> dict[str, str]:
        """The configuration of this one controller."""
        answer = await self._ask(controller, RequestCode.GET_CONTROLLER_CONFIG, GetControllerConfig())
        return properties.read_bytes(answer.body)

    async def update_config(self, controller: str, changes: Mapping[str, str]) -> None:
        """Change the configuration of this one. Raises ResponseError for keys that can't be changed."""
        body = properties.write(changes).encode()
        await self._ask(controller, RequestCode.UPDATE_CONTROLLER_CONFIG, UpdateControllerConfig(), body)

    async def _leader(self, controller: str) -> str:
        found = await self.metadata(controller)
        if found.leader is None:
            raise ClientError(f"the group of controller {controller} has no leader now")
        return found.leader

    async def _ask(self, controller: str, code: int, header: Header, body: bytes = b"") -> Command:
        return await self._cluster.instance.ask(controller, code, header, body, TIMEOUT)
