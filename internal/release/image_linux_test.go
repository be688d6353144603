package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestImage reads the image with the library, and starts a member of its files as an engine does:
// as the image's user, with a root directory that is read-only, and its volume.
func TestImage(t *testing.T) {
	r := released(t)
	image := readImage(t, r)
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH || !config.Created.Equal(r.date) ||
		config.Config.Labels["org.opencontainers.image.revision"] != r.commit {
		t.Errorf("%+v", config)
	}
	if os.Geteuid() != 0 {
		t.Skip("changes the root directory and the user: needs root")
	}
	root := t.TempDir()
	unpacking := exec.Command("tar", "-C", root, "-xpf", "-")
	files := mutate.Extract(image)
	defer files.Close()
	unpacking.Stdin = files
	if out, err := unpacking.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := names(t, root); !slices.Equal(got, []string{"data", "lockkeeper"}) {
		t.Errorf("the image has %v", got)
	}
	info, err := os.Stat(filepath.Join(root, "data"))
	if owner := info.Sys().(*syscall.Stat_t); err != nil || owner.Uid != imageUser || owner.Gid != imageUser {
		t.Errorf("%v %+v", err, owner)
	}
	s := system{root}
	c := config.Config
	user, group, _ := strings.Cut(c.User, ":")
	out := s.inside(t, fmt.Sprintf(`mount --bind "$ROOT" "$ROOT"
		mount --bind "$ROOT/data" "$ROOT/data"
		mount -o remount,bind,ro "$ROOT"
		env -i setpriv --clear-groups --no-new-privs unshare --root="$ROOT" --wd=%s --setgid=%s --setuid=%s -- %s &
		%s`, c.WorkingDir, group, user, strings.Join(slices.Concat(c.Entrypoint, c.Cmd), " "), clientScript))
	if !strings.Contains(out, "locked") {
		t.Error(out)
	}
	if !s.exists("data/lockkeeper-data") {
		t.Error("no data in the volume")
	}
}

// readImage unpacks the image's layout and returns the image for this machine.
func readImage(t *testing.T, r release) v1.Image {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-C", dir, "-xf", filepath.Join(r.out, "lockkeeper-1.2.3-oci.tar")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(top); err != nil {
		t.Error(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%v %+v", err, manifest)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	platforms, err := index.IndexManifest()
	if err != nil || len(platforms.Manifests) != 1 || platforms.Manifests[0].Platform.String() != platform {
		t.Fatalf("%v %+v", err, platforms)
	}
	image, err := index.Image(platforms.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// TestImageOfTheDockerfile compares the image with the last stage of deploy/Dockerfile.
func TestImageOfTheDockerfile(t *testing.T) {
	text, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, stage, _ := strings.Cut(string(text), "FROM scratch\n")
	var ports []string
	for p := range imageConfig.ExposedPorts {
		ports = append(ports, strings.TrimSuffix(p, "/tcp"))
	}
	slices.Sort(ports)
	var want bytes.Buffer
	fmt.Fprintf(&want, "COPY --from=build /lockkeeper /lockkeeper\nCOPY --from=build --chown=%s /data /data\n", imageConfig.User)
	fmt.Fprintf(&want, "USER %s\nWORKDIR %s\n", imageConfig.User, imageConfig.WorkingDir)
	for v := range imageConfig.Volumes {
		fmt.Fprintf(&want, "VOLUME %s\n", v)
	}
	fmt.Fprintf(&want, "EXPOSE %s\nENTRYPOINT [%q]\nCMD [%q]\n", strings.Join(ports, " "), imageConfig.Entrypoint[0], imageConfig.Cmd[0])
	if stage != want.String() {
		t.Errorf("the Dockerfile has\n%s\nthe image has\n%s", stage, want.String())
	}
}
