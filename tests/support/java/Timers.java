import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

/**
 * Sends messages for later: `send` is key:property:value,… where a value +n of TIMER_DELIVER_MS is n ms from now. Prints the
 * earliest time each may come and its recall handle. Then takes back those of `recall`, key,…, which clients from 5.5.0 on can.
 */
public final class Timers {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        String topic = options.text("topic");
        DefaultMQProducer producer = new DefaultMQProducer("timers-producer");
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setMqClientApiTimeout(20_000);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        Map<String, Object> handles = new LinkedHashMap<>();
        for (String each : options.text("send").split(",")) {
            String[] parts = each.split(":");
            long now = System.currentTimeMillis();
            long wish = Long.parseLong(parts[2]);
            boolean absolute = parts[1].equals("TIMER_DELIVER_MS");
            long deliver = now + wish * (parts[1].equals("TIMER_DELAY_SEC") ? 1000 : 1);
            Message message = new Message(topic, "tag", parts[0], parts[0].getBytes(StandardCharsets.UTF_8));
            MessageAccessor.putProperty(message, parts[1], String.valueOf(absolute ? deliver : wish));
            try {
                SendResult result = producer.send(message);
                if (!options.text("recall", "").isEmpty()) {
                    handles.put(parts[0], SendResult.class.getMethod("getRecallHandle").invoke(result));
                }
                Lines.print("sent", "key", parts[0], "deliver", deliver, "msgId", result.getMsgId());
            } catch (Exception e) {
                Lines.print("refused", "key", parts[0], "error", e.toString());
            }
        }
        for (String key : options.text("recall", "").split(",")) {
            if (!key.isEmpty()) {
                Object id = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                    .invoke(producer, topic, handles.get(key));
                Lines.print("recalled", "key", key, "msgId", id);
            }
        }
        Ending.of(producer::shutdown);
        Lines.print("done");
        System.exit(0);
    }
}
