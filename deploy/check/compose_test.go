package check

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/go-zookeeper/zk"
)

func loadCompose(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../compose.yaml"}, cli.WithName("lockkeeper"))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// Compose takes its file, and an engine can do as it says: a container with a read-only root
// directory gets files by mounts only, for Compose copies configurations with inline content into
// the container; each file that is mounted exists.
func TestComposeFile(t *testing.T) {
	project := loadCompose(t)
	for name, s := range project.Services {
		for _, c := range s.Configs {
			if config := project.Configs[c.Source]; s.ReadOnly && config.File == "" {
				t.Errorf("%s is read-only, and %s has inline content", name, c.Source)
			}
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s: the port %d is open to other machines", name, p.Target)
			}
		}
	}
}

// The members of the Compose file run: their containers find each other, are ready, and share a
// node.
func TestComposeMembers(t *testing.T) {
	project := loadCompose(t)
	var names []string
	for name, s := range project.Services {
		if s.Image == "lockkeeper" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	places, etcHosts := hosts(t, names...)
	img := built(t)
	var members []*running
	for i, name := range names {
		s := project.Services[name]
		c := container{image: img, args: s.Command, readOnly: s.ReadOnly, hostname: name, mounts: []mount{etcHosts}}
		for _, v := range s.Volumes {
			source := v.Source
			if v.Type == types.VolumeTypeVolume {
				source = img.volume(t)
			}
			c.mounts = append(c.mounts, mount{source, v.Target, v.ReadOnly})
		}
		for _, p := range s.Ports {
			if !slices.Contains(img.ports, fmt.Sprint(p.Target)) {
				t.Errorf("%s: the port %d is none of the image's: %v", name, p.Target, img.ports)
			}
		}
		members = append(members, c.start(t, places[i]))
	}
	for _, m := range members {
		m.await(t, "/ready")
	}
	shareNode(t, members)
}

// shareNode has the first member take a node and the last return it.
func shareNode(t *testing.T, members []*running) {
	t.Helper()
	if _, err := connect(t, members[0].host).Create("/shared", []byte("x"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	last := connect(t, members[len(members)-1].host)
	if _, err := last.Sync("/"); err != nil {
		t.Fatal(err)
	}
	if text, _, err := last.Get("/shared"); string(text) != "x" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}
