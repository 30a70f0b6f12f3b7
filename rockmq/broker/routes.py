"""Which handler answers which request: the broker's table of contents."""

from rockmq.broker.handlers.admin import AdminHandlers
from rockmq.broker.handlers.clients import ClientHandlers
from rockmq.broker.handlers.offsets import OffsetHandlers
from rockmq.broker.handlers.pull import PullHandler
from rockmq.broker.handlers.query import QueryHandlers
from rockmq.broker.handlers.send import SendHandler
from rockmq.broker.handlers.transactions import TransactionHandler
from rockmq.protocol.codes import RequestCode
from rockmq.remoting.dispatch import Handler


def routes(
    send: SendHandler,
    transactions: TransactionHandler,
    pull: PullHandler,
    offsets: OffsetHandlers,
    query: QueryHandlers,
    clients: ClientHandlers,
    admin: AdminHandlers,
) -> dict[int, Handler]:
    return {
        RequestCode.SEND_MESSAGE: send,
        RequestCode.SEND_MESSAGE_V2: send,
        RequestCode.SEND_BATCH_MESSAGE: send,
        RequestCode.END_TRANSACTION: transactions.end,
        RequestCode.PULL_MESSAGE: pull,
        RequestCode.LITE_PULL_MESSAGE: pull,
        RequestCode.QUERY_CONSUMER_OFFSET: offsets.query,
        RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.by_time,
        RequestCode.GET_MAX_OFFSET: offsets.maximum,
        RequestCode.GET_MIN_OFFSET: offsets.minimum,
        RequestCode.GET_EARLIEST_MSG_STORETIME: offsets.earliest,
        RequestCode.QUERY_MESSAGE: query.by_key,
        RequestCode.VIEW_MESSAGE_BY_ID: query.by_id,
        RequestCode.HEART_BEAT: clients.heartbeat,
        RequestCode.UNREGISTER_CLIENT: clients.unregister,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
        RequestCode.CHECK_CLIENT_CONFIG: clients.check_config,
        RequestCode.LOCK_BATCH_MQ: clients.lock,
        RequestCode.UNLOCK_BATCH_MQ: clients.unlock,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: clients.consumer_connections,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: clients.producer_connections,
        RequestCode.UPDATE_AND_CREATE_TOPIC: admin.create_topic,
        RequestCode.DELETE_TOPIC_IN_BROKER: admin.delete_topic,
        RequestCode.GET_ALL_TOPIC_CONFIG: admin.all_topics,
        RequestCode.GET_TOPIC_CONFIG: admin.topic,
        RequestCode.GET_TOPIC_STATS_INFO: admin.topic_stats,
        RequestCode.GET_CONSUME_STATS: admin.consume_stats,
        RequestCode.GET_BROKER_RUNTIME_INFO: admin.runtime_info,
    }
