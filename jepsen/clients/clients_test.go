package clients

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
)

var keepFlag = flag.Bool("keep", false, "keep the logs also when the tests pass")

// patience is for one story; the longest one takes about three session timeouts.
const patience = 90 * time.Second

var tools *jepsen.Toolbox

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(jepsen.Main(m, &tools, jepsen.Race))
}

// cluster starts servers for the test, and returns their addresses.
func cluster(t *testing.T, target jepsen.Target, members int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := jepsen.StartCluster(ctx, jepsen.ClusterConfig{
		Target: target, Members: members, Dir: jepsen.KeptDir(t, *keepFlag),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return strings.Split(c.Servers(), ",")
}

// newStage is a stage for one story on those servers, which ends within the patience.
func newStage(t *testing.T, servers []string, patience time.Duration) *stage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	conn, _, err := zk.Connect(servers, 20*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	root := "/" + strings.NewReplacer("/", "-", "#", "-", "=", "-").Replace(t.Name())
	for _, name := range []string{root, filepath.Join(root, "lock")} {
		if _, err := conn.Create(name, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	return &stage{ctx: ctx, dir: jepsen.KeptDir(t, *keepFlag), servers: servers, root: root, conn: conn,
		link: jepsen.NewProxies(2, 1)}
}

// TestStories plays all stories with both clients, on a cluster of lockkeeper and on one server of
// ZooKeeper: the stories cut clients off, not members.
func TestStories(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	languages := []language{java(t, filepath.Join(sources, "java")), python(t, filepath.Join(sources, "python"))}
	for _, server := range []struct {
		name    string
		members int
		target  func() (jepsen.Target, error)
	}{
		{"lockkeeper", 3, tools.Lockkeeper},
		{"zookeeper", 1, func() (jepsen.Target, error) { return jepsen.ZooKeeper() }},
	} {
		t.Run(server.name, func(t *testing.T) {
			target, err := server.target()
			jepsen.Need(t, err)
			servers := cluster(t, target, server.members)
			for _, l := range languages {
				for _, st := range stories {
					t.Run(l.name+"/"+st.name, func(t *testing.T) {
						t.Parallel()
						play(t, servers, st, l)
					})
				}
			}
			t.Run("layouts", func(t *testing.T) {
				t.Parallel()
				both := story{"layouts", func(s *stage, java language) { layouts(s, java, languages[1]) }}
				play(t, servers, both, languages[0])
			})
		})
	}
}

// play plays a story that has to find nothing.
func play(t *testing.T, servers []string, st story, l language) {
	t.Helper()
	s := newStage(t, servers, patience)
	if err := s.play(st, l); err != nil {
		t.Error(err)
	}
	if s.figures != "" {
		t.Logf("figures: %s", s.figures)
	}
}

// TestPages runs the program on the page of each client.
func TestPages(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	target, err := tools.Lockkeeper()
	if err != nil {
		t.Fatal(err)
	}
	servers := cluster(t, target, 1)
	const onPage = "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"
	output := regexp.MustCompile(`^(page \d, token [1-9]\d*\n){3}$`)
	for _, client := range []struct {
		language
		file string
	}{
		{java(t, filepath.Join(sources, "java")), "Report.java"},
		{python(t, filepath.Join(sources, "python")), "report.py"},
	} {
		t.Run(client.name, func(t *testing.T) {
			page, err := os.ReadFile(filepath.Join(sources, client.name, "README.md"))
			if err != nil {
				t.Fatal(err)
			}
			_, text, _ := strings.Cut(string(page), "```"+client.name+"\n")
			text, _, _ = strings.Cut(text, "```")
			file := filepath.Join(t.TempDir(), client.file)
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, onPage, servers[0])), 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := client.program(file).Output()
			if err != nil || !output.Match(out) {
				t.Errorf("%v: it says %q", err, out)
			}
		})
	}
}
