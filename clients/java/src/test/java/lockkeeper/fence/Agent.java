package lockkeeper.fence;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.reflect.Proxy;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.sql.DataSource;

/**
 * Writes under a fence, for jepsen/locklab/fences: one line of input, KIND RESOURCE TOKEN, with the
 * resource in base64, is one write; the answer is ok, stale NEWEST, invalid, damaged or error TEXT. The
 * arguments are KIND=PLACE.
 */
public final class Agent {
    private interface Writer {
        void write(String resource, long token) throws Exception;
    }

    private Agent() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> places = new HashMap<>();
        for (String arg : args) {
            int at = arg.indexOf('=');
            places.put(arg.substring(0, at), arg.substring(at + 1));
        }
        Map<String, Writer> writers = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (!writers.containsKey(words[0])) {
                writers.put(words[0], open(words[0], places.get(words[0])));
            }
            String resource = new String(Base64.getDecoder().decode(words[1]), StandardCharsets.UTF_8);
            System.out.println(answer(writers.get(words[0]), resource, Long.parseLong(words[2])));
            System.out.flush();
        }
    }

    private static String answer(Writer writer, String resource, long token) {
        try {
            writer.write(resource, token);
            return "ok";
        } catch (StaleException e) {
            return "stale " + e.newest;
        } catch (DamagedException e) {
            return "damaged";
        } catch (IllegalArgumentException e) {
            return "invalid";
        } catch (Exception e) {
            return "error " + e.toString().replace('\n', ' ');
        }
    }

    private static Writer open(String kind, String place) throws IOException {
        switch (kind) {
            case "file":
                FileFence file = new FileFence(Paths.get(place));
                Path log = Paths.get(place + ".log");
                return (resource, token) -> file.run(resource, token, () -> Files.write(log, (token + "\n").getBytes(
                        StandardCharsets.UTF_8), StandardOpenOption.CREATE, StandardOpenOption.APPEND));
            case "sqlite":
                return table("jdbc:sqlite:" + place + "?busy_timeout=60000");
            case "postgresql":
                return table("jdbc:postgresql://" + place + "/postgres?user=postgres");
            case "mariadb":
                return table("jdbc:mariadb://" + place + "/test?user=root");
            case "redis":
                RedisFence redis = new RedisFence((script, keys, args) -> eval(place, script, keys, args));
                return (resource, token) -> redis.run(resource, token, "RPUSH", Collections.singletonList("log"), "" + token);
            case "etcd":
                EtcdFence etcd = new EtcdFence("http://" + place);
                return (resource, token) -> etcd.put(resource, token, Collections.singletonMap("log", "" + token));
            default:
                ObjectsFence objects = new ObjectsFence(new HttpStore(place, Http.PLAIN), "java-");
                return (resource, token) -> objects.update(resource, token, old -> ((old == null ? "" : new String(old,
                        StandardCharsets.UTF_8)) + token + "\n").getBytes(StandardCharsets.UTF_8));
        }
    }

    /** A DataSource whose connections come from DriverManager. */
    public static DataSource source(String url) {
        return (DataSource) Proxy.newProxyInstance(Agent.class.getClassLoader(), new Class<?>[] {DataSource.class},
                (proxy, method, args) -> DriverManager.getConnection(url));
    }

    private static Writer table(String url) {
        TableFence table = new TableFence(source(url));
        return (resource, token) -> table.run(resource, token, connection -> {
            try (Statement s = connection.createStatement()) {
                long seen;
                try (ResultSet count = s.executeQuery("SELECT COUNT(*) FROM log")) {
                    count.next();
                    seen = count.getLong(1);
                }
                s.executeUpdate("INSERT INTO log (seen, token) VALUES (" + seen + ", " + token + ")");
            }
        });
    }

    /** EVAL in Redis' protocol: a client of a few lines, since Debian has none in Java. */
    public static Object eval(String place, String script, List<String> keys, List<String> args) {
        List<String> words = new ArrayList<>();
        Collections.addAll(words, "EVAL", script, "" + keys.size());
        words.addAll(keys);
        words.addAll(args);
        int colon = place.lastIndexOf(':');
        try (Socket socket = new Socket(place.substring(0, colon), Integer.parseInt(place.substring(colon + 1)))) {
            OutputStream out = socket.getOutputStream();
            out.write(("*" + words.size() + "\r\n").getBytes(StandardCharsets.UTF_8));
            for (String word : words) {
                byte[] b = word.getBytes(StandardCharsets.UTF_8);
                out.write(("$" + b.length + "\r\n").getBytes(StandardCharsets.UTF_8));
                out.write(b);
                out.write("\r\n".getBytes(StandardCharsets.UTF_8));
            }
            return reply(socket.getInputStream());
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Object reply(InputStream in) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int b = in.read(); b != '\n' && b >= 0; b = in.read()) {
            line.append((char) b);
        }
        String rest = line.substring(1).trim();
        switch (line.charAt(0)) {
            case ':':
                return Long.valueOf(rest);
            case '*':
                List<Object> list = new ArrayList<>();
                for (int i = Integer.parseInt(rest); i > 0; i--) {
                    list.add(reply(in));
                }
                return list;
            case '$':
                byte[] text = new byte[Integer.parseInt(rest) + 2];
                for (int n = 0; n < text.length;) {
                    n += in.read(text, n, text.length - n);
                }
                return new String(text, 0, text.length - 2, StandardCharsets.UTF_8);
            case '-':
                throw new IllegalStateException(rest);
            default:
                return rest;
        }
    }
}
