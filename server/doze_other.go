//go:build !linux

package server

import "log/slog"

// dozer is for Linux.
type dozer struct{}

func newDozer(*slog.Logger, func(*conn), func(*conn) bool) *dozer { return nil }

func (*dozer) doze(*conn) bool { return false }

func (*dozer) rouse(*conn) {}

func (*dozer) close() {}

func (*conn) takePing() bool { return false }
