package check

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"lockkeeper/internal/testcert"
	"lockkeeper/jepsen"
	"lockkeeper/server/zoocfg"
)

const chart = "../helm/lockkeeper"

var update = flag.Bool("update", false, "write deploy/kubernetes.yaml anew")

// manifests is all that the chart makes, in the types of Kubernetes.
type manifests struct {
	set      *appsv1.StatefulSet
	services map[string]*corev1.Service
	config   *corev1.ConfigMap
	secret   *corev1.Secret
	policy   *networkingv1.NetworkPolicy
	budget   *policyv1.PodDisruptionBudget
	others   []string // kinds that Kubernetes itself does not have
}

// values parses values of the chart.
func values(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// render renders the chart as "helm template RELEASE" does. notes is the text that an installation
// prints.
func render(release string, with map[string]any) (text, notes string, err error) {
	c, err := loader.Load(chart)
	if err != nil {
		return "", "", err
	}
	all, err := util.ToRenderValues(c, with, common.ReleaseOptions{Name: release, Namespace: "locks", Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return "", "", err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return "", "", err
	}
	var out strings.Builder
	for _, file := range slices.Sorted(maps.Keys(files)) {
		text := strings.TrimSpace(files[file])
		switch {
		case filepath.Base(file) == "NOTES.txt":
			notes = text
		case filepath.Ext(file) == ".yaml" && text != "":
			out.WriteString("---\n" + text + "\n")
		}
	}
	return out.String(), notes, nil
}

// decode decodes each document of a manifest strictly: an unknown field is an error.
func decode(t *testing.T, text string) (m manifests) {
	t.Helper()
	m.services = make(map[string]*corev1.Service)
	for r := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return m
		}
		var kind metav1.TypeMeta
		if err := errors.Join(err, yaml.Unmarshal(doc, &kind)); err != nil {
			t.Fatal(err)
		}
		var into any
		switch kind.APIVersion + " " + kind.Kind {
		case "apps/v1 StatefulSet":
			m.set = new(appsv1.StatefulSet)
			into = m.set
		case "v1 Service":
			into = new(corev1.Service)
		case "v1 ConfigMap":
			m.config = new(corev1.ConfigMap)
			into = m.config
		case "v1 Secret":
			m.secret = new(corev1.Secret)
			into = m.secret
		case "networking.k8s.io/v1 NetworkPolicy":
			m.policy = new(networkingv1.NetworkPolicy)
			into = m.policy
		case "policy/v1 PodDisruptionBudget":
			m.budget = new(policyv1.PodDisruptionBudget)
			into = m.budget
		case "monitoring.coreos.com/v1 ServiceMonitor":
			m.others = append(m.others, kind.Kind)
			into = new(map[string]any)
		default:
			t.Fatalf("an object of an unknown kind: %s %s", kind.APIVersion, kind.Kind)
		}
		if err := yaml.UnmarshalStrict(doc, into); err != nil {
			t.Errorf("%s: %v\n%s", kind.Kind, err, doc)
		}
		if s, ok := into.(*corev1.Service); ok {
			m.services[s.Name] = s
		}
	}
}

// zooCfg loads the zoo.cfg of a ConfigMap as member 1 does, with its files in a directory of the
// test.
func zooCfg(t *testing.T, m manifests) zoocfg.Config {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	testcert.NewCA(t, "ca").Issue(t, testcert.Request{Hosts: []string{"a"}}).Write(t, dir, "tls")
	text := strings.NewReplacer("dataDir=/data\n", "dataDir="+dir+"\n", "/etc/lockkeeper-peer/peer.secret", in("peer.secret"),
		"/etc/lockkeeper-tls/tls.crt", in("tls.pem"), "/etc/lockkeeper-tls/tls.key", in("tls.key"), "/etc/lockkeeper-tls/ca.crt", in("tls.ca"),
	).Replace(m.config.Data["zoo.cfg"])
	if err := errors.Join(os.WriteFile(in("peer.secret"), []byte(strings.Repeat("s", 64)), 0o600),
		os.WriteFile(in("zoo.cfg"), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	cfg, err := zoocfg.Load(in("zoo.cfg"), zoocfg.MyID(1))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, n := range cfg.Notices() {
		if n.Level >= slog.LevelWarn {
			t.Errorf("%v", n)
		}
	}
	return cfg
}

// agree compares the parts of the manifests with each other, and with the member's configuration.
func (m manifests) agree(t *testing.T, cfg zoocfg.Config) {
	t.Helper()
	pod, set := m.set.Spec.Template, m.set.Spec
	member := pod.Spec.Containers[0]
	selectors := map[string]*metav1.LabelSelector{"StatefulSet": set.Selector}
	if m.budget != nil {
		selectors["PodDisruptionBudget"] = m.budget.Spec.Selector
		if got, want := *m.budget.Spec.MaxUnavailable, intstr.FromInt32(1); got != want {
			t.Errorf("%v members may be stopped at a time", got)
		}
	}
	if m.policy != nil {
		selectors["NetworkPolicy"] = &m.policy.Spec.PodSelector
	}
	for _, s := range m.services {
		selectors["Service "+s.Name] = &metav1.LabelSelector{MatchLabels: s.Spec.Selector}
	}
	for of, selector := range selectors {
		if s, err := metav1.LabelSelectorAsSelector(selector); err != nil || s.Empty() || !s.Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s selects %v (%v), and the pods have %v", of, selector, err, pod.Labels)
		}
	}
	if s := m.services[set.ServiceName]; s == nil || s.Spec.ClusterIP != corev1.ClusterIPNone || !s.Spec.PublishNotReadyAddresses {
		t.Errorf("the pods' Service %q: %v", set.ServiceName, s)
	}
	if int(*set.Replicas) != len(cfg.Cluster.Members) {
		t.Errorf("%d replicas, and %d server lines", *set.Replicas, len(cfg.Cluster.Members))
	}
	ports := make(map[string]bool)
	for i, line := range cfg.Cluster.Members {
		if want := fmt.Sprintf("%s-%d.%s", m.set.Name, i, set.ServiceName); line.Host != want {
			t.Errorf("server.%d is at %s, and its pod at %s", i+1, line.Host, want)
		}
		ports[fmt.Sprint(line.PeerPort)] = true
	}
	for _, addr := range []string{cfg.Client.Addr, cfg.Client.SecureAddr, cfg.HTTP.Addr, cfg.Metrics.Addr} {
		if addr != "" {
			ports[addr[strings.LastIndexByte(addr, ':')+1:]] = true
		}
	}
	named := make(map[string]bool)
	for _, p := range member.Ports {
		if !ports[fmt.Sprint(p.ContainerPort)] {
			t.Errorf("the port %s of the container, %d, is none of %v", p.Name, p.ContainerPort, ports)
		}
		named[p.Name] = true
	}
	if len(member.Ports) != len(ports) {
		t.Errorf("the container has %d ports, the member %v", len(member.Ports), ports)
	}
	for _, probe := range []*corev1.Probe{member.LivenessProbe, member.ReadinessProbe, member.StartupProbe} {
		if !named[probe.HTTPGet.Port.StrVal] {
			t.Errorf("a probe of the port %v, and the container has %v", probe.HTTPGet.Port, named)
		}
	}
	volumes := map[string]bool{"data": true}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = true
	}
	for _, mount := range member.VolumeMounts {
		if !volumes[mount.Name] {
			t.Errorf("%s is mounted, and there are %v", mount.Name, volumes)
		}
	}
	if c := member.SecurityContext; !*c.ReadOnlyRootFilesystem || *c.AllowPrivilegeEscalation || c.Capabilities.Drop[0] != "ALL" {
		t.Errorf("the container may do more than it needs: %v", c)
	}
}

// Each set of values gives manifests that Kubernetes' types take, that agree with each other, and
// with which a member starts.
func TestChart(t *testing.T) {
	for name, tt := range map[string]struct {
		release, values string
		check           func(*testing.T, manifests, zoocfg.Config, string)
	}{
		"defaults": {"locks", "", func(t *testing.T, m manifests, cfg zoocfg.Config, notes string) {
			if m.secret == nil || len(m.secret.Data["peer.secret"]) < 32 {
				t.Errorf("no secret for members: %v", m.secret)
			}
			if !strings.Contains(notes, "locks-lockkeeper-0.locks-lockkeeper:2181,locks-lockkeeper-1.") {
				t.Errorf("the notes have no list of servers:\n%s", notes)
			}
			if len(m.others) > 0 || m.policy == nil || m.budget == nil {
				t.Errorf("%v, %v, %v", m.others, m.policy, m.budget)
			}
		}},
		"five, with TLS": {"lockkeeper", "replicas: 5\ntls: {secretName: certs}\nmetrics: {viewerDigest: 'viewer:abc'}\npeerSecret: {existingSecret: known}",
			func(t *testing.T, m manifests, cfg zoocfg.Config, notes string) {
				if m.secret != nil || cfg.Client.Addr != ":2182" || cfg.Client.TLS != zoocfg.TLSOnly || !cfg.Cluster.TLS {
					t.Errorf("a secret %v, clients at %q, TLS %v and between members %v", m.secret, cfg.Client.Addr, cfg.Client.TLS, cfg.Cluster.TLS)
				}
				if !strings.Contains(notes, "lockkeeper-client:2182") {
					t.Errorf("notes:\n%s", notes)
				}
			}},
		"TLS beside plaintext": {"lockkeeper", "metrics: {enabled: false}\nconfig: {admin.requireLogin: false}\n" +
			"tls: {secretName: certs, clients: {plaintext: true, auth: none}, members: {enabled: false}}",
			func(t *testing.T, m manifests, cfg zoocfg.Config, _ string) {
				if cfg.Client.Addr == "" || cfg.Client.SecureAddr == "" || cfg.Cluster.TLS {
					t.Errorf("clients at %q and %q", cfg.Client.Addr, cfg.Client.SecureAddr)
				}
			}},
		"everything else": {"x", `
config: {tickTime: 1000, snapCount: 5000000, maxSessionTimeout: 60000, console.hosts: locks.example.org}
metrics: {serviceMonitor: {enabled: true, labels: {release: prometheus}}, annotations: false}
networkPolicy: {clients: [{podSelector: {matchLabels: {app: worker}}}]}
antiAffinity: soft
persistence: {storageClass: fast, size: 1Ti}
nodeSelector: {disk: ssd}
tolerations: [{key: locks, operator: Exists}]
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
priorityClassName: system-cluster-critical
podLabels: {team: a}
podAnnotations: {b: c}
env: [{name: GOMAXPROCS, value: "2"}]
extraVolumes: [{name: audit, emptyDir: {}}]
extraVolumeMounts: [{name: audit, mountPath: /audit}]
imagePullSecrets: [{name: registry}]
image: {repository: registry.example.org/lockkeeper, tag: "1.2"}
service: {type: LoadBalancer, annotations: {internal: "true"}}
`, func(t *testing.T, m manifests, cfg zoocfg.Config, _ string) {
			pod := m.set.Spec.Template
			if cfg.Sessions.TickTime.Milliseconds() != 1000 || cfg.Data.SnapCount != 5000000 || !slices.Contains(m.others, "ServiceMonitor") || pod.Labels["team"] != "a" ||
				pod.Spec.Containers[0].Image != "registry.example.org/lockkeeper:1.2" || *m.set.Spec.VolumeClaimTemplates[0].Spec.StorageClassName != "fast" {
				t.Errorf("%v\n%+v", m.others, pod)
			}
		}},
		"alone, without extras": {"lockkeeper", `
replicas: 1
metrics: {enabled: false}
networkPolicy: {enabled: false}
podDisruptionBudget: {enabled: false}
antiAffinity: none
`, func(t *testing.T, m manifests, cfg zoocfg.Config, _ string) {
			if m.policy != nil || m.budget != nil || m.set.Spec.Template.Spec.Affinity != nil || cfg.Metrics.Addr != "" {
				t.Errorf("%v, %v, %v, %q", m.policy, m.budget, m.set.Spec.Template.Spec.Affinity, cfg.Metrics.Addr)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			text, notes, err := render(tt.release, values(t, tt.values))
			if err != nil {
				t.Fatal(err)
			}
			m := decode(t, text)
			cfg := zooCfg(t, m)
			m.agree(t, cfg)
			tt.check(t, m, cfg, notes)
			for _, message := range lint.RunAll(chart, values(t, tt.values), "locks").Messages {
				if message.Severity > support.InfoSev {
					t.Errorf("helm lint: %v", message)
				}
			}
		})
	}
}

// A wrong value is refused, and the message names it.
func TestWrongValues(t *testing.T) {
	for text, want := range map[string]string{
		"replica: 3":                    "replica",
		"replicas: 2":                   "replicas",
		"tls: {clients: {auth: maybe}}": "auth",
		"persistence: {size: 10 GB}":    "size",
		"service: {clientPort: 0}":      "clientPort",
		"tls: {secretName: certs}":      "metrics.viewerDigest",
	} {
		if _, _, err := render("lockkeeper", values(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

const manifestHead = `# Three members in Kubernetes: kubectl apply -f deploy/kubernetes.yaml
# It is the chart of deploy/helm with its defaults, for those without Helm. The members prove to each
# other that they know a secret, which has to be there first:
#   openssl rand -hex 32 > peer.secret
#   kubectl create secret generic lockkeeper-peer --from-file=peer.secret
# Clients connect to lockkeeper-client:2181, or to the list lockkeeper-0.lockkeeper:2181,
# lockkeeper-1.lockkeeper:2181,lockkeeper-2.lockkeeper:2181.
`

// deploy/kubernetes.yaml is the output of the chart. -update writes it.
func TestManifest(t *testing.T) {
	text, _, err := render("lockkeeper", values(t, "peerSecret: {existingSecret: lockkeeper-peer}"))
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "helm.sh/chart:") && !strings.Contains(line, "app.kubernetes.io/managed-by:") {
			kept = append(kept, line)
		}
	}
	want := manifestHead + strings.Join(kept, "")
	const file = "../kubernetes.yaml"
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is not what the chart makes (%v): go test -run TestManifest -update", file, err)
	}
}

// pods are the pods of the chart's StatefulSet, on hosts of their own.
type pods struct {
	t        *testing.T
	img      image
	manifest manifests
	config   string // the directory of the ConfigMap
	secret   string // the directory of the Secret
	volumes  []string
	etcHosts mount
	places   []jepsen.Place
	running  []*running
}

// newPods returns pods with room for the given number of them.
func newPods(t *testing.T, release string, most int) *pods {
	t.Helper()
	p := &pods{t: t, config: t.TempDir(), secret: t.TempDir()}
	p.apply(release, 3)
	var names []string
	for i := range most {
		names = append(names, p.name(i)+"."+p.manifest.set.Spec.ServiceName+" "+p.name(i))
	}
	p.places, p.etcHosts = hosts(t, names...)
	p.img = built(t)
	for range most {
		p.volumes = append(p.volumes, p.img.volume(t))
	}
	file, group := filepath.Join(p.secret, "peer.secret"), int(*p.manifest.set.Spec.Template.Spec.SecurityContext.FSGroup)
	if err := errors.Join(os.WriteFile(file, p.manifest.secret.Data["peer.secret"], 0o440), os.Chown(file, 0, group),
		os.Chmod(p.secret, 0o755), os.Chmod(p.config, 0o755)); err != nil {
		t.Fatal(err)
	}
	p.running = make([]*running, most)
	return p
}

// apply renders the chart for that number of replicas, and brings the configuration to the pods.
func (p *pods) apply(release string, replicas int) {
	p.t.Helper()
	text, _, err := render(release, map[string]any{"replicas": replicas})
	if err != nil {
		p.t.Fatal(err)
	}
	p.manifest = decode(p.t, text)
	if err := os.WriteFile(filepath.Join(p.config, "zoo.cfg"), []byte(p.manifest.config.Data["zoo.cfg"]), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pods) name(i int) string { return fmt.Sprintf("%s-%d", p.manifest.set.Name, i) }

func (p *pods) container() corev1.Container { return p.manifest.set.Spec.Template.Spec.Containers[0] }

// start starts pod i.
func (p *pods) start(i int) {
	p.t.Helper()
	spec := p.container()
	c := container{image: p.img, args: spec.Args, readOnly: *spec.SecurityContext.ReadOnlyRootFilesystem,
		hostname: p.name(i), mounts: []mount{p.etcHosts}}
	for _, v := range spec.VolumeMounts {
		source := map[string]string{"config": p.config, "peer": p.secret, "data": p.volumes[i]}[v.Name]
		c.mounts = append(c.mounts, mount{source, v.MountPath, v.ReadOnly})
	}
	p.running[i] = c.start(p.t, p.places[i])
}

// awaitReady waits until the probes of a pod are answered.
func (p *pods) awaitReady(i int) {
	p.t.Helper()
	spec := p.container()
	for _, probe := range []*corev1.Probe{spec.StartupProbe, spec.LivenessProbe, spec.ReadinessProbe} {
		p.running[i].await(p.t, probe.HTTPGet.Path)
	}
}

// The pods of the chart run: each finds its number in its name, and its probes are answered. With
// more replicas the new pods and a rolling update make a larger cluster, which has the data.
func TestPods(t *testing.T) {
	const before, after = 3, 5
	p := newPods(t, "locks", after)
	for i := range before {
		p.start(i)
	}
	for i := range before {
		p.awaitReady(i)
	}
	shareNode(t, p.running[:before])
	p.apply("locks", after)
	for i := before; i < after; i++ {
		p.start(i)
	}
	// The controller begins with the last pod, and goes on when that is ready.
	for i := before - 1; i >= 0; i-- {
		p.running[i].stop(t)
		p.start(i)
		p.awaitReady(i)
	}
	for i := range after {
		p.awaitReady(i)
	}
	if text, _, err := connect(t, p.running[after-1].host).Get("/shared"); string(text) != "x" || err != nil {
		t.Errorf("the last new pod: %q, %v", text, err)
	}
	config, _, err := connect(t, p.running[0].host).Get("/zookeeper/config")
	if got := strings.Count(string(config), ":participant"); got != after || err != nil {
		t.Errorf("%d voters: %v\n%s", got, err, config)
	}
	p.running[0].stop(t) // the others can do without it
	for _, pod := range p.running[1:] {
		pod.kill()
	}
}
