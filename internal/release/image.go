package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageName is the name of the image, which the manifests in deploy have, too. rename-module puts a
// registry in front.
const imageName = "lockkeeper"

// imageUser owns the process and the data in the image, as user and as group.
const imageUser = 65532

// imageConfig says how the image is run. deploy/Dockerfile says the same.
var imageConfig = v1.Config{
	User:       fmt.Sprintf("%d:%[1]d", imageUser),
	WorkingDir: "/data",
	Volumes:    map[string]struct{}{"/data": {}},
	ExposedPorts: map[string]struct{}{
		"2181/tcp": {}, "2888/tcp": {}, "7000/tcp": {}, "8080/tcp": {},
	},
	Entrypoint: []string{"/lockkeeper"},
	Cmd:        []string{"serve"},
}

// image writes the image of the Linux programs, in OCI's layout in a tar archive. There is none
// without a program for Linux.
func (r *release) image(programs []program, made generated, work string) error {
	var index v1.ImageIndex = empty.Index
	for _, p := range programs {
		if p.goos != "linux" {
			continue
		}
		image, err := r.imageFor(p, made)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.goos, Architecture: p.goarch}}})
	}
	if index == empty.Index {
		return nil
	}
	index = mutate.Annotations(index, r.labels(made)).(v1.ImageIndex)
	dir := filepath.Join(work, "image")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// Podman reads the first name, and containerd, with it Docker, the second one.
	name := imageName + ":" + r.version
	names := map[string]string{"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name}
	if !strings.Contains(imageName, "/") {
		names["io.containerd.image.name"] = "docker.io/library/" + name
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	files, err := readTree(dir)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := r.writeTar(&out, "", files); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "lockkeeper-"+r.version+"-oci.tar"), out.Bytes(), 0o644)
}

// labels are the annotations that OCI has names for.
func (r *release) labels(made generated) map[string]string {
	const prefix = "org.opencontainers.image."
	labels := map[string]string{
		prefix + "title":    "lockkeeper",
		prefix + "version":  r.version,
		prefix + "revision": r.commit,
		prefix + "created":  r.date.Format("2006-01-02T15:04:05Z"),
		prefix + "licenses": "Apache-2.0",
	}
	if made.homepage != "" {
		labels[prefix+"source"] = made.homepage
	}
	return labels
}

// imageFor is the image for a platform: the program, and an empty directory for its data.
func (r *release) imageFor(p program, made generated) (v1.Image, error) {
	data, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	archive := tar.NewWriter(&files)
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeReg, Name: "lockkeeper", Mode: 0o755, Size: int64(len(data))},
		{Typeflag: tar.TypeDir, Name: "data/", Mode: 0o755, Uid: imageUser, Gid: imageUser},
	} {
		h.ModTime, h.Format = r.date, tar.FormatPAX
		if err := archive.WriteHeader(h); err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := archive.Write(data); err != nil {
				return nil, err
			}
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "lockkeeper internal/release"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.goos, p.goarch, v1.Time{Time: r.date}
	config.Config = *imageConfig.DeepCopy()
	config.Config.Labels = r.labels(made)
	return mutate.ConfigFile(image, config)
}

// readTree reads the files below a directory, in the order of their names.
func readTree(dir string) (files []file, err error) {
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, err2 := filepath.Rel(dir, path)
		files = append(files, file{filepath.ToSlash(name), 0o644, data})
		return errors.Join(err, err2)
	})
	return files, err
}
