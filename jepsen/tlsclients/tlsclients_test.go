package tlsclients

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/testcert"
	"lockkeeper/jepsen"
)

const (
	patience = 2 * time.Minute
	python   = "/usr/bin/python3" // for which Debian has kazoo
)

var tools *jepsen.Toolbox

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(jepsen.Main(m, &tools, jepsen.Race))
}

// lab is a directory of certificates. In NAME.all.pem a certificate has its key beside it, as
// ZooKeeper reads it.
type lab struct {
	*testing.T
	ctx context.Context
	dir string
	ca  *testcert.CA
}

func newLab(t *testing.T) *lab {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	l := &lab{T: t, ctx: ctx, dir: t.TempDir(), ca: testcert.NewCA(t, "authority")}
	l.issue("server", nil)
	return l
}

// issue issues a certificate; without a subject its holder is CN=name.
func (l *lab) issue(name string, subject []byte) testcert.Pair {
	l.Helper()
	pair := l.ca.Issue(l, testcert.Request{Subject: pkix.Name{CommonName: name}, RawSubject: subject, Hosts: []string{"localhost", "127.0.0.1"}})
	pair.Write(l, l.dir, name)
	testcert.Write(l, filepath.Join(l.dir, name+".all.pem"), slices.Concat(pair.KeyPEM, pair.PEM))
	testcert.Write(l, filepath.Join(l.dir, name+".ca.pem"), pair.Authority.PEM)
	return pair
}

// zooKeepers are ZooKeeper's keys for a port for both.
func (l *lab) zooKeepers() []string {
	return []string{"client.portUnification=true", "4lw.commands.whitelist=*",
		"authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
		"ssl.keyStore.location=" + filepath.Join(l.dir, "server.all.pem"),
		"ssl.trustStore.location=" + filepath.Join(l.dir, "server.ca.pem")}
}

// ours are lockkeeper's.
func (l *lab) ours() []string {
	at := func(suffix string) string { return filepath.Join(l.dir, "server"+suffix) }
	return []string{"client.portUnification=true", "4lw.commands.whitelist=*",
		"tls.cert=" + at(".pem"), "tls.key=" + at(".key"), "tls.ca=" + at(".ca")}
}

func (l *lab) start(target jepsen.Target, members int, extra []string) *jepsen.Cluster {
	l.Helper()
	c, err := jepsen.StartCluster(l.ctx, jepsen.ClusterConfig{Target: target, Members: members, Dir: l.TempDir(), Extra: extra})
	if err == nil {
		l.Cleanup(func() {
			if err := c.Close(); err != nil {
				l.Error(err)
			}
			if l.Failed() {
				l.Log(c.Logs())
			}
		})
		err = c.AwaitServing(l.ctx)
	}
	if err != nil {
		l.Fatal(err)
	}
	return c
}

// java runs one of the programs in Debian's jars with TLS, as the holder of a certificate.
func (l *lab) java(name, program string, args ...string) *exec.Cmd {
	l.Helper()
	jars, err := filepath.Glob("/usr/share/java/netty-*.jar")
	if err != nil {
		l.Fatal(err)
	}
	for _, jar := range []string{"zookeeper", "zookeeper-jute", "slf4j-nop", "curator-recipes", "curator-framework", "curator-client", "guava"} {
		file := filepath.Join("/usr/share/java", jar+".jar")
		if _, err := os.Stat(file); err != nil {
			jepsen.Need(l, fmt.Errorf("%s: %w (apt-get install zookeeper libcurator-recipes-java)", file, jepsen.ErrMissing))
		}
		jars = append(jars, file)
	}
	flags := []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-cp", strings.Join(jars, ":"),
		"-Dzookeeper.client.secure=true", "-Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
		"-Dzookeeper.ssl.keyStore.location=" + filepath.Join(l.dir, name+".all.pem"),
		"-Dzookeeper.ssl.trustStore.location=" + filepath.Join(l.dir, name+".ca.pem")}
	return exec.CommandContext(l.ctx, "java", slices.Concat(flags, []string{program}, args)...)
}

func (l *lab) zkCli(name, server string, commands ...string) string {
	l.Helper()
	cmd := l.java(name, "org.apache.zookeeper.ZooKeeperMain", "-server", server)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.Errorf("zkCli: %v\n%s", err, out)
	}
	return string(out)
}

// TestClientsOverTLS: unmodified clients work with locks over TLS, and keep them while certificates
// change.
func TestClientsOverTLS(t *testing.T) {
	l := newLab(t)
	lockkeeper, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	cluster := l.start(lockkeeper, 3, l.ours())
	servers := cluster.Servers()
	first, _, _ := strings.Cut(servers, ",")
	for _, name := range []string{"kazoo", "java", "go"} {
		l.issue(name, nil)
	}

	if err := exec.Command(python, "-c", "import kazoo").Run(); err != nil {
		jepsen.Need(t, fmt.Errorf("kazoo: %w (apt-get install python3-kazoo)", jepsen.ErrMissing))
	}
	holder := exec.CommandContext(l.ctx, python, "testdata/holder.py", servers, l.dir)
	holder.Stderr = os.Stderr
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(stdout)
	line := func() string {
		t.Helper()
		text, err := said.ReadString('\n')
		if err != nil {
			t.Fatalf("kazoo says %q, %v", text, err)
		}
		return strings.TrimSpace(text)
	}
	if got := line(); got != "locked" {
		t.Fatalf("kazoo says %q", got)
	}

	next := l.issue("server", nil)
	for _, server := range strings.Split(servers, ",") {
		l.awaitCertificate(server, next.Cert)
	}
	l.goZookeeper(servers)
	out := l.zkCli("java", first, "create /zkcli x", "whoami", "get /zkcli", "ls /lock")
	for _, want := range []string{"Created /zkcli", "x509: CN=java", "__lock__"} {
		if !strings.Contains(out, want) {
			t.Errorf("zkCli does not say %q:\n%s", want, out)
		}
	}
	if out, err := l.java("java", "testdata/Locker.java", servers).CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "released\n") {
		t.Errorf("Curator: %v\n%s", err, out)
	}

	_, _ = io.WriteString(stdin, "\n")
	if got := line(); got != "states CONNECTED" {
		t.Errorf("kazoo's connection went through %s", got)
	}
	if err := holder.Wait(); err != nil {
		t.Error(err)
	}
}

// client is the configuration of a client in Go.
func (l *lab) client(name string) *tls.Config {
	l.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(l.dir, name+".pem"), filepath.Join(l.dir, name+".key"))
	if err != nil {
		l.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(l.ca.Cert)
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "localhost"}
}

// awaitCertificate waits until a server shows a certificate.
func (l *lab) awaitCertificate(server string, want *x509.Certificate) {
	l.Helper()
	for {
		conn, err := (&tls.Dialer{Config: l.client("go")}).DialContext(l.ctx, "tcp", server)
		if err != nil {
			l.Fatal(err)
		}
		shown := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
		_ = conn.Close()
		if shown.Equal(want) {
			return
		}
		time.Sleep(50 * time.Millisecond) // the files are looked at once a second
	}
}

func (l *lab) goZookeeper(servers string) {
	l.Helper()
	config := l.client("go")
	dial := func(network, addr string, timeout time.Duration) (net.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, addr, config)
	}
	conn, _, err := zk.Connect(strings.Split(servers, ","), 10*time.Second, zk.WithDialer(dial), zk.WithLogInfo(false))
	if err != nil {
		l.Fatal(err)
	}
	defer conn.Close()
	lock := zk.NewLock(conn, "/go", zk.AuthACL(zk.PermAll))
	if err := lock.Lock(); err != nil {
		l.Fatal(err)
	}
	acl, _, err := conn.GetACL("/go")
	if err != nil || len(acl) != 1 || acl[0].Scheme != "x509" || acl[0].ID != "CN=go" {
		l.Errorf("go-zookeeper's node has the ACL %v, %v", acl, err)
	}
	if err := lock.Unlock(); err != nil {
		l.Error(err)
	}
}

var whoamiLine = regexp.MustCompile(`(?m)^x509: .*$`)

// TestIdentitiesAsInZooKeeper: the holder of a certificate has the same identity in both, with the
// same configuration file.
func TestIdentitiesAsInZooKeeper(t *testing.T) {
	l := newLab(t)
	zookeeper, err := jepsen.ZooKeeper("-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory")
	jepsen.Need(t, err)
	lockkeeper, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	attribute := func(oid asn1.ObjectIdentifier, text string) pkix.RelativeDistinguishedNameSET {
		return pkix.RelativeDistinguishedNameSET{{Type: oid, Value: text}}
	}
	subject, err := asn1.Marshal(pkix.RDNSequence{
		attribute(asn1.ObjectIdentifier{2, 5, 4, 6}, "DE"), attribute(asn1.ObjectIdentifier{2, 5, 4, 8}, "Bayern"),
		attribute(asn1.ObjectIdentifier{2, 5, 4, 10}, `Müller, "Söhne" + Co`), attribute(asn1.ObjectIdentifier{2, 5, 4, 11}, "#1 = Lab "),
		attribute(asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 25}, "example"),
		attribute(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 1}, "bob@example.org"), attribute(asn1.ObjectIdentifier{2, 5, 4, 3}, "bob"),
	})
	if err != nil {
		t.Fatal(err)
	}
	l.issue("bob", subject)
	said := map[string]string{}
	for _, target := range []jepsen.Target{lockkeeper, zookeeper} {
		cluster := l.start(target, 1, l.zooKeepers())
		out := l.zkCli("bob", cluster.Servers(), "whoami", "create /own x auth::cdrwa", "getAcl /own")
		said[target.Name] = strings.Join(append(whoamiLine.FindAllString(out, -1), aclOf(out)...), "\n")
		if !strings.Contains(said[target.Name], "CN=bob") {
			t.Errorf("%s: nothing about bob:\n%s", target.Name, out)
		}
	}
	if said["lockkeeper"] != said["zookeeper"] {
		t.Errorf("lockkeeper says\n%s\nZooKeeper says\n%s", said["lockkeeper"], said["zookeeper"])
	}
	t.Log(said["zookeeper"])
}

// aclOf are the identities that getAcl prints.
func aclOf(out string) []string { return regexp.MustCompile(`(?m)^'x509,.*$`).FindAllString(out, -1) }

// TestFilesOfCerts: unmodified clients and servers, ZooKeeper among them, take the files that
// 'lockkeeper certs' makes as they are, with the lines that it prints.
func TestFilesOfCerts(t *testing.T) {
	l := newLab(t)
	zookeeper, err := jepsen.ZooKeeper("-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory")
	jepsen.Need(t, err)
	lockkeeper, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	certs := filepath.Join(l.dir, "certs")
	issue := func(args ...string) (lines []string) {
		t.Helper()
		out, err := lockkeeper.Tool(append([]string{"certs"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("certs %v: %v\n%s", args, err, out)
		}
		for line := range strings.Lines(string(out)) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "secureClientPort=") {
				lines = append(lines, line)
			}
		}
		return append(lines, "client.portUnification=true")
	}
	lines := map[string][]string{"lockkeeper": issue("init", "-host", "localhost,127.0.0.1", certs),
		"zookeeper": issue("member", "-zookeeper", "-host", "localhost,127.0.0.1", certs, "zookeeper")}
	issue("client", certs, "app")
	pair, ca := filepath.Join(certs, "app", "tls.pem"), filepath.Join(certs, "app", "ca.pem")
	for file, name := range map[string]string{pair: "app.all.pem", ca: "app.ca.pem"} {
		if err := os.Symlink(file, filepath.Join(l.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	const kazoo = `import sys
from kazoo.client import KazooClient
c = KazooClient(sys.argv[1], use_ssl=True, ca=sys.argv[2], certfile=sys.argv[3], keyfile=sys.argv[3])
c.start(30)
print(c.create("/kazoo"))
c.stop()`
	for _, target := range []jepsen.Target{lockkeeper, zookeeper} {
		servers := l.start(target, 1, lines[target.Name]).Servers()
		if out, err := exec.CommandContext(l.ctx, python, "-c", kazoo, servers, ca, pair).CombinedOutput(); err != nil || string(out) != "/kazoo\n" {
			t.Errorf("%s: kazoo: %v\n%s", target.Name, err, out)
		}
		if out := l.zkCli("app", servers, "whoami", "ls /"); !strings.Contains(out, "x509: CN=app") || !strings.Contains(out, "kazoo") {
			t.Errorf("%s: zkCli does not say who it is:\n%s", target.Name, out)
		}
	}
}
