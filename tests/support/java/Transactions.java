import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends transactions and answers the broker's questions until it is ended. `send` lists prefix:count:state, whose messages
 * are those of `Content`; `answers` lists prefix:state, what to say when asked about one. States are commit, rollback, unknown.
 * A send that fails is told with its causes.
 */
public final class Transactions {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        TransactionMQProducer producer = new TransactionMQProducer(options.text("group"));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setMqClientApiTimeout(20_000);
        producer.setSendMsgTimeout(10_000);
        String[] answers = options.text("answers", "").split(",");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                LocalTransactionState said = LocalTransactionState.UNKNOW;
                for (String answer : answers) {
                    if (message.getKeys().startsWith(answer.split(":")[0] + "-key-")) {
                        said = state(answer.split(":")[1]);
                    }
                }
                Lines.print("asked", "keys", message.getKeys(), "answer", said.name(), "topic", message.getTopic(),
                    "body", new String(message.getBody(), StandardCharsets.UTF_8), "transactionId", message.getTransactionId(),
                    "checks", message.getUserProperty("TRANSACTION_CHECK_TIMES"));
                return said;
            }
        });
        producer.start();
        for (String batch : options.text("send", "").split(",")) {
            String[] parts = batch.split(":");
            for (int i = 0; parts.length == 3 && i < Integer.parseInt(parts[1]); i++) {
                Message message = Content.message(options.text("topic"), parts[0], i, 0);
                SendResult result;
                try {
                    result = producer.sendMessageInTransaction(message, state(parts[2]));
                } catch (MQClientException e) {
                    StringBuilder causes = new StringBuilder();
                    for (Throwable cause = e; cause != null; cause = cause.getCause()) {
                        causes.append(cause).append('\n');
                    }
                    Lines.print("failed", "keys", message.getKeys(), "error", causes.toString());
                    continue;
                }
                Lines.print("sent", "keys", message.getKeys(), "status", result.getSendStatus(), "msgId", result.getMsgId(),
                    "queueOffset", result.getQueueOffset());
            }
        }
        // A producer that has sent nothing has no route, and no broker hears of it.
        producer.getDefaultMQProducerImpl().getmQClientFactory().updateTopicRouteInfoFromNameServer(options.text("topic"));
        producer.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
        Lines.print("ready");
        Thread.sleep(Long.MAX_VALUE);
    }

    private static LocalTransactionState state(String name) {
        switch (name) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }
}
