import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.DataNode;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.ZKDatabase;
import org.apache.zookeeper.server.ZooKeeperServer;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/**
 * Says what a real ZooKeeper has in memory after a start on a directory. Each line of standard input
 * is the settings extendedTypesEnabled and closeSessionTxn.enabled of the server that wrote it, and a
 * data directory, which is changed as a start changes it. The answer is a line for each session and each node, and a line with a dot.
 */
public final class Loaded {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", 3);
            System.setProperty("zookeeper.extendedTypesEnabled", words[0]);
            ZooKeeperServer.setCloseSessionTxnEnabled(Boolean.parseBoolean(words[1]));
            try {
                show(new File(words[2]));
            } catch (Exception e) {
                OUT.println("failed " + e.toString().replace('\n', ' '));
            }
            OUT.println(".");
            OUT.flush();
        }
    }

    private static void show(File dir) throws Exception {
        FileTxnSnapLog files = new FileTxnSnapLog(dir, dir);
        ZooKeeperServer server = new ZooKeeperServer(files, 2000, "");
        server.startdata();
        ZKDatabase db = server.getZKDatabase();
        OUT.println("zxid 0x" + Long.toHexString(db.getDataTreeLastProcessedZxid()));
        for (Map.Entry<Long, Integer> session : db.getSessionWithTimeOuts().entrySet()) {
            OUT.println("session 0x" + Long.toHexString(session.getKey()) + " " + session.getValue());
        }
        node(db, db.getDataTree(), "/");
        files.close();
    }

    private static void node(ZKDatabase db, DataTree tree, String path) {
        DataNode node = tree.getNode(path);
        Stat s = new Stat();
        node.copyStat(s);
        StringBuilder b = new StringBuilder("node ").append(hex(path.getBytes(StandardCharsets.UTF_8)));
        b.append(node.getData() == null ? " null" : " x" + hex(node.getData()));
        for (long v : new long[] {s.getCzxid(), s.getMzxid(), s.getCtime(), s.getMtime(), s.getVersion(), s.getCversion(),
            s.getAversion(), s.getEphemeralOwner(), s.getDataLength(), s.getNumChildren(), s.getPzxid()}) {
            b.append(' ').append(v);
        }
        List<ACL> acl = db.aclForNode(node);
        for (ACL a : acl == null ? Collections.<ACL>emptyList() : acl) {
            b.append(' ').append(a.getPerms()).append(':').append(a.getId().getScheme()).append(':').append(a.getId().getId());
        }
        OUT.println(b);
        for (String child : node.getChildren()) {
            node(db, tree, path.equals("/") ? "/" + child : path + "/" + child);
        }
    }

    private static String hex(byte[] bytes) {
        StringBuilder b = new StringBuilder();
        for (byte x : bytes) {
            b.append(String.format("%02x", x));
        }
        return b.toString();
    }
}
