import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.common.message.Message;

/** The message number i of a run, known to the tests as well: see `tests/support/messages.py`. */
final class Content {
    private Content() {
    }

    static Message message(String topic, String prefix, int index, int size) {
        Message message = new Message(topic, "tag" + index % 3, prefix + "-key-" + index, body(prefix, index, size));
        message.putUserProperty("index", Integer.toString(index));
        message.putUserProperty("greeting", "gr\u00fc\u00df dich \u4f60\u597d " + index);
        return message;
    }

    static byte[] body(String prefix, int index, int size) {
        StringBuilder body = new StringBuilder(prefix).append('-').append(index).append(" \u00fc");
        for (int i = 0; body.length() < size; i++) {
            body.append(' ').append(i);
        }
        return body.toString().getBytes(StandardCharsets.UTF_8);
    }
}
