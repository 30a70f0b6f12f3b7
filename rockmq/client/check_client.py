"""Brokers are asked before a consumer starts whether they can filter as it wants (MQClientInstance.checkClientInBroker)."""

import logging
from collections.abc import Iterable

from rockmq.base.errors import RemotingError, RouteNotFound
from rockmq.client.instance import Instance
from rockmq.filter import is_tag
from rockmq.protocol import json
from rockmq.protocol.bodies.client import CheckClientBody
from rockmq.protocol.bodies.common import SubscriptionData
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.client import CheckClientConfig

log = logging.getLogger(__name__)


async def check_filters(instance: Instance, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
    """Raises ResponseError when a broker can't filter by an expression; one that isn't there may be asked for nothing."""
    for subscription in subscriptions:
        if is_tag(subscription.expression_type):
            continue
        body = CheckClientBody(client_id=instance.client_id, group=group, subscription_data=subscription)
        try:
            route = await instance.routes.get(subscription.topic)
            for master in route.masters():
                await instance.ask(master, RequestCode.CHECK_CLIENT_CONFIG, CheckClientConfig(), json.encode(body))
        except (RemotingError, RouteNotFound) as error:
            log.info("%s", error)  # it may come back
