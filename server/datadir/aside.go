package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockkeeper/quorum/store"
	"lockkeeper/server/zoocfg"
)

// asidePrefix begins the name of a directory in a data directory that has the files of a disk that
// this member works with no longer: damaged ones, or outdated ones. Nothing ever deletes them. As
// long as there is one, a member without data replaces a disk of a cluster, and begins none.
const asidePrefix = "aside-"

// MayReplaceDisk reports whether a member of a cluster that fails to start, or to go on, with err
// sets its files aside and starts as one that has lost its disk: the others have the data.
func MayReplaceDisk(cfg *zoocfg.Config, err error) bool {
	return !cfg.Data.KeepDisks && !cfg.Standalone() && cfg.Machine.Stores == nil &&
		(errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrOutdated))
}

// SetAside moves the files of a member that does not run into directories beside them. The log with
// the vote goes last: a start in between finds it, and refuses it without the rest.
func SetAside(ctx context.Context, cfg *zoocfg.Config, now time.Time) (moved []string, err error) {
	dirs, err := Lock(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer dirs.Close()
	name := asidePrefix + now.UTC().Format("20060102T150405Z")
	for n := 2; Exists(filepath.Join(cfg.Data.Dir, name)) || Exists(filepath.Join(cfg.Data.LogDir, name)); n++ {
		name = fmt.Sprintf("%s%s-%d", asidePrefix, now.UTC().Format("20060102T150405Z"), n)
	}
	for _, f := range []struct{ dir, file string }{
		{cfg.Data.Dir, SnapshotsDir}, {cfg.Data.LogDir, SegmentsDir}, {cfg.Data.LogDir, LogFile},
	} {
		from, to := filepath.Join(f.dir, f.file), filepath.Join(f.dir, name, f.file)
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return moved, fmt.Errorf("server: set aside: %w", err)
		}
		if err := os.Rename(from, to); err != nil {
			return moved, fmt.Errorf("server: set aside: %w", err)
		}
		for _, dir := range []string{filepath.Dir(to), f.dir} {
			if err := store.SyncDir(dir); err != nil {
				return moved, fmt.Errorf("server: set aside: %w", err)
			}
		}
		moved = append(moved, to)
	}
	return moved, nil
}

// HasAside reports whether files have been set aside in the data directories of a member.
func HasAside(cfg *zoocfg.Config) bool {
	for _, dir := range []string{cfg.Data.Dir, cfg.Data.LogDir} {
		files, _ := os.ReadDir(dir) // of one that is missing nothing is there
		if slices.ContainsFunc(files, func(f fs.DirEntry) bool { return strings.HasPrefix(f.Name(), asidePrefix) }) {
			return true
		}
	}
	return false
}

// Exists reports whether there is a file or a directory of that path.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
