import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Does what org.apache.rocketmq.example.quickstart.Producer does; the name server comes from -Drocketmq.namesrv.addr. */
public final class QuickstartProducer {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("please_rename_unique_group_name");
        producer.start();
        for (int i = 0; i < 1000; i++) {
            try {
                Message message = new Message("TopicTest", "TagA", ("Hello RocketMQ " + i).getBytes(StandardCharsets.UTF_8));
                SendResult result = producer.send(message, 20 * 1000);
                System.out.printf("%s%n", result);
            } catch (Exception e) {
                e.printStackTrace();
                Thread.sleep(1000);
            }
        }
        producer.shutdown();
    }
}
