package server

import (
	"bytes"
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/server/ops/metrics"
	"lockkeeper/session"
	"lockkeeper/wire"
)

// needProgram returns a program of Debian's package prometheus. Without it, and with -short, it
// skips the test.
func needProgram(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skipf("starts %s; not with -short", name)
	}
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("CI needs %s (apt-get install prometheus)", name)
	default:
		t.Skipf("no %s (apt-get install prometheus)", name)
	}
	return path
}

// prometheus is a real one.
type prometheus struct {
	t    *testing.T
	addr string
}

// scrapeJob has Prometheus read the metrics at these addresses. more are further lines.
func scrapeJob(name, more string, targets ...string) string {
	return fmt.Sprintf("- job_name: %s\n  static_configs:\n  - targets: [%s]\n%s", name, strings.Join(targets, ", "), more)
}

// startPrometheus has Prometheus do its jobs each half second.
func startPrometheus(t *testing.T, jobs ...string) *prometheus {
	t.Helper()
	program, dir := needProgram(t, "prometheus"), t.TempDir()
	rules, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "prometheus.yml")
	writeFile(t, file, fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 1s}\nrule_files: [%q]\n"+
		"scrape_configs:\n%s", rules, strings.Join(jobs, "")))
	p := &prometheus{t: t, addr: fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	cmd := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.addr)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
		if t.Failed() {
			t.Logf("Prometheus said:\n%s", log.String())
		}
	})
	await(t, "Prometheus", func() bool {
		resp, err := http.Get("http://" + p.addr + "/-/ready")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// get decodes the data of an answer of Prometheus' API.
func (p *prometheus) get(path string, query url.Values, data any) error {
	p.t.Helper()
	resp, err := http.Get("http://" + p.addr + "/api/v1/" + path + "?" + query.Encode())
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		p.t.Fatal(err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s", answer.Error)
	}
	return nil
}

type sample struct {
	Metric map[string]string
	Value  [2]any
}

// query evaluates an expression now.
func (p *prometheus) query(expr string) ([]sample, error) {
	var data struct{ Result []sample }
	err := p.get("query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}

// expect waits until an expression has a value that pleases. On a busy machine a reading may fail,
// and then there are no values for a moment.
func (p *prometheus) expect(expr string, pleases func([]sample) bool) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		list, err := p.query(expr)
		switch {
		case err == nil && pleases(list):
			return
		case err != nil || time.Now().After(deadline):
			p.t.Errorf("%s is %v (%v)", expr, list, err)
			return
		}
	}
}

// is returns a function for expect: there is one series, with that value.
func is(want float64) func([]sample) bool {
	return func(list []sample) bool {
		return len(list) == 1 && list[0].Value[1] == strconv.FormatFloat(want, 'f', -1, 64)
	}
}

func some(list []sample) bool { return len(list) > 0 }

// dashboard returns the expressions in docs/grafana.json.
func dashboard(t *testing.T) (exprs []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, panel := range d.Panels {
		if panel.Title == "" || len(panel.Targets) == 0 {
			t.Errorf("a panel %q with %d expressions", panel.Title, len(panel.Targets))
		}
		for _, target := range panel.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	return exprs
}

// TestAlerts: promtool takes the rules, and they fire when they should.
func TestAlerts(t *testing.T) {
	promtool, dir := needProgram(t, "promtool"), t.TempDir()
	for _, file := range []string{alertsFile, "testdata/alerts_test.yml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, filepath.Base(file)), string(text))
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestPrometheus has a real Prometheus read a cluster under traffic: the names that are used most
// are there with their types, values are right, and each expression of the dashboard has data.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	needProgram(t, "prometheus")
	members, _ := startCluster(t, "metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\n"+
		"metricsProvider.httpHost=127.0.0.1\nmetricsProvider.httpPort=FREE_PORT\n")
	leader := awaitLeader(t, members)
	var targets []string
	for _, m := range members {
		targets = append(targets, m.MetricsAddr().String())
	}
	p := startPrometheus(t, scrapeJob("lockkeeper", "", targets...))
	traffic := func(prefix string, updates int) {
		for _, m := range members {
			nc, err := net.Dial("tcp", m.ClientAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			_ = nc.SetDeadline(time.Now().Add(patience))
			c := &rawClient{Conn: nc, t: t}
			c.connect(4 * time.Second)
			for i := range updates {
				c.call(wire.OpCreate, create(fmt.Sprintf("/%s%d-%d", prefix, m.Status().ID, i), []byte("data"), 0))
				c.call(wire.OpGetData, &wire.PathWatchRequest{Path: "/" + prefix + strconv.Itoa(int(m.Status().ID)) + "-0", Watch: true})
			}
			_ = nc.Close()
		}
	}
	self := fmt.Sprintf("{instance=%q}", leader.MetricsAddr())
	traffic("a", 5)
	// Rates need two readings, with traffic in between.
	p.expect("znode_count"+self+" >= 15", some)
	traffic("b", 5)

	for _, m := range []struct {
		expr string
		want float64
	}{
		{"znode_count" + self, float64(30 + 5)},
		{"quorum_size" + self, 3}, {"synced_followers" + self, 2},
		{"count(connection_request_count)", 3}, {"sum(connection_request_count)", 6},
		{"sum(updatelatency_count)", 36}, // with six handshakes
		{"sum(lockkeeper_role == 1)", 3}, {`sum(lockkeeper_role{role="leader"})`, 1},
		{"sum(connection_drop_count)", 6},
		{"sum(proposal_count) >= bool 36", 1}, {"sum(commit_count) >= bool 36", 1},
		{"min(lockkeeper_fsync_seconds_count) >= bool 1", 1}, {"min(fsynctime_sum) > bool 0", 1},
		{"sum(readlatency_count) >= bool 30", 1}, {"sum(response_bytes) > bool 1000", 1},
		{"max(digest_mismatches_count)", 0}, {"min(looking_count) >= bool 1", 1},
		{`count(jvm_memory_bytes_max{area="heap"} > 0)`, 3},
	} {
		p.expect(m.expr, is(m.want))
	}
	queueOf(t, members[0].ClientAddr().String(), "/lock", 2) // one holds it, one waits
	p.expect(`max(lockkeeper_lock_waiters{path="/lock"})`, is(1))
	checkTypes(t, p)
	for _, expr := range dashboard(t) {
		p.expect(expr, some)
	}
	var groups struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	await(t, "the rules", func() bool {
		if err := p.get("rules", nil, &groups); err != nil {
			t.Fatal(err)
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				if r.Health == "unknown" {
					return false
				}
			}
		}
		return len(groups.Groups) > 0
	})
	rules := 0
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if rules++; r.Health != "ok" {
				t.Errorf("rule %q is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	if want := len(alertRules(t)); rules != want {
		t.Errorf("Prometheus evaluates %d rules of %d", rules, want)
	}
}

// checkTypes compares the types that Prometheus has read with ZooKeeper's, and every name in the
// rules and the dashboard with those that are there.
func checkTypes(t *testing.T, p *prometheus) {
	t.Helper()
	var metadata map[string][]struct{ Type, Help string }
	if err := p.get("metadata", url.Values{"limit": {"0"}}, &metadata); err != nil {
		t.Fatal(err)
	}
	if len(metadata) == 0 {
		if err := p.get("metadata", nil, &metadata); err != nil {
			t.Fatal(err)
		}
	}
	for name := range strings.FieldsSeq(usualMetrics) {
		kind, _ := metrics.ZooKeeperKind(name)
		want, _, _ := strings.Cut(kind.String(), " ")
		if got := metadata[name]; len(got) == 0 || got[0].Type != want || got[0].Help == "" {
			t.Errorf("%s: Prometheus has %v, want type %s", name, got, want)
		}
	}
	names := regexp.MustCompile(`[a-z_:]{6,}`)
	exprs := dashboard(t)
	for _, r := range alertRules(t) {
		exprs = append(exprs, r.expr)
	}
	// Words of expressions that are no metrics, and metrics of members with TLS.
	others := strings.Fields(`increase instance humanize histogram_quantile scalar group_right standalone leader quantile
		lockkeeper_tls_certificate_seconds_left lockkeeper_peer_tls_certificate_seconds_left`)
	for _, expr := range exprs {
		for _, name := range names.FindAllString(expr, -1) {
			base := name
			for _, suffix := range []string{"_sum", "_count", "_bucket"} {
				if _, ok := metadata[base]; !ok {
					base = strings.TrimSuffix(name, suffix)
				}
			}
			if _, ok := metadata[base]; !ok && !slices.Contains(others, name) {
				t.Errorf("%s: there is no metric %s", expr, name)
			}
		}
	}
}

// TestPrometheusLogsIn has a real Prometheus read a port for metrics that speaks TLS and asks for a
// login: with a password, with a certificate, and with neither.
func TestPrometheusLogsIn(t *testing.T) {
	t.Parallel()
	needProgram(t, "prometheus")
	l := newCertLab(t)
	l.issue("monitor")
	s := startReal(t, func(cfg *Config) {
		l.secure(cfg)
		cfg.Metrics.Addr, cfg.Metrics.TLS, cfg.Metrics.Login = "127.0.0.1:0", true, true
		cfg.HTTP.ViewerDigest = session.DigestID(sha1.New, "viewer:secret")
	})
	target := s.MetricsAddr().String()
	file := func(name string) string { return filepath.Join(l.dir, name) }
	tls := fmt.Sprintf("  scheme: https\n  tls_config: {ca_file: %q, server_name: localhost%%s}\n", file("server.ca"))
	p := startPrometheus(t,
		scrapeJob("password", fmt.Sprintf(tls, "")+"  authorization: {type: digest, credentials: \"viewer:secret\"}\n", target),
		scrapeJob("certificate", fmt.Sprintf(tls, fmt.Sprintf(", cert_file: %q, key_file: %q", file("monitor.pem"), file("monitor.key"))), target),
		scrapeJob("neither", fmt.Sprintf(tls, ""), target),
		scrapeJob("wrong", fmt.Sprintf(tls, "")+"  authorization: {type: digest, credentials: \"viewer:guess\"}\n", target),
		scrapeJob("clear", "  authorization: {type: digest, credentials: \"viewer:secret\"}\n", target))
	for job, up := range map[string]float64{"password": 1, "certificate": 1, "neither": 0, "wrong": 0, "clear": 0} {
		p.expect(fmt.Sprintf("up{job=%q}", job), is(up))
	}
	p.expect("count(znode_count)", is(2))
}

// TestMetricsPort: the port answers GET /metrics only, and has the bounds of the HTTP port.
func TestMetricsPort(t *testing.T) {
	s := startReal(t, func(c *Config) { c.Metrics.Addr = "127.0.0.1:0"; c.HTTP.ConnsPerAddr = 2 })
	base := "http://" + s.MetricsAddr().String()
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/": http.StatusNotFound, "/commands": http.StatusNotFound} {
		resp, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET %s: status %d, want %d", path, resp.StatusCode, want)
		}
		if path == "/metrics" && (!bytes.Contains(text, []byte("\n# TYPE znode_count gauge\nznode_count ")) ||
			!bytes.Contains(text, []byte(`lockkeeper_role{role="standalone"} 1`)) || !bytes.Contains(text, []byte("\nprocess_cpu_seconds_total "))) {
			t.Errorf("metrics:\n%s", text)
		}
	}
	for range 3 {
		nc, err := net.Dial("tcp", s.MetricsAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
	}
	await(t, "a connection that is displaced", func() bool {
		c, _ := s.surfaces.shared.Door.Counts()
		return c.Displaced > 0
	})
}
