"""The name server's options (NamesrvConfig.java, NettyServerConfig.java; store spec, section 8.3)."""

import os
from typing import Annotated, ClassVar

from msgspec import field

from rockmq.config import inert
from rockmq.config.inert import Foreign
from rockmq.config.key import Key, Options, Role, declare
from rockmq.config.logs import Logs
from rockmq.config.metrics import NamesrvMetricsOptions
from rockmq.config.tls import Tls

INT_MAX = 2**31 - 1


class NamesrvNetwork(Options, frozen=True, kw_only=True):
    listen_port: Annotated[int, Key("Port for clients and brokers.", ge=0, le=65535)] = 9876
    bind_address: Annotated[str, Key("Local address to listen on.")] = "0.0.0.0"
    server_channel_max_idle_time_seconds: Annotated[
        int, Key("A connection silent for so long is closed.", unit="seconds", ge=1, le=INT_MAX)
    ] = 120
    server_socket_backlog: Annotated[int, Key("Connections waiting to be accepted.", ge=1, le=65535)] = 1024
    connections_max: Annotated[
        int, Key("Open connections; over it new ones are refused.", apache=None, ge=1, le=INT_MAX)
    ] = 50_000


class Files(Options, frozen=True, kw_only=True):
    kv_config_path: Annotated[str, Key("File of the key-value configuration.", path=True)] = field(
        default_factory=lambda: os.path.join(os.path.expanduser("~"), "namesrv", "kvConfig.json")
    )
    # Apache writes $HOME/namesrv/namesrv.properties, which it then never reads. Here changes go where they are read.
    config_store_path: Annotated[
        str | None,
        Key(
            "File that changes are written to; without it they last until the next start.",
            path=True,
            default="none",
            apache="$HOME/namesrv/namesrv.properties",
        ),
    ] = None
    config_black_list: Annotated[str, Key("Keys, separated by `;`, that no request may change.")] = (
        "configBlackList;configStorePath;kvConfigPath"
    )


class Routes(Options, frozen=True, kw_only=True):
    order_message_enable: Annotated[bool, Key("Show a topic's order configuration in its route.", reload=True)] = False
    return_order_topic_config_to_broker: Annotated[
        bool, Key("Answer registrations with the order configurations.", reload=True)
    ] = True
    delete_topic_with_broker_registration: Annotated[
        bool, Key("Drop a topic's queues of a broker whose registration lacks it.", reload=True)
    ] = False
    scan_not_active_broker_interval: Annotated[
        int, Key("Time between looks for silent brokers.", unit="ms", apache="5000", ge=10, le=INT_MAX)
    ] = 10_000
    enable_topic_list: Annotated[bool, Key("Answer lists of some topics.", reload=True)] = True
    enable_all_topic_list: Annotated[bool, Key("Answer the list of all topics.", reload=True)] = True
    need_wait_for_service: Annotated[bool, Key("Refuse routes for a while after the start.")] = False
    wait_seconds_for_service: Annotated[int, Key("That while.", unit="seconds", ge=0, le=INT_MAX)] = 45


@declare
class NamesrvOptions(Role, frozen=True, kw_only=True):
    foreign: ClassVar[Foreign] = inert.NAMESRV

    network: NamesrvNetwork = field(default_factory=NamesrvNetwork)
    files: Files = field(default_factory=Files)
    routes: Routes = field(default_factory=Routes)
    metrics: NamesrvMetricsOptions = field(default_factory=NamesrvMetricsOptions)
    logs: Logs = field(default_factory=Logs)
    tls: Tls = field(default_factory=Tls)
