package server

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/testcert"
	"lockkeeper/server/ops/metrics"
	"lockkeeper/wire"
)

var updateMetrics = flag.Bool("update", false, "write docs/metrics.md anew")

// usualMetrics are ZooKeeper's metrics that dashboards and alert rules use most.
const usualMetrics = `znode_count watch_count ephemerals_count approximate_data_size num_alive_connections outstanding_requests
	avg_latency min_latency max_latency packets_received packets_sent open_file_descriptor_count max_file_descriptor_count
	global_sessions uptime quorum_size learners synced_followers synced_observers pending_syncs leader_uptime
	jvm_memory_bytes_used jvm_memory_bytes_max
	election_time fsynctime snapshottime readlatency updatelatency propagation_latency proposal_latency quorum_ack_latency
	proposal_count commit_count snap_count diff_count looking_count connection_request_count connection_rejected
	connection_drop_count stale_sessions_expired bytes_received_count response_bytes watch_bytes
	prep_processor_queue_size sync_processor_queue_size unrecoverable_error_count digest_mismatches_count`

// everyMetric has the metrics of a member that stands alone with all ports, and of the leader of a
// cluster with a peer secret.
func everyMetric(t *testing.T) (all metrics.List) {
	t.Helper()
	dir := t.TempDir()
	ca := testcert.NewCA(t, "members")
	ca.Issue(t, testcert.Request{Hosts: []string{"127.0.0.1"}}).Write(t, dir, "tls")
	writeFile(t, filepath.Join(dir, "audit.log"), "")
	secret := filepath.Join(dir, "secret")
	writeSecret(t, secret, oldSecret)
	tls := fmt.Sprintf("tls.cert=%s\ntls.key=%s\ntls.ca=%s\n", filepath.Join(dir, "tls.pem"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "tls.ca"))
	members, _ := startCluster(t, "peer.secretFile="+secret+"\nsslQuorum=true\nclient.portUnification=true\nssl.clientAuth=none\naudit.enable=true\n"+
		"audit.file="+filepath.Join(dir, "audit.log")+"\nadmin.serverAddress=127.0.0.1\nadmin.serverPort=FREE_PORT\n"+tls)
	leader := awaitLeader(t, members)
	queueOf(t, leader.ClientAddr().String(), "/lock", 2) // one holds it, one waits
	known := map[string]bool{}
	for _, m := range leader.surfaces.prometheusMetrics() {
		if !known[m.Name] {
			known[m.Name] = true
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b metrics.Metric) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// queueOf opens n sessions, which enter the queue of a lock one after the other.
func queueOf(t *testing.T, addr, lock string, n int) (clients []*rawClient) {
	t.Helper()
	for i := range n {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(patience))
		c := &rawClient{Conn: nc, t: t}
		c.connect(10 * time.Second)
		if i == 0 {
			c.call(wire.OpCreate, create(lock, nil, wire.ModePersistent))
		}
		c.call(wire.OpCreate, create(lock+"/lock-", nil, wire.ModeEphemeralSequential))
		clients = append(clients, c)
	}
	return clients
}

// These are limits of console.LockMetrics.
const (
	contendedLocks = 10
	pathLabelBytes = 200
)

// TestLockMetrics: the locks that most wait for have metrics, and handoffs are timed.
func TestLockMetrics(t *testing.T) {
	s := startReal(t, allWords)
	addr := s.ClientAddr().String()
	values := func() map[string]float64 {
		w := httptest.NewRecorder()
		metrics.NewHandler(s.surfaces.prometheusMetrics, false).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		values := map[string]float64{}
		for line := range strings.Lines(w.Body.String()) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok {
				line = name + "}"
				values[line], _ = strconv.ParseFloat(value, 64)
			} else if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				values[name], _ = strconv.ParseFloat(value, 64)
			}
		}
		return values
	}
	clients := queueOf(t, addr, "/a", 2)
	for i := range contendedLocks + 3 { // more than have metrics, each with two who wait
		queueOf(t, addr, fmt.Sprintf("/%s%d", strings.Repeat("x", pathLabelBytes/2), i), 3)
	}
	long := strings.Repeat("y", pathLabelBytes)
	for _, end := range []string{"1", "2"} {
		queueOf(t, addr, "/"+long+end, 4)
	}
	got, n := values(), 0
	for name := range got {
		if strings.HasPrefix(name, "lockkeeper_lock_waiters{") {
			n++
		}
	}
	if n != contendedLocks-1 { // two of them have the same beginning
		t.Errorf("%d locks have metrics", n)
	}
	of := func(name string) float64 { return got[fmt.Sprintf("lockkeeper_%s{path=%q}", name, "/"+long[1:])] }
	if of("lock_waiters") != 3 || of("lock_longest_wait_seconds") > 60 {
		t.Errorf("of the longest path: %v waiters, %v s", of("lock_waiters"), of("lock_longest_wait_seconds"))
	}
	before := got["lockkeeper_lock_handoff_seconds_count"]
	clients[0].call(wire.OpDelete, &wire.DeleteRequest{Path: "/a/lock-0000000000", Version: -1})
	clients[1].call(wire.OpGetChildren, &wire.PathWatchRequest{Path: "/a"})
	if got := values()["lockkeeper_lock_handoff_seconds_count"]; got != before+1 {
		t.Errorf("%v handoffs", got-before)
	}
}

func awaitLeader(t *testing.T, members []*Server) (leader *Server) {
	t.Helper()
	await(t, "a leader", func() bool {
		for _, m := range members {
			if !m.Serving() {
				return false
			}
			if m.Status().Role == "leader" {
				leader = m
			}
		}
		return leader != nil
	})
	return leader
}

const metricsHead = `# Metrics

This page is for watching a cluster with Prometheus, and for acting on its alerts.

The four-letter word ` + "`mntr`" + ` and the command ` + "`monitor`" + ` of the HTTP port have all metrics but those
with labels. Prometheus finds them at ` + "`http://HOST:7000/metrics`" + ` with this line in zoo.cfg:

    metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider

[configuration.md](configuration.md) has the other keys, such as ` + "`metricsProvider.httpHost`" + `: every
host that reaches the port can read the metrics, and with them the paths of the locks that most wait
for, unless reading needs a login (` + "`admin.requireLogin`" + `, the default if clients have TLS or SASL).
Prometheus then needs ` + "`authorization: {type: digest, credentials: \"viewer:PASSWORD\"}`" + ` for the user
of ` + "`admin.viewerDigest`" + `. [grafana.json](grafana.json) is a dashboard, and
[alerts.yml](alerts.yml) has rules for Prometheus.

Metrics that ZooKeeper has too have its names and types: dashboards and rules for ZooKeeper work.
` + "`mntr`" + ` puts ` + "`zk_`" + ` in front of all names; in Prometheus lockkeeper's own begin with ` + "`lockkeeper_`" + `.
A summary has ` + "`_count`, `_sum`" + ` and quantiles in Prometheus. In ` + "`mntr`" + ` it has ` + "`zk_avg_`, `zk_min_`,\n`zk_max_`, `zk_cnt_`, `zk_sum_`" + `, and most have ` + "`zk_p50_`, `zk_p95_`, `zk_p99_`, `zk_p999_`" + `.
Quantiles are of the last five to ten minutes, if they are read that often; all else is
since the start, or since the four-letter word ` + "`srst`" + `.

A metric is there while the member has its subject: some are a leader's, some need TLS, the
audit log or a cluster. The port has ` + "`process_*` and `go_*`" + ` as well, unless
` + "`metricsProvider.exportJvmInfo=false`" + `.

This page is written by ` + "`go test ./server -run TestMetricsPage -update`" + `; a test fails when it is
stale.
`

// metricsPage is docs/metrics.md as it should be.
func metricsPage(t *testing.T, all metrics.List) []byte {
	var b bytes.Buffer
	b.WriteString(metricsHead)
	for _, own := range []bool{false, true} {
		title := "ZooKeeper's names"
		if own {
			title = "lockkeeper's own"
		}
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		for _, m := range all {
			if m.Own() == own {
				label := ""
				if m.Label != "" {
					label = "{" + m.Label + "}"
				}
				b.WriteString(wrapped(fmt.Sprintf("- `%s%s`, %v: %s.", m.PrometheusName(), label, m.Kind, m.Help)))
			}
		}
	}
	b.WriteString("\n## Alerts\n\nThe remedy for each rule of [alerts.yml](alerts.yml). ZooKeeper's rules have its names.\n\n")
	for _, a := range alertRules(t) {
		b.WriteString(wrapped(fmt.Sprintf("- **%s**: %s", a.name, a.todo)))
	}
	return b.Bytes()
}

// wrapped is an item of a list in lines of at most 100 columns.
func wrapped(item string) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(item) {
		if column > 0 && column+1+len(word) > 100 {
			b.WriteString("\n ")
			column = 1
		}
		if column > 0 {
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String() + "\n"
}

type alertRule struct{ name, expr, todo string }

const alertsFile = "../docs/alerts.yml"

// alertRules reads the rules in docs/alerts.yml, of which each value is a line in single quotes.
func alertRules(t *testing.T) (rules []alertRule) {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile(`(?s)- alert: '(.*?)'\n\s+expr: '(.*?)'\n.*?\n\s+description: '(.*?)'\n`)
	plain := strings.NewReplacer("''", "'")
	for _, m := range rule.FindAllStringSubmatch(string(text), -1) {
		rules = append(rules, alertRule{m[1], plain.Replace(m[2]), plain.Replace(m[3])})
	}
	if n := strings.Count(string(text), "- alert:"); n == 0 || n != len(rules) {
		t.Fatalf("%d of the %d rules in %s have an expression and a description", len(rules), n, alertsFile)
	}
	return rules
}

// TestMetricsPage: docs/metrics.md has every metric; those with a name of ZooKeeper's have its
// type, and those that are used most are there.
func TestMetricsPage(t *testing.T) {
	all := everyMetric(t)
	byName := map[string]metrics.Metric{}
	for _, m := range all {
		byName[m.Name] = m
		if m.Help == "" || strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s: the help line %q is to be there, and without a full stop", m.Name, m.Help)
		}
		if kind, ok := metrics.ZooKeeperKind(m.Name); ok && kind != m.Kind {
			t.Errorf("%s is a %v, in ZooKeeper a %v", m.Name, m.Kind, kind)
		}
	}
	for name := range strings.FieldsSeq(usualMetrics) {
		if m, ok := byName[name]; !ok || m.Own() {
			t.Errorf("%s is missing", name)
		}
	}
	const page = "../docs/metrics.md"
	want := metricsPage(t, all)
	if *updateMetrics {
		writeFile(t, page, string(want))
	}
	if got, err := os.ReadFile(page); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is stale: write it anew with 'go test ./server -run TestMetricsPage -update' (%v)", page, err)
	}
}

// TestMetricsAgainstZooKeeper: after the same traffic the metrics that count it are equal to a real
// ZooKeeper's.
func TestMetricsAgainstZooKeeper(t *testing.T) {
	zk := startZooKeeper(t)
	s := startReal(t, allWords)
	ours := s.ClientAddr().String()
	values := func(addr string) map[string]string { return mntrValues(t, askWord(t, addr, "mntr")) }
	// The connection of the word before may be counted for a moment longer.
	valuesWith := func(connections, addr string) (v map[string]string) {
		await(t, "the end of other connections", func() bool {
			v = values(addr)
			return v["zk_num_alive_connections"] == connections
		})
		return v
	}
	before := [2]map[string]string{valuesWith("1", zk), valuesWith("1", ours)}
	useBoth(t, zk, ours)
	for _, addr := range []string{zk, ours} { // a client that is watched, and goes without a word
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(patience))
		c := &rawClient{Conn: nc, t: t}
		c.connect(10 * time.Second)
		c.call(wire.OpCreate, create("/n", []byte("data"), 0))
		c.call(wire.OpSetData, &wire.SetDataRequest{Path: "/n", Data: []byte("more"), Version: -1})
		_ = nc.Close()
	}
	drops := func(v map[string]string) string { return v["zk_connection_drop_count"] }
	await(t, "a dropped connection", func() bool { return drops(values(zk)) != drops(before[0]) && drops(values(ours)) != drops(before[1]) })
	after := [2]map[string]string{valuesWith("2", zk), valuesWith("2", ours)}
	for key := range strings.FieldsSeq(`znode_count watch_count ephemerals_count outstanding_requests
		global_sessions connection_request_count connection_rejected connection_drop_count stale_sessions_expired
		cnt_readlatency cnt_updatelatency response_bytes watch_bytes digest_mismatches_count unrecoverable_error_count`) {
		var grown [2]int
		for i := range grown {
			from, ferr := strconv.Atoi(before[i]["zk_"+key])
			to, terr := strconv.Atoi(after[i]["zk_"+key])
			if err := errors.Join(ferr, terr); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			grown[i] = to - from
		}
		if grown[0] != grown[1] {
			t.Errorf("%s grows by %d in ZooKeeper and by %d here", key, grown[0], grown[1])
		}
	}
}
