package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// file is a file of an archive or a package.
type file struct {
	name string // with slashes
	mode fs.FileMode
	data []byte
}

// shipped are the files beside the program, as patterns.
var shipped = []string{"LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "docs/*.md", "docs/grafana.json",
	"docs/*.yml", "docs/*.yaml", "deploy/*", "deploy/package/zoo.cfg"}

// files are the program and the shipped files.
func (r *release) files(p program) (files []file, err error) {
	add := func(from, name string, mode fs.FileMode) error {
		data, err := os.ReadFile(from)
		files = append(files, file{name, mode, data})
		return err
	}
	if err := add(p.path, filepath.Base(p.path), 0o755); err != nil {
		return nil, err
	}
	for _, pattern := range shipped {
		found, err := filepath.Glob(filepath.Join(r.module, pattern))
		if err != nil {
			return nil, err
		}
		for _, from := range found {
			name, err := filepath.Rel(r.module, from)
			if err != nil {
				return nil, err
			}
			if info, err := os.Stat(from); err != nil || info.IsDir() || strings.HasSuffix(name, ".go") {
				continue
			}
			if err := add(from, filepath.ToSlash(name), 0o644); err != nil {
				return nil, err
			}
		}
	}
	return files, nil
}

// archive writes a platform's archive.
func (r *release) archive(p program, files []file) error {
	files = slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
	name, pack := p.name+".tar.gz", r.packTar
	if p.goos == "windows" {
		name, pack = p.name+".zip", r.packZip
	}
	var packed bytes.Buffer
	if err := pack(&packed, p.name, files); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, name), packed.Bytes(), 0o644)
}

func (r *release) packTar(w io.Writer, dir string, files []file) error {
	zipped, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(r.writeTar(zipped, dir, files), zipped.Close())
}

// writeTar writes an archive without compression.
func (r *release) writeTar(w io.Writer, dir string, files []file) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		err := archive.WriteHeader(&tar.Header{Name: path.Join(dir, f.name), Mode: int64(f.mode.Perm()),
			Size: int64(len(f.data)), ModTime: r.date, Format: tar.FormatPAX})
		if err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}
	return archive.Close()
}

func (r *release) packZip(w io.Writer, dir string, files []file) error {
	archive := zip.NewWriter(w)
	for _, f := range files {
		header := &zip.FileHeader{Name: path.Join(dir, f.name), Method: zip.Deflate, Modified: r.date}
		header.SetMode(f.mode)
		to, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := to.Write(f.data); err != nil {
			return err
		}
	}
	return archive.Close()
}
