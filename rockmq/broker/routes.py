"""Which handler answers which request: the broker's table of contents."""

from rockmq.broker.handlers.admin import AdminHandlers
from rockmq.broker.handlers.assignment import AssignmentHandlers
from rockmq.broker.handlers.clients import ClientHandlers
from rockmq.broker.handlers.offsets import OffsetHandlers
from rockmq.broker.handlers.pop import PopHandlers
from rockmq.broker.handlers.pull import PullHandler
from rockmq.broker.handlers.query import QueryHandlers
from rockmq.broker.handlers.recall import RecallHandler
from rockmq.broker.handlers.relay import RelayHandlers
from rockmq.broker.handlers.reply import ReplyHandler
from rockmq.broker.handlers.send import SendHandler
from rockmq.broker.handlers.send_back import SendBackHandler
from rockmq.broker.handlers.transactions import TransactionHandler
from rockmq.protocol.codes import RequestCode
from rockmq.remoting.dispatch import Handler


def routes(
    send: SendHandler,
    send_back: SendBackHandler,
    recall: RecallHandler,
    transactions: TransactionHandler,
    pull: PullHandler,
    pop: PopHandlers,
    assignment: AssignmentHandlers,
    offsets: OffsetHandlers,
    query: QueryHandlers,
    clients: ClientHandlers,
    reply: ReplyHandler,
    relay: RelayHandlers,
    admin: AdminHandlers,
) -> dict[int, Handler]:
    return {
        RequestCode.SEND_MESSAGE: send,
        RequestCode.SEND_MESSAGE_V2: send,
        RequestCode.SEND_BATCH_MESSAGE: send,
        RequestCode.CONSUMER_SEND_MSG_BACK: send_back,
        RequestCode.SEND_REPLY_MESSAGE: reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: reply,
        RequestCode.RECALL_MESSAGE: recall,
        RequestCode.END_TRANSACTION: transactions.end,
        RequestCode.PULL_MESSAGE: pull,
        RequestCode.LITE_PULL_MESSAGE: pull,
        RequestCode.POP_MESSAGE: pop.take,
        RequestCode.PEEK_MESSAGE: pop.peek,
        RequestCode.ACK_MESSAGE: pop.ack,
        RequestCode.BATCH_ACK_MESSAGE: pop.batch_ack,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: pop.change,
        RequestCode.NOTIFICATION: pop.notification,
        RequestCode.POLLING_INFO: pop.polling_info,
        RequestCode.QUERY_ASSIGNMENT: assignment.query,
        RequestCode.SET_MESSAGE_REQUEST_MODE: assignment.set_mode,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: assignment.all_modes,
        RequestCode.QUERY_CONSUMER_OFFSET: offsets.query,
        RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: offsets.reset,
        RequestCode.CLONE_GROUP_OFFSET: offsets.clone,
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
        RequestCode.GET_CONSUMER_RUNNING_INFO: relay.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: relay.consume_directly,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: relay.group_status,
        RequestCode.UPDATE_AND_CREATE_TOPIC: admin.create_topic,
        RequestCode.DELETE_TOPIC_IN_BROKER: admin.delete_topic,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: admin.update_group,
        RequestCode.GET_ALL_TOPIC_CONFIG: admin.all_topics,
        RequestCode.GET_ALL_DELAY_OFFSET: admin.all_delay_offsets,
        RequestCode.GET_TOPIC_CONFIG: admin.topic,
        RequestCode.GET_TOPIC_STATS_INFO: admin.topic_stats,
        RequestCode.GET_CONSUME_STATS: admin.consume_stats,
        RequestCode.GET_BROKER_RUNTIME_INFO: admin.runtime_info,
        RequestCode.GET_BROKER_CONFIG: admin.config,
    }
