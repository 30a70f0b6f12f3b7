"""Transactions (EndTransactionRequestHeader.java, CheckTransactionStateRequestHeader.java; spec 4.6, 4.8)."""

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Group, Int, Long, Topic, TopicHeader, request


@request(RequestCode.END_TRANSACTION)
class EndTransaction(TopicHeader, kw_only=True):
    """`commit_log_offset` and `tran_state_table_offset` are position and queue offset of the half message;
    `commit_or_rollback` is a value of `flags.TransactionState`, NONE for a producer that doesn't know yet."""

    producer_group: Group
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    msg_id: str
    topic: Topic | None = None
    from_transaction_check: bool = False
    transaction_id: str | None = None


@request(RequestCode.CHECK_TRANSACTION_STATE)
class CheckTransactionState(TopicHeader, kw_only=True):
    """From the broker to a producer, one-way; the body is the half message, addressed to where it is meant to go."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    topic: Topic | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
