//go:build trace

package server

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"lockkeeper/quorum/model/trace"
	"lockkeeper/quorum/store"
)

// traceDir is the variable with the directory for the events of all members.
const traceDir = "LOCKKEEPER_TRACE"

// record has the member's acts on its disk, and towards its peers, written into a file, for package
// quorum/model/trace to explain.
func (s *Server) record(stores *store.Stores) error {
	dir := os.Getenv(traceDir)
	if dir == "" {
		return nil
	}
	f, err := trace.Create(dir, sinceBoot)
	if err != nil {
		return fmt.Errorf("%s: %w", traceDir, err)
	}
	r, err := trace.Record(stores, s.cfg.QuorumMembers(), f.Write)
	if err != nil {
		return err
	}
	s.cfg.Machine.Recorder = r
	return nil
}

// sinceBoot is a clock that all processes of a machine have in common, and that is never set.
func sinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // every system that has the clock reads it
	}
	return time.Duration(now.Nano())
}
