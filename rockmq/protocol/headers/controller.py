"""What administrators ask a controller, and a process that has several brokers (ControllerRequestProcessor.java,
BrokerContainerProcessor.java)."""

from msgspec import field

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Cluster, Header, Int, Long, request


class ControllerMetadataResponse(Header, kw_only=True):
    """GetMetaDataResponseHeader.java. `peers` have a `;` behind each."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


@request(RequestCode.CONTROLLER_GET_METADATA_INFO, ControllerMetadataResponse)
class GetControllerMetadata(Header):
    pass


@request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA)
class GetReplicaSets(Header):
    """The broker names are in the body, as a list; the answer is `rockmq.protocol.bodies.controller.ReplicaSets`."""


class ElectMasterResponse(Header, kw_only=True):
    """ElectMasterResponseHeader.java."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


@request(RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterResponse)
class ElectMaster(Header, kw_only=True):
    """ElectMasterRequestHeader.java; `designate_elect` says that it is to be this broker. `invoke_time` is now, in ms."""

    cluster_name: Cluster
    broker_name: str
    broker_id: Long
    designate_elect: bool
    invoke_time: Long


@request(RequestCode.CLEAN_BROKER_DATA)
class CleanBrokerData(Header, kw_only=True):
    """CleanControllerBrokerDataRequestHeader.java: ids have `;` between them; without any all of a broker's are meant."""

    cluster_name: Cluster | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Long


@request(RequestCode.GET_CONTROLLER_CONFIG)
class GetControllerConfig(Header):
    """The answer's body is Java properties text."""


@request(RequestCode.UPDATE_CONTROLLER_CONFIG)
class UpdateControllerConfig(Header):
    """The changes are in the body, as Java properties text."""


@request(RequestCode.ADD_BROKER)
class AddBroker(Header, kw_only=True):
    """`config_path` is a file where the process runs."""

    config_path: str


@request(RequestCode.REMOVE_BROKER)
class RemoveBroker(Header, kw_only=True):
    broker_name: str
    cluster_name: Cluster = field(name="brokerClusterName")
    broker_id: Long
