package server

import (
	"cmp"
	"regexp"
	"runtime/debug"
	"time"
)

const (
	// Version is the version of the source. A build of it may have a name of its own; see
	// BuildInfo.
	Version = "0.1.0"
	// ZooKeeperVersion is the version of ZooKeeper that a client sees here. Clients switch features
	// on by it.
	ZooKeeperVersion = "3.9.5"
)

// Packagers set these for their builds:
//
//	go build -ldflags "-X lockkeeper/server.buildVersion=1.2.3-4 \
//	    -X lockkeeper/server.buildCommit=$(git rev-parse HEAD) \
//	    -X lockkeeper/server.buildDate=$(git log -1 --format=%cI)" ./cmd/lockkeeper
//
// buildDate is the date of the commit, in the form of RFC 3339.
var buildVersion, buildCommit, buildDate string

// Build describes the build. Unknown fields are empty.
type Build struct {
	Version string    // of the package, else of the source
	Commit  string    // whatever was given to the linker; else 12 digits
	Changed bool      // files were changed since that commit
	Time    time.Time // of the commit, in UTC
	Go      string    // version of the compiler
}

// BuildInfo returns the values that packagers have given to the linker, and for the rest the Go
// tool's values in the binary. They are there after a build in a repository without
// -buildvcs=false.
func BuildInfo() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildFrom(info, buildVersion, buildCommit, buildDate)
}

func buildFrom(info *debug.BuildInfo, version, commit, date string) Build {
	b := Build{Version: cmp.Or(version, Version), Commit: commit, Go: info.GoVersion}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if b.Commit == "" {
		revision := settings["vcs.revision"]
		b.Commit = revision[:min(len(revision), 12)]
		b.Changed = b.Commit != "" && settings["vcs.modified"] == "true"
		date = cmp.Or(date, settings["vcs.time"])
	}
	if t, err := time.Parse(time.RFC3339, date); err == nil {
		b.Time = t.UTC()
	}
	return b
}

// unreadable are the characters that go-zookeeper cannot read in the version in zooKeeperLine.
var unreadable = regexp.MustCompile(`[^a-zA-Z0-9.-]`)

// zooKeeperLine is the build as srvr, stat, mntr and envi show it:
//
//	3.9.5-lockkeeper-0.1.0-0123456789ab, built on 11/21/2026 10:15 GMT
//
// ZooKeeper has written the date as 2026-11-21 10:15 UTC since 3.6, which go-zookeeper cannot read;
// all parsers that are known can read this older form (docs/protocol/clients.md section 5). They
// need a date, so an unknown one is shown as 01/01/1970 00:00, as of a clock that has not been set.
func (b Build) zooKeeperLine() string {
	v := ZooKeeperVersion + "-lockkeeper-" + b.Version
	if b.Commit != "" {
		v += "-" + b.Commit[:min(len(b.Commit), 12)]
	}
	if b.Changed {
		v += "-dirty"
	}
	t := b.Time
	if t.IsZero() {
		t = time.Unix(0, 0).UTC()
	}
	return unreadable.ReplaceAllString(v, "-") + ", built on " + t.Format("01/02/2006 15:04") + " GMT"
}
