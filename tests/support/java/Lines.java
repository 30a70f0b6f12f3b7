import com.alibaba.fastjson.JSON;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.LinkedHashMap;
import java.util.Map;

/** What the programs print: one JSON object a line, whose "event" says what happened. */
final class Lines {
    private Lines() {
    }

    static void print(String event, Object... keysAndValues) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        for (int i = 0; i < keysAndValues.length; i += 2) {
            line.put((String) keysAndValues[i], keysAndValues[i + 1]);
        }
        byte[] bytes = (JSON.toJSONString(line) + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (Lines.class) {
            System.out.write(bytes, 0, bytes.length);
            System.out.flush();
        }
    }

    static String sha256(byte[] data) throws Exception {
        StringBuilder hex = new StringBuilder();
        for (byte b : MessageDigest.getInstance("SHA-256").digest(data)) {
            hex.append(String.format("%02x", b));
        }
        return hex.toString();
    }
}
