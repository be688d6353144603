package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"lockkeeper/quorum"
)

// withAdvice adds what an operator can do about files that cannot be used.
func (s *Server) withAdvice(err error) error {
	advice := ""
	switch {
	case errors.Is(err, quorum.ErrDamaged):
		advice = s.rebuildAdvice()
	case errors.Is(err, quorum.ErrFormat):
		advice = "start the version of lockkeeper that wrote it"
	case errors.Is(err, fs.ErrPermission):
		advice = "the file must belong to the user that runs lockkeeper, and be readable and writable for that user"
	case errors.Is(err, syscall.EROFS):
		advice = "the file system is mounted read-only; a kernel does that to one that it found damaged"
	case errors.Is(err, syscall.ENOSPC), quorum.IsStarved(err):
		return fmt.Errorf("server: %w: %w", ErrDiskFull, err)
	default:
		return err
	}
	return fmt.Errorf("server: %w\n%s", err, advice)
}

// rebuildAdvice is how a member with damaged files comes back.
func (s *Server) rebuildAdvice() string {
	logs, snaps := s.logFiles(), filepath.Join(s.cfg.DataDir, snapshotsDir)
	if s.cfg.Standalone() {
		return fmt.Sprintf("This member is alone, so nobody else has its data: put back a backup of %s and %s (docs/operations.md, \"Damaged files\").", strings.Join(logs, ", "), snaps)
	}
	return fmt.Sprintf(`To rebuild member %d from the others, while a majority of the whole cluster runs without it:
  1. leave this member stopped; lockkeeper cluster remove %d -servers ANOTHER-MEMBER
  2. move %s and %s away
  3. start this member; lockkeeper cluster add ITS-SERVER-LINE -servers ANOTHER-MEMBER
Never delete the files and just start again: this member has given its word for what they held, and with an empty
log it could help to elect a leader that does not have it (docs/operations.md, "Damaged files").`,
		s.cfg.ID, s.cfg.ID, strings.Join(logs, ", "), snaps)
}

// logFiles are the files and directories of the log, with the term and the vote, that are there.
func (s *Server) logFiles() []string {
	names := []string{filepath.Join(s.cfg.DataLogDir, logFile)}
	if segments := filepath.Join(s.cfg.DataLogDir, segmentsDir); exists(segments) {
		names = append(names, segments)
	}
	return names
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
