package door

import (
	"bytes"
	stdlog "log"
	"log/slog"
)

// httpErrors writes the messages of net/http to a member's log. By default it writes to standard
// error, where nothing bounds the lines, and its messages vary with the client.
type httpErrors struct{ log *slog.Logger }

// maxHTTPError limits the bytes of a message in the log: one about a panic has the whole stack.
const maxHTTPError = 4 << 10

// Write implements io.Writer.
func (e httpErrors) Write(b []byte) (int, error) {
	e.log.Warn("HTTP server", "text", string(bytes.TrimSpace(b[:min(len(b), maxHTTPError)])))
	return len(b), nil
}

// errorLog is the log of an http.Server.
func (d *Door) errorLog() *stdlog.Logger { return stdlog.New(httpErrors{d.cfg.Log}, "", 0) }
