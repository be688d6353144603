package lockkeeper.fence;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * Remembers in a key of a Redis server, and executes the write in the script that checks the token. The
 * key is the prefix and the resource's name; Go's fence.Redis says how durable that is.
 */
public final class RedisFence {
    /** Executes a script with EVAL. A method of Jedis fits: jedis::eval. */
    @FunctionalInterface
    public interface Eval {
        /** Returns the reply: a Number, a String or byte[], a List of replies, or null. */
        Object eval(String script, List<String> keys, List<String> args);
    }

    // The same text in all languages; recipes/fence/redis.go has the reasons.
    private static final String SCRIPT = "local newest, token = redis.call('GET', KEYS[1]), ARGV[1]\n"
            + "if newest then\n"
            + "  if not string.match(newest, '^[1-9]%d*$') or #newest > 19 then return {-1, newest} end\n"
            + "  if #newest > #token or (#newest == #token and newest > token) then return {0, newest} end\n"
            + "end\n"
            + "if newest ~= token then redis.call('SET', KEYS[1], token) end\n"
            + "if ARGV[2] == '' then return {1} end\n"
            + "local command = {ARGV[2]}\n"
            + "for i = 2, #KEYS do command[#command + 1] = KEYS[i] end\n"
            + "for i = 3, #ARGV do command[#command + 1] = ARGV[i] end\n"
            + "return {1, redis.call(unpack(command))}\n";

    private final Eval eval;
    private final String prefix;

    /** A fence with the prefix "fence:". */
    public RedisFence(Eval eval) {
        this(eval, "fence:");
    }

    /** A fence with that prefix of its keys. */
    public RedisFence(Eval eval, String prefix) {
        this.eval = eval;
        this.prefix = prefix;
    }

    /** Accepts a token or refuses it. A holder that reads before it writes begins with it. */
    public void check(String resource, long token) throws IOException {
        run(resource, token, "", Collections.emptyList());
    }

    /**
     * Executes a command if the token is accepted, and returns its reply: command, keys and args in this
     * order, as run("account", token, "SET", asList("balance"), "10").
     */
    public Object run(String resource, long token, String command, List<String> keys, String... args) throws IOException {
        Names.check(resource, token, 0);
        List<String> allKeys = new ArrayList<>();
        allKeys.add(prefix + resource);
        allKeys.addAll(keys);
        List<String> allArgs = new ArrayList<>();
        allArgs.add(Long.toString(token));
        allArgs.add(command);
        Collections.addAll(allArgs, args);
        Object answer = eval.eval(SCRIPT, allKeys, allArgs);
        if (!(answer instanceof List) || ((List<?>) answer).isEmpty()) {
            throw new IOException("redis: an answer that the script does not give: " + answer);
        }
        List<?> list = (List<?>) answer;
        if (text(list.get(0)).equals("1")) {
            return list.size() > 1 ? list.get(1) : null;
        }
        throw Names.refusal(resource, token, text(list.get(1)), prefix + resource);
    }

    private static String text(Object value) {
        return value instanceof byte[] ? new String((byte[]) value, StandardCharsets.UTF_8) : String.valueOf(value);
    }
}
