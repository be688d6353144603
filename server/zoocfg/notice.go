package zoocfg

import (
	"context"
	"log/slog"
	"slices"

	"lockkeeper/quorum"
	"lockkeeper/znode"
)

// Notice is something about the configuration that an operator should know and that does not stop the
// start.
type Notice struct {
	Level slog.Level // Info or Warn
	File  string
	Line  int    // 0 when it is not about any one line
	Key   string // "" when it is not about any one key
	Text  string
}

// Notices are what Load found, and what is to be said about the number of voters. Start writes them to
// the Logger.
func (c *Config) Notices() []Notice {
	notices := slices.Clone(c.notices)
	n := znode.Voters(c.Members)
	if n < 2 {
		return notices
	}
	if text := quorum.NewMaj(n).EvenWarning(); text != "" {
		notices = append(notices, Notice{Level: slog.LevelWarn, File: c.File, Text: text})
	}
	return notices
}

// String is the notice as "file:line: key: warning: text", without what it is not about.
func (n Notice) String() string {
	kind := "warning: "
	if n.Level < slog.LevelWarn {
		kind = "note: "
	}
	key := n.Key
	if key != "" {
		key += ": "
	}
	return place(n.File, n.Line) + key + kind + n.Text
}

// Log writes the notice to a logger.
func (n Notice) Log(l *slog.Logger) {
	var args []any
	if n.File != "" {
		args = append(args, "file", n.File)
	}
	if n.Line > 0 {
		args = append(args, "line", n.Line)
	}
	if n.Key != "" {
		args = append(args, "key", n.Key)
	}
	l.Log(context.Background(), n.Level, n.Text, args...)
}

// Warning is a warning at the place where key stands, if it stands anywhere.
func (c *Config) Warning(key, format string, args ...any) Notice {
	f := c.Fault(key, format, args...)
	return Notice{Level: slog.LevelWarn, File: f.File, Line: f.Line, Key: f.Key, Text: f.Reason}
}
