package server

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"lockkeeper/session/sasl"
	"lockkeeper/wire"
)

// forged is a text that begins a line of its own, goes back to the start of one, moves to another
// field of the audit log, gives a terminal orders, and reverses the direction of text.
const forged = "eve\nFORGED\r\nFORGED\rFORGED\u2028FORGED\x1b[2K\x1b[1AFORGED\u0085FORGED\u009b2K\u202eFORGED\tresult=success"

// forgeries are requests of clients with forged wherever a client may write a text.
func forgeries() (requests [][]byte) {
	add := func(op wire.Op, body wire.Record) {
		requests = append(requests, wire.AppendRequest(nil, wire.Xid(len(requests)+1), op, body))
	}
	for _, field := range []string{"realm", "username", forged} {
		add(wire.OpSASL, wire.SASLRequest{Token: []byte{}})
		add(wire.OpSASL, wire.SASLRequest{Token: fmt.Appendf(nil, "username=\"bob\",%s=\"%s\"", field, forged)})
	}
	add(wire.OpSASL, wire.SASLRequest{Token: []byte(forged)})
	for _, scheme := range []string{"digest", "ensemble", "key", "ip", "sasl", "x509", "super", forged} {
		add(wire.OpAuth, wire.AuthPacket{Scheme: scheme, Auth: []byte(forged + ":pw")})
	}
	add(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("super:" + forged)})
	paths := []string{"/" + forged, forged, "/a/" + forged}
	for _, path := range paths {
		add(wire.OpCreate, create(path, nil, wire.ModePersistent))
		add(wire.OpDelete, wire.DeleteRequest{Path: path, Version: -1})
		add(wire.OpSetData, wire.SetDataRequest{Path: path, Version: -1})
		add(wire.OpSetACL, wire.SetACLRequest{Path: path, ACL: wire.OpenACL, Version: -1})
		add(wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpCreate, Record: create(path, nil, wire.ModeEphemeral)}}})
		add(wire.OpExists, wire.PathWatchRequest{Path: path, Watch: true})
		add(wire.OpAddWatch, wire.AddWatchRequest{Path: path, Mode: wire.AddWatchPersistentRecursive})
		add(wire.OpGetEphemerals, wire.GetEphemeralsRequest{PrefixPath: path})
	}
	add(wire.OpSetWatches, wire.SetWatchesRequest{Data: []string{}, Exist: paths, Child: []string{}})
	for _, id := range []wire.ID{{Scheme: "digest", ID: forged + ":hash"}, {Scheme: "x509", ID: "CN=" + forged}, {Scheme: forged, ID: forged}} {
		add(wire.OpCreate, &wire.CreateRequest{Path: "/acl-", Mode: wire.ModePersistentSequential,
			ACL: []wire.ACL{{Perms: wire.PermAll, ID: wire.OpenACL[0].ID}, {Perms: wire.PermRead, ID: id}}})
		add(wire.OpSetACL, wire.SetACLRequest{Path: "/a", Version: -1,
			ACL: []wire.ACL{{Perms: wire.PermAll, ID: wire.OpenACL[0].ID}, {Perms: wire.PermRead, ID: id}}})
	}
	add(wire.OpReconfig, wire.ReconfigRequest{Joining: forged, Leaving: forged, CurConfigID: -1})
	return requests
}

// isControl reports whether a text for programs should not have a rune, and isHidden whether one
// for people should not. Tabs may stand between fields.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F }
func isHidden(r rune) bool  { return r != '\t' && !unicode.IsPrint(r) }

// checkLines reports whatever of forged stands where readers of lines, or a terminal, take it for
// something else.
func checkLines(t *testing.T, where, text string, bad func(rune) bool) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "FORGED") {
			t.Errorf("%s has a forged line: %q", where, line)
		}
		if at := strings.IndexFunc(line, bad); at >= 0 {
			t.Errorf("%s has what a reader should not see: %q", where, line[max(0, at-40):])
		}
	}
}

// CVE-2026-84501 and CVE-2026-84439, as kinds: no text of a client makes a line of its own, or a
// field of its own, in the log at any level, in the audit log, or in the answer to a four-letter
// word, and answers over HTTP are JSON.
func TestNobodyForgesALine(t *testing.T) {
	var log lockedBuffer
	audit := filepath.Join(t.TempDir(), "audit.log")
	s := startReal(t, func(c *Config) {
		allWords(c)
		superSettings(c)
		c.HTTP.Addr, c.Audit.On, c.Audit.File = "127.0.0.1:0", true, audit
		c.Auth.Ensembles, c.Auth.KeyScheme, c.Auth.SASLUsers = []string{"alpha"}, true, sasl.Users{"bob": sasl.NewHA1("bob", "secret")}
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	first := dialReal(t, s)
	first.connect(10 * time.Second)
	first.call(wire.OpCreate, create("/a", nil, wire.ModePersistent))
	first.call(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte(forged + ":pw")})
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	for _, request := range forgeries() {
		// Other tests check the answers; some of the requests end the connection.
		if _, err := c.Write(request); err == nil {
			if _, err = wire.ReadFrame(c, nil, 1<<20); err == nil {
				continue
			}
		}
		_ = c.Close()
		c = dialReal(t, s)
		c.connect(10 * time.Second)
	}
	for _, path := range []string{"/" + forged, forged} {
		first.put(first.request(wire.OpExists, wire.PathWatchRequest{Path: path, Watch: true})...)
		first.reply()
		first.call(wire.OpAddWatch, wire.AddWatchRequest{Path: path, Mode: wire.AddWatchPersistentRecursive})
	}
	first.call(wire.OpSetACL, wire.SetACLRequest{Path: "/a", Version: -1, ACL: []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "auth"}}}})

	for _, word := range []string{"wchp", "wchc", "dump", "cons", "stat", "mntr", "conf", "envi", "srvr"} {
		c := dialReal(t, s)
		checkLines(t, word, c.word(word), isHidden)
		_ = c.Close() // or those that list something would wait for it
	}
	for _, request := range []string{
		"GET /commands/watches HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"GET /api/v1/lock?path=%2Feve%0AFORGED%1b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"GET /%0AFORGED%1b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nUser-Agent: \x1bFORGED\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Eve: a\rFORGED\x1b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: \x1beve\r\n\r\n",
		"GET /commands/ruok HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: digest super:\x9bFORGED\r\n\r\n",
		"POST /commands/restore?of=%0AFORGED HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", s.HTTPAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, request)
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Errorf("%q: %v", request, err)
		}
		checkLines(t, request, strings.ReplaceAll(string(answer), "\r\n", "\n"), isControl)
		_ = conn.Close()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	checkLines(t, "the log", log.String(), isHidden)
	checkLines(t, "the audit log", string(text), isHidden)
	for line := range strings.Lines(string(text)) {
		var keys []string
		for field := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), "\t") {
			key, _, ok := strings.Cut(field, "=")
			if !ok || slices.Contains(keys, key) {
				t.Errorf("field %q in the audit log: %q", field, line)
			}
			keys = append(keys, key)
		}
	}
	if !strings.Contains(string(text), "FORGED") || !strings.Contains(log.String(), "FORGED") {
		t.Error("the requests have left no trace")
	}
}
