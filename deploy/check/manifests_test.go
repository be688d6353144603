package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"lockkeeper/server/zoocfg"
)

// tree is a part of a YAML document; a path that is not there has the value nil.
type tree struct{ v any }

func (t tree) at(path ...any) tree {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := t.v.(map[string]any)
			t.v = m[p]
		case int:
			l, _ := t.v.([]any)
			if p >= len(l) {
				return tree{}
			}
			t.v = l[p]
		}
	}
	return t
}

func (t tree) String() string { return fmt.Sprint(t.v) }

func (t tree) list() (all []tree) {
	l, _ := t.v.([]any)
	for _, v := range l {
		all = append(all, tree{v})
	}
	return all
}

// names are the values at a path below each element of a list.
func (t tree) names(path ...any) (all []string) {
	for _, e := range t.list() {
		all = append(all, e.at(path...).String())
	}
	return all
}

func documents(t *testing.T, text string) (all []tree) {
	t.Helper()
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var v any
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tree{v})
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// load loads a zoo.cfg of a manifest as member 1 of it would, with the data in another place. It is
// to have neither faults nor warnings.
func load(t *testing.T, text string) zoocfg.Config {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	text = strings.Replace(text, "dataDir=/data\n", "dataDir="+dir+"\n", 1)
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o644), os.WriteFile(filepath.Join(dir, "myid"), []byte("1"), 0o644)); err != nil {
		t.Fatal(err)
	}
	cfg, err := zoocfg.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range cfg.Notices() {
		if n.Level >= slog.LevelWarn {
			t.Errorf("%v", n)
		}
	}
	if cfg.Metrics.Addr == "" || cfg.HTTP.Addr == "" {
		t.Errorf("metrics at %q, HTTP at %q", cfg.Metrics.Addr, cfg.HTTP.Addr)
	}
	return cfg
}

func setting(text, key string) string {
	_, rest, _ := strings.Cut("\n"+text, "\n"+key+"=")
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestCompose: each member of the zoo.cfg is a service, with a number and ports of its own, and
// Prometheus and Grafana find the files that they read.
func TestCompose(t *testing.T) {
	c := documents(t, read(t, "../compose.yaml"))[0]
	text := read(t, "../compose/zoo.cfg")
	cfg := load(t, text)
	var targets []string
	for i, m := range cfg.Cluster.Members {
		s := c.at("services", m.Host)
		want(t, m.Host+": command", s.at("command"), []string{"serve", "-myid", fmt.Sprint(i + 1), "-drain", "20s", "/etc/lockkeeper/zoo.cfg"})
		want(t, m.Host+": clients", s.at("ports", 0), fmt.Sprintf("127.0.0.1:%d:%s", 2181+i, setting(text, "clientPort")))
		want(t, m.Host+": console", s.at("ports", 1), fmt.Sprintf("127.0.0.1:%d:%s", 8081+i, setting(text, "admin.serverPort")))
		targets = append(targets, m.Host+":"+setting(text, "metricsProvider.httpPort"))
	}
	p := documents(t, read(t, "../compose/prometheus.yml"))[0]
	want(t, "targets", p.at("scrape_configs", 0, "static_configs", 0, "targets"), targets)
	source := documents(t, read(t, "../compose/grafana/datasources/prometheus.yml"))[0].at("datasources", 0)
	want(t, "the data source", source.at("url"), "http://prometheus:9090")
	docs := documents(t, read(t, "../compose/grafana/dashboards/lockkeeper.yml"))[0].at("providers", 0, "options", "path").String()
	for _, service := range []string{"prometheus", "grafana"} {
		if !slices.Contains(c.at("services", service, "volumes").names(), "../docs:"+docs+":ro") {
			t.Errorf("%s does not see docs/ at %s", service, docs)
		}
	}
	checkMounts(t, c, p, docs)
	checkDashboard(t, docs, source)
}

// checkMounts: the configurations are where Prometheus and Grafana look for them, and the rules are
// there, each file that the pattern finds.
func checkMounts(t *testing.T, compose, prometheus tree, docs string) {
	t.Helper()
	if !slices.Contains(compose.at("services", "prometheus", "volumes").names(), "./compose/prometheus.yml:/etc/prometheus/prometheus.yml:ro") {
		t.Error("Prometheus does not see prometheus.yml where its image looks for it")
	}
	if !slices.Contains(compose.at("services", "grafana", "volumes").names(), "./compose/grafana:/etc/grafana/provisioning:ro") {
		t.Error("Grafana does not see its provisioning where its image looks for it")
	}
	pattern, ok := strings.CutPrefix(prometheus.at("rule_files", 0).String(), docs+"/")
	rules, err := filepath.Glob("../../docs/" + pattern)
	if !ok || err != nil || !slices.Contains(rules, "../../docs/alerts.yml") {
		t.Errorf("the rules are %v, in %v (%v)", prometheus.at("rule_files", 0), rules, err)
	}
	for _, f := range rules {
		for _, g := range documents(t, read(t, f))[0].at("groups").list() {
			want(t, f+": a group's rules", len(g.at("rules").list()) > 0, true)
		}
	}
}

// checkDashboard: every JSON file that Grafana finds below its path is a dashboard with panels that
// read the provisioned data source, by its uid or by a variable that Grafana itself sets to a data
// source of that type. It fills in no __inputs for a file that is provisioned.
func checkDashboard(t *testing.T, docs string, source tree) {
	t.Helper()
	found := 0
	err := filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".json" {
			return err
		}
		found++
		var v any
		if err := json.Unmarshal([]byte(read(t, path)), &v); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		board := tree{v}
		uids := []string{source.at("uid").String()}
		for _, variable := range board.at("templating", "list").list() {
			if variable.at("type").String() == "datasource" && variable.at("query").String() == source.at("type").String() {
				uids = append(uids, "${"+variable.at("name").String()+"}")
			}
		}
		want(t, path+": __inputs", board.at("__inputs").v == nil, true)
		for _, p := range board.at("panels").list() {
			for _, reader := range append(p.at("targets").list(), p) {
				if uid := reader.at("datasource", "uid").String(); !slices.Contains(uids, uid) {
					t.Errorf("%s: %v reads the data source %s, and there are %v", path, p.at("title"), uid, uids)
				}
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d dashboards at %s: %v", found, docs, err)
	}
}

// TestDockerfile: the image is built with the Go of the module.
func TestDockerfile(t *testing.T) {
	mod, _, _ := strings.Cut(read(t, "../../go.mod"), "\n\nrequire")
	_, goVersion, _ := strings.Cut(mod, "\ngo ")
	major, _, _ := strings.Cut(strings.TrimPrefix(goVersion, "1."), ".")
	want(t, "the Go of the image", strings.Contains(read(t, "../Dockerfile"), "FROM golang:1."+strings.TrimSpace(major)+" AS build"), true)
}

// TestPrometheusConfig: Prometheus takes its configuration.
func TestPrometheusConfig(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI needs promtool (apt-get install prometheus)")
		}
		t.Skip("needs promtool (apt-get install prometheus)")
	}
	if out, err := exec.Command(tool, "check", "config", "../compose/prometheus.yml").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
