import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.remoting.RPCHook;

/** Arguments of the form key=value. */
final class Options {
    private final Map<String, String> values = new LinkedHashMap<>();

    Options(String[] args) {
        for (String arg : args) {
            int equals = arg.indexOf('=');
            if (equals < 0) {
                throw new IllegalArgumentException("not key=value: " + arg);
            }
            values.put(arg.substring(0, equals), arg.substring(equals + 1));
        }
    }

    String text(String key) {
        String value = values.get(key);
        if (value == null) {
            throw new IllegalArgumentException("missing " + key + "=");
        }
        return value;
    }

    String text(String key, String otherwise) {
        return values.getOrDefault(key, otherwise);
    }

    int number(String key, int otherwise) {
        return values.containsKey(key) ? Integer.parseInt(values.get(key)) : otherwise;
    }

    /** What signs requests, or null without accessKey. Brokers' older libraries have it, and since 5.3 the client's. */
    RPCHook hook() throws ReflectiveOperationException {
        if (!values.containsKey("accessKey")) {
            return null;
        }
        String where = "org.apache.rocketmq.acl.common.";
        Class<?> credentials = Class.forName(where + "SessionCredentials");
        Object given = credentials.getConstructor(String.class, String.class).newInstance(text("accessKey"), text("secretKey"));
        return (RPCHook) Class.forName(where + "AclClientRPCHook").getConstructor(credentials).newInstance(given);
    }

    boolean flag(String key) {
        return Boolean.parseBoolean(values.get(key));
    }
}
