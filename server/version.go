package server

import (
	"runtime/debug"
	"time"
)

const (
	// Version is lockkeeper's own version.
	Version = "0.1.0"
	// ZooKeeperVersion is the version whose behaviour a client finds here. Clients switch features on by it.
	ZooKeeperVersion = "3.9.5"
)

// releaseDate stands in for the date of a build that was not made from a repository.
var releaseDate = time.Date(2026, time.November, 21, 0, 0, 0, 0, time.UTC)

// Build says what was built.
type Build struct {
	Revision string    // of the repository, 12 digits, with "-dirty" behind it if it was changed; "" if unknown
	Time     time.Time // of the revision
	Go       string    // version of the compiler
}

// BuildInfo reads what the Go tool has put into the binary.
func BuildInfo() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Build{Time: releaseDate}
	}
	return buildFrom(info)
}

func buildFrom(info *debug.BuildInfo) Build {
	b := Build{Time: releaseDate, Go: info.GoVersion}
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value[:min(len(s.Value), 12)]
		case "vcs.time":
			if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
				b.Time = t.UTC()
			}
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty && b.Revision != "" {
		b.Revision += "-dirty"
	}
	return b
}

// zooKeeperLine is the build as srvr, stat, mntr and envi show it:
//
//	3.9.5-lockkeeper-0.1.0-0123456789ab, built on 11/21/2026 10:15 GMT
//
// ZooKeeper has written the date as 2026-11-21 10:15 UTC since 3.6, which go-zookeeper cannot read; all
// parsers that are known can read this older form (spec/clients.md section 5).
func (b Build) zooKeeperLine() string {
	v := ZooKeeperVersion + "-lockkeeper-" + Version
	if b.Revision != "" {
		v += "-" + b.Revision
	}
	return v + ", built on " + b.Time.Format("01/02/2006 15:04") + " GMT"
}
