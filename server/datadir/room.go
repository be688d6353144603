package datadir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"lockkeeper/quorum/store"
	"lockkeeper/server/zoocfg"
)

// ErrDiskFull is wrapped by Server.Err when the member has stopped because its log has no room.
// Nothing is lost: when AwaitRoom returns, the member can be started again.
var ErrDiskFull = store.ErrDiskFull

const (
	// roomBytes is how much must be free before a member with a full disk starts again: many large
	// entries.
	roomBytes = 16 << 20
	// roomFile is written to find out whether there is room: a quota shows only in a write.
	roomFile      = "lockkeeper.room"
	roomCheck     = time.Second
	roomLogPeriod = time.Minute
)

// AwaitRoom waits until 16 MiB can be written where the log of cfg is, or ctx ends. It logs the
// reason once a minute.
func AwaitRoom(ctx context.Context, cfg zoocfg.Config) error {
	cfg = cfg.WithDefaults()
	from := time.Now()
	ticker := time.NewTicker(roomCheck)
	defer ticker.Stop()
	var logged time.Time
	for {
		err := probeRoom(cfg.Data.LogDir)
		if err == nil {
			cfg.Logger.Info("the disk has room again, this member starts",
				"dir", cfg.Data.LogDir, "waited", time.Since(from).Round(time.Second))
			return nil
		}
		if time.Since(logged) >= roomLogPeriod {
			logRoom(cfg.Logger, cfg.Data.LogDir, err)
			logged = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func logRoom(log *slog.Logger, dir string, err error) {
	if store.IsStarved(err) {
		log.Error("no file descriptor left (ulimit -n): this member has stopped, it acknowledges nothing and serves "+
			"no clients until there is one, and then starts by itself", "err", err)
		return
	}
	free, ok := FreeBytes(dir)
	args := []any{"dir", dir, "neededBytes", roomBytes, "err", err}
	if ok {
		args = append(args, "FreeBytes", free)
	}
	log.Error("disk full: this member has stopped, it acknowledges nothing and serves no clients until there is "+
		"room, and then starts by itself", args...)
}

var errNoRoom = errors.New("too little is free")

// probeRoom returns nil if there is room. It leaves no file.
func probeRoom(dir string) error {
	if free, ok := FreeBytes(dir); ok && free < roomBytes {
		return errNoRoom
	}
	path := filepath.Join(dir, roomFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("server: look for room: %w", err)
	}
	block := make([]byte, 1<<20)
	for n := 0; n < roomBytes && err == nil; n += len(block) {
		_, err = f.Write(block)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close(), os.Remove(path)); err != nil {
		return fmt.Errorf("server: look for room: %w", err)
	}
	return nil
}
