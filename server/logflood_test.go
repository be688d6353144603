package server

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/wire"
)

// Strangers at the ports cause a bounded number of lines, whatever they do; the member counts the
// suppressed ones.
//
// Defends: C9.
func TestStrangersCannotFillTheLog(t *testing.T) {
	var out lockedBuffer
	dir := t.TempDir()
	s := startReal(t, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
		c.HTTP.Addr = "127.0.0.1:0"
		c.Data.Dir = dir
		c.Client.MaxCnxnsPerAddr = -1
	})
	const each = 200
	holder := dialReal(t, s)
	holder.connect(10 * time.Second)
	handshake := func(id wire.SessionID, password []byte) *rawClient {
		c := dialReal(t, s)
		c.req = wire.ConnectRequest{TimeoutMs: 10_000, SessionID: id, Password: password}
		c.put(wire.AppendFrame(nil, c.req)...)
		return c
	}
	for i := range each {
		none := make([]byte, wire.PasswordLen)
		handshake(wire.SessionID(1<<60|i), none).response()
		_, _ = wire.ReadFrame(handshake(holder.id.SessionID, none), nil, 1<<10)
		moved := handshake(holder.id.SessionID, holder.id.Password) // ends the connection before
		moved.response()
		moved.call(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("super:guess")})
		moved.put(moved.request(wire.OpAuth, wire.AuthPacket{Scheme: "none"})...)
		moved.reply()
		resp, err := http.Post("http://"+s.HTTPAddr().String()+"/api/v1/act", "application/json",
			strings.NewReader(`{"act":"break","path":"/l","confirm":"/l"}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	byMessage := map[string]int{}
	for line := range strings.Lines(out.String()) {
		_, rest, _ := strings.Cut(line, "msg=")
		msg, _, _ := strings.Cut(strings.TrimPrefix(rest, `"`), `"`)
		byMessage[msg]++
	}
	for msg, n := range byMessage {
		if n > 60 {
			t.Errorf("%d lines %q", n, msg)
		}
	}
	if n := s.lines.Suppressed(); n == 0 {
		t.Errorf("nothing was suppressed: %v", byMessage)
	}
	s.lines.Flush()
	if !strings.Contains(out.String(), "suppressed=") {
		t.Error("no line says what was suppressed")
	}
}
