package deploy

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
	"time"

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

func (t tree) keys() (all []string) {
	m, _ := t.v.(map[string]any)
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
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
	if cfg.MetricsAddr == "" || cfg.HTTPAddr == "" {
		t.Errorf("metrics at %q, HTTP at %q", cfg.MetricsAddr, cfg.HTTPAddr)
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

// TestKubernetes: what the manifests name is there, and their ports, hosts and probes are those of
// zoo.cfg.
func TestKubernetes(t *testing.T) {
	kinds := map[string]tree{}
	for _, d := range documents(t, read(t, "kubernetes.yaml")) {
		kinds[d.at("kind").String()] = d
	}
	set, service := kinds["StatefulSet"], kinds["Service"]
	pod := set.at("spec", "template", "spec")
	member := pod.at("containers", 0)
	labels := set.at("spec", "template", "metadata", "labels")
	for what, selector := range map[string]tree{
		"StatefulSet": set.at("spec", "selector", "matchLabels"), "Service": service.at("spec", "selector"),
		"PodDisruptionBudget": kinds["PodDisruptionBudget"].at("spec", "selector", "matchLabels"),
		"NetworkPolicy":       kinds["NetworkPolicy"].at("spec", "podSelector", "matchLabels"),
		"the affinity": pod.at("affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution", 0, "labelSelector",
			"matchLabels"),
	} {
		want(t, "the selector of "+what, selector, labels)
	}
	want(t, "serviceName", set.at("spec", "serviceName"), service.at("metadata", "name"))
	configMap := kinds["ConfigMap"]
	want(t, "the configMap", pod.at("volumes", 1, "configMap", "name"), configMap.at("metadata", "name"))

	text := configMap.at("data", "zoo.cfg").String()
	cfg := load(t, text)
	want(t, "replicas", set.at("spec", "replicas"), len(cfg.Members))
	quorum := len(cfg.Members)/2 + 1
	want(t, "maxUnavailable", kinds["PodDisruptionBudget"].at("spec", "maxUnavailable"), len(cfg.Members)-quorum)
	peerPort := 0
	for i, m := range cfg.Members {
		want(t, "host", m.Host, fmt.Sprintf("%v-%d.%v", set.at("metadata", "name"), i, service.at("metadata", "name")))
		peerPort = m.PeerPort
	}
	ports := map[string]string{"client": setting(text, "clientPort"), "peer": fmt.Sprint(peerPort),
		"http": setting(text, "admin.serverPort"), "metrics": setting(text, "metricsProvider.httpPort")}
	for _, p := range member.at("ports").list() {
		want(t, "containerPort "+p.at("name").String(), p.at("containerPort"), ports[p.at("name").String()])
	}
	want(t, "the ports of the container", len(member.at("ports").list()), len(ports))
	for _, p := range service.at("spec", "ports").list() {
		want(t, "port of the Service "+p.at("name").String(), p.at("port"), ports[p.at("name").String()])
	}
	open := kinds["NetworkPolicy"].at("spec", "ingress")
	want(t, "ports for everybody", open.at(0, "ports").names("port"), []string{ports["client"]})
	want(t, "ports for members", open.at(1, "ports").names("port"), []string{ports["peer"]})
	want(t, "members", open.at(1, "from", 0, "podSelector", "matchLabels"), labels)
	want(t, "ports for Prometheus", open.at(2, "ports").names("port"), []string{ports["metrics"]})
	want(t, "Prometheus", len(open.at(2, "from").list()), 1)
	want(t, "the label of Prometheus", open.at(2, "from", 0, "podSelector", "matchLabels").keys(), []string{"app.kubernetes.io/name"})
	want(t, "the file of the secret", setting(text, "peer.secretFile"),
		member.at("volumeMounts", 1, "mountPath").String()+"/peer.secret")
	for probe, path := range map[string]string{"livenessProbe": "/live", "readinessProbe": "/ready", "startupProbe": "/live"} {
		want(t, probe, member.at(probe, "httpGet", "path"), path)
		want(t, probe, member.at(probe, "httpGet", "port"), "http")
	}
	volumes := append(pod.at("volumes").names("name"), set.at("spec", "volumeClaimTemplates").names("metadata", "name")...)
	for _, c := range append(pod.at("containers").list(), pod.at("initContainers").list()...) {
		for _, name := range c.at("volumeMounts").names("name") {
			if !slices.Contains(volumes, name) {
				t.Errorf("%s is mounted, and there are %v", name, volumes)
			}
		}
		want(t, "allowPrivilegeEscalation", c.at("securityContext", "allowPrivilegeEscalation"), false)
	}
	want(t, "the file", member.at("args", 3), member.at("volumeMounts", 0, "mountPath").String()+"/zoo.cfg")
	drain, err := time.ParseDuration(member.at("args", 2).String())
	if err != nil || member.at("args", 1).String() != "-drain" {
		t.Fatalf("the arguments are %v: %v", member.at("args"), err)
	}
	want(t, "terminationGracePeriodSeconds", pod.at("terminationGracePeriodSeconds"), drain.Seconds()+30)
}

// TestCompose: likewise, and Prometheus and Grafana find what they read.
func TestCompose(t *testing.T) {
	c := documents(t, read(t, "compose.yaml"))[0]
	text := c.at("configs", "zoo", "content").String()
	cfg := load(t, text)
	services := c.at("services").keys()
	published := map[string]bool{}
	for _, name := range services {
		s := c.at("services", name)
		for _, source := range s.at("configs").names("source") {
			if c.at("configs", source).v == nil {
				t.Errorf("%s: there is no config %s", name, source)
			}
		}
		for _, v := range s.at("volumes").list() {
			from, _, _ := strings.Cut(v.String(), ":")
			if strings.HasPrefix(from, ".") {
				if _, err := os.Stat(from); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else if !slices.Contains(c.at("volumes").keys(), from) {
				t.Errorf("%s: there is no volume %s", name, from)
			}
		}
		for _, p := range s.at("ports").list() {
			if published[p.String()] || !strings.HasPrefix(p.String(), "127.0.0.1:") {
				t.Errorf("%s: port %s is taken, or open to others", name, p)
			}
			published[p.String()] = true
		}
	}
	var targets []string
	for i, m := range cfg.Members {
		s := c.at("services", m.Host)
		want(t, m.Host+": myid", c.at("configs", s.at("configs", 1, "source").String(), "content"), i+1)
		want(t, m.Host+": clients", s.at("ports", 0), fmt.Sprintf("127.0.0.1:%d:%s", 2181+i, setting(text, "clientPort")))
		want(t, m.Host+": console", s.at("ports", 1), fmt.Sprintf("127.0.0.1:%d:%s", 8081+i, setting(text, "admin.serverPort")))
		targets = append(targets, m.Host+":"+setting(text, "metricsProvider.httpPort"))
	}
	p := documents(t, read(t, "prometheus.yml"))[0]
	want(t, "targets", p.at("scrape_configs", 0, "static_configs", 0, "targets"), targets)
	source := documents(t, c.at("configs", "datasource", "content").String())[0].at("datasources", 0)
	want(t, "the data source", source.at("url"), "http://prometheus:9090")
	docs := documents(t, c.at("configs", "dashboards", "content").String())[0].at("providers", 0, "options", "path").String()
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
	if !slices.Contains(compose.at("services", "prometheus", "volumes").names(), "./prometheus.yml:/etc/prometheus/prometheus.yml:ro") {
		t.Error("Prometheus does not see prometheus.yml where its image looks for it")
	}
	for i, dir := range []string{"datasources", "dashboards"} {
		target := compose.at("services", "grafana", "configs", i, "target").String()
		want(t, "what Grafana reads", filepath.Dir(target), "/etc/grafana/provisioning/"+dir)
	}
	pattern, ok := strings.CutPrefix(prometheus.at("rule_files", 0).String(), docs+"/")
	rules, err := filepath.Glob("../docs/" + pattern)
	if !ok || err != nil || !slices.Contains(rules, "../docs/alerts.yml") {
		t.Errorf("the rules are %v, in %v (%v)", prometheus.at("rule_files", 0), rules, err)
	}
	for _, f := range rules {
		for _, g := range documents(t, read(t, f))[0].at("groups").list() {
			want(t, f+": a group's rules", len(g.at("rules").list()) > 0, true)
		}
	}
}

// checkDashboard: every JSON file that Grafana finds below its path is a dashboard, whose panels
// read the data source that is provisioned, by its uid or by a variable that Grafana itself sets to
// a data source of that type. It fills in no __inputs for a file that is provisioned.
func checkDashboard(t *testing.T, docs string, source tree) {
	t.Helper()
	found := 0
	err := filepath.WalkDir("../docs", func(path string, d fs.DirEntry, err error) error {
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

// TestDockerfile: the program that it builds is the one that it starts, with the file that the
// manifests mount, as the user that they name; the ports are those of the manifests.
func TestDockerfile(t *testing.T) {
	text := read(t, "Dockerfile")
	for _, line := range []string{"go build -trimpath -buildvcs=false -ldflags='-s -w' -o /lockkeeper ./cmd/lockkeeper",
		"COPY --from=build /lockkeeper /lockkeeper", "USER 65532:65532", `ENTRYPOINT ["/lockkeeper"]`,
		`CMD ["serve", "/etc/lockkeeper/zoo.cfg"]`} {
		want(t, "Dockerfile: "+line, strings.Contains(text, line+"\n"), true)
	}
	mod, _, _ := strings.Cut(read(t, "../go.mod"), "\n\nrequire")
	_, goVersion, _ := strings.Cut(mod, "\ngo ")
	major, _, _ := strings.Cut(strings.TrimPrefix(goVersion, "1."), ".")
	want(t, "the Go of the image", strings.Contains(text, "FROM golang:1."+strings.TrimSpace(major)+" AS build"), true)
	for _, d := range documents(t, read(t, "kubernetes.yaml")) {
		if d.at("kind").String() != "StatefulSet" {
			continue
		}
		pod := d.at("spec", "template", "spec")
		want(t, "the user", pod.at("securityContext", "runAsUser"), 65532)
		_, exposed, _ := strings.Cut(text, "EXPOSE ")
		exposed, _, _ = strings.Cut(exposed, "\n")
		for _, port := range pod.at("containers", 0, "ports").names("containerPort") {
			want(t, "EXPOSE "+port, slices.Contains(strings.Fields(exposed), port), true)
		}
	}
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
	if out, err := exec.Command(tool, "check", "config", "prometheus.yml").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
