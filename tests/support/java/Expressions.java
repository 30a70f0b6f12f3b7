import java.io.Reader;
import java.io.StringReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Evaluates SQL92 expressions by the broker's own classes, which are on the server's class path only. Each line of `file` is
 * an expression and properties, name and value in turn, all in base64 and separated by blanks. Each line of `result` is what
 * it comes to: refused, true, false, null or error, and "part" behind it if the parser hasn't used all of the expression.
 */
public final class Expressions {
    private static final String FILTER = "org.apache.rocketmq.filter.";

    private final Class<?> parser = Class.forName(FILTER + "parser.SelectorParser");
    private final Class<?> context = Class.forName(FILTER + "expression.EvaluationContext");
    private final Method parse = parser.getMethod("parse", String.class);
    private final Method evaluate = Class.forName(FILTER + "expression.Expression").getMethod("evaluate", context);

    private Expressions() throws Exception {
    }

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        Expressions expressions = new Expressions();
        List<String> results = new ArrayList<>();
        for (String line : Files.readAllLines(Paths.get(options.text("file")))) {
            List<String> texts = new ArrayList<>();
            for (String each : line.split(" ", -1)) {
                texts.add(new String(Base64.getDecoder().decode(each), StandardCharsets.UTF_8));
            }
            results.add(expressions.result(texts));
        }
        Files.write(Paths.get(options.text("result")), results);
        Lines.print("done");
        System.exit(0);
    }

    private String result(List<String> texts) throws Exception {
        Object expression;
        try {
            expression = parse.invoke(null, texts.get(0));
        } catch (InvocationTargetException e) {
            return "refused";
        }
        Map<String, String> properties = new HashMap<>();
        for (int i = 1; i + 1 < texts.size(); i += 2) {
            properties.put(texts.get(i), texts.get(i + 1));
        }
        Object message = Proxy.newProxyInstance(context.getClassLoader(), new Class<?>[] {context},
            (proxy, method, arguments) -> method.getName().equals("get") ? properties.get((String) arguments[0]) : null);
        String used = isWhole(texts.get(0)) ? "" : " part";
        try {
            return evaluate.invoke(expression, message) + used;
        } catch (InvocationTargetException e) {
            return "error" + used;
        }
    }

    /** Whether the parser comes to the end of the text. */
    private boolean isWhole(String text) throws Exception {
        try {
            Object fresh = parser.getConstructor(Reader.class).newInstance(new StringReader(text));
            parser.getMethod("JmsSelector").invoke(fresh);
            Object next = parser.getMethod("getNextToken").invoke(fresh);
            return next.getClass().getField("kind").getInt(next) == 0;
        } catch (InvocationTargetException e) {
            return false;
        }
    }
}
