package server

import (
	"io/fs"
	"path/filepath"
	"runtime"

	"lockkeeper/server/datadir"
)

// privacyEntries bounds the names below a data directory that are looked at.
const privacyEntries = 10_000

// openToOthers returns the first file below dir that every user of the machine can read, or
// directory that every user can write in, with its mode; an empty path if there is none. Snapshots
// and logs have the passwords of sessions, and all data.
func openToOthers(dir string) (path string, mode fs.FileMode) {
	if runtime.GOOS == "windows" {
		return "", 0
	}
	left := privacyEntries
	_ = filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if left--; left < 0 {
			return fs.SkipAll
		}
		if err != nil {
			return nil // the member does not own files that it cannot read
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		perm := info.Mode().Perm()
		// myid, and an operator's files, are no secrets.
		secret := info.Mode().IsRegular() && info.Size() > 0 && (filepath.Dir(at) != dir || e.Name() == datadir.LogFile)
		switch {
		case e.IsDir() && perm&0o002 != 0 && info.Mode()&fs.ModeSticky == 0, secret && perm&0o006 != 0:
			path, mode = at, perm
			return fs.SkipAll
		case e.IsDir() && perm&0o001 == 0:
			return fs.SkipDir
		}
		return nil
	})
	return path, mode
}

// warnOfOpenFiles logs which of the data directories have something for other users of the machine.
func warnOfOpenFiles(cfg *Config) {
	dirs := []string{cfg.Data.Dir}
	if cfg.Data.LogDir != cfg.Data.Dir {
		dirs = append(dirs, cfg.Data.LogDir)
	}
	for _, dir := range dirs {
		if path, mode := openToOthers(dir); path != "" {
			cfg.Logger.Warn("everybody on this machine can read or change files of a data directory: they have the "+
				"data, and passwords of "+
				"sessions (chmod -R o-rwx)", "dir", dir, "found", path, "mode", mode)
		}
	}
}
