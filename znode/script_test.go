package znode

import (
	"bufio"
	"cmp"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"lockkeeper/wire"
)

var update = flag.Bool("update", false, "write what the scripts in testdata give as their expected output")

// TestScripts runs the conversations in testdata. A line "> command" is followed by what the Store
// answers; lines "| op" after a multi are its ops. testdata/README.md lists the commands.
//
// Defends: C2.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, file, string(text))
			if got == string(text) {
				return
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Error(firstDifference(file, string(text), got))
		})
	}
}

// firstDifference shows where two versions of a script part.
func firstDifference(file, want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		if i >= len(w) || i >= len(g) || w[i] != g[i] {
			from := max(0, i-6)
			return fmt.Sprintf("%s:%d: want\n%s\ngot\n%s", file, i+1,
				strings.Join(w[min(from, len(w)):min(i+4, len(w))], "\n"),
				strings.Join(g[min(from, len(g)):min(i+4, len(g))], "\n"))
		}
	}
	return "no difference"
}

// script is a script that is being run.
type script struct {
	*driver
	where string // file and line of the command
	out   strings.Builder
}

// runScript returns text with the answers that the Store gives now.
func runScript(t *testing.T, file, text string) string {
	sc := &script{driver: newDriver(t)}
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	var block []string // a command and its "|" lines
	flush := func() {
		if len(block) > 0 {
			sc.run(block)
			block = nil
		}
	}
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "|"):
			block = append(block, line)
			fmt.Fprintln(&sc.out, line)
		case strings.HasPrefix(line, "> "):
			flush()
			sc.where = fmt.Sprintf("%s:%d", file, n)
			block = []string{line}
			fmt.Fprintln(&sc.out, line)
		case line == "" || strings.HasPrefix(line, "#"):
			flush()
			fmt.Fprintln(&sc.out, line)
		}
		// Everything else is an answer, which is made anew.
	}
	flush()
	return sc.out.String()
}

func (sc *script) printf(format string, args ...any) { fmt.Fprintf(&sc.out, "  "+format+"\n", args...) }

func (sc *script) fatalf(format string, args ...any) {
	sc.t.Helper()
	sc.t.Fatalf("%s: "+format, append([]any{sc.where}, args...)...)
}

// sessionID returns the id for a name such as s1.
func (sc *script) sessionID(name string) wire.SessionID {
	n, err := strconv.ParseInt(strings.TrimPrefix(name, "s"), 0, 64)
	if err != nil {
		sc.fatalf("no session %q", name)
	}
	return wire.SessionID(n)
}

// run runs one command.
func (sc *script) run(block []string) {
	a := sc.parse(strings.TrimPrefix(block[0], ">"))
	sc.timeMs += 1000
	sc.clockMs += 1000
	switch a.word(0) {
	case "open":
		sc.open(a)
	case "attach":
		sc.attach(a)
	case "expire":
		id := sc.sessionID(a.word(1))
		sc.result(sc.apply(Command{Session: id, Generation: uint64(a.num("gen", int64(sc.generation(id)))), Body: &Expire{}})[0])
	case "members":
		sc.result(sc.apply(Command{Body: &SetMembers{Text: a.word(1)}})[0])
	case "set":
		sc.set(a)
	case "get", "exists", "children", "acl", "below", "ephemerals", "session", "counts":
		sc.read(a)
	default:
		sc.result(sc.apply(sc.requestOf(a, block[1:]))[0])
	}
}

func (sc *script) generation(id wire.SessionID) uint64 {
	if c := sc.conns[id]; c != nil {
		return c.generation
	}
	return 1
}

func (sc *script) open(a *args) {
	id := sc.sessionID(a.word(1))
	before := sc.conns[id]
	cmd := sc.driver.open(id)
	cmd.by().Password = a.password(cmd.by().Password)
	cmd.by().TimeoutMs = int32(a.num("timeout", 4000))
	cmd.by().Addr = a.text("addr", cmd.by().Addr)
	r := sc.apply(cmd)[0]
	if before != nil && r.Status != Done {
		sc.conns[id] = before
	}
	sc.result(r)
}

func (sc *script) attach(a *args) {
	id := sc.sessionID(a.word(1))
	c := sc.conns[id]
	if c == nil {
		c = &conn{generation: 1}
	}
	r := sc.apply(Command{
		Session:    id,
		Generation: uint64(a.num("gen", int64(c.generation))),
		Seq:        1<<63 | 7,
		Body:       &Attach{Connection: Connection{TimeoutMs: int32(a.num("timeout", 4000)), Password: a.password(c.password), Addr: a.text("addr", "10.0.0.2")}},
	})[0]
	if r.Status == Done {
		c.generation, c.seq = r.Generation, 0
	}
	sc.result(r)
}

// set changes the surroundings of the Store: set time=5000 clock=5000 term=2
// flags=quota,ttl,skipacl,nodigest,x509,sasl,key.
func (sc *script) set(a *args) {
	sc.timeMs = a.num("time", sc.timeMs)
	sc.clockMs = a.num("clock", sc.clockMs)
	sc.term = uint64(a.num("term", int64(sc.term)))
	if v, ok := a.named["flags"]; ok {
		sc.flags = 0
		for _, f := range strings.Split(v, ",") {
			sc.flags |= map[string]Flags{"": 0, "quota": EnforceQuota, "ttl": ExtendedTypes, "skipacl": SkipACL, "nodigest": NoDigest, "x509": X509, "sasl": SASL, "key": KeyScheme}[f]
		}
	}
}

// requestOf returns the request that a line asks for, by default the session's next.
func (sc *script) requestOf(a *args, sub []string) Command {
	id := sc.sessionID(a.word(0))
	if sc.conns[id] == nil {
		sc.conns[id] = &conn{generation: 1}
	}
	op, rec := a.record(1)
	if op == wire.OpMulti {
		var m wire.MultiRequest
		for _, line := range sub {
			op, rec := sc.parse(strings.TrimPrefix(line, "|")).record(0)
			m.Ops = append(m.Ops, wire.MultiOp{Op: op, Record: rec})
		}
		rec = m
	}
	cmd := sc.driver.request(id, op, rec)
	// A line says all that the connection has shown. The state keeps what an earlier line said,
	// unless something replaces it.
	conn := sc.conns[id]
	cmd.req().Identities = a.ids()
	if len(cmd.req().Identities) == 0 && conn.shown {
		cmd.req().Identities = []Identity{{"nobody", ""}}
	}
	conn.shown = len(cmd.req().Identities) > 0
	if _, explicit := a.named["seq"]; explicit {
		sc.conns[id].seq-- // the next one without it goes on where this one would have been
	}
	cmd.Seq = uint64(a.num("seq", int64(cmd.Seq)))
	cmd.Generation = uint64(a.num("gen", int64(cmd.Generation)))
	if v, ok := a.named["cut"]; ok { // all but that number of bytes of the body
		n, _ := strconv.Atoi(v)
		cmd.req().Body = cmd.req().Body[:len(cmd.req().Body)-n]
	}
	if v, ok := a.named["body"]; ok {
		cmd.req().Body, _ = hex.DecodeString(v)
	}
	return cmd
}

// result prints the outcome of a command.
func (sc *script) result(r Result) {
	if r.Status != Done {
		sc.printf("%v%s at %v", r.Status, generationText(r.Generation), r.Zxid)
		return
	}
	line := fmt.Sprintf("%v at %v", r.Code, r.Zxid)
	if r.Path != "" {
		line += " " + quote(r.Path)
	}
	sc.printf("%s", line)
	sc.stat("", r.Stat)
	for _, m := range r.Multi {
		sc.printf("| %s", strings.TrimSpace(fmt.Sprintf("%v %v %s", m.Op, m.Code, quote(m.Path))))
		sc.stat("  ", m.Stat)
	}
	for _, e := range r.Events {
		sc.printf("%v %s%s", e.Type, quote(e.Path), aclText(e.ACL))
		if e.Zxid != r.Zxid {
			sc.fatalf("event at %v in a result at %v", e.Zxid, r.Zxid)
		}
	}
}

func generationText(g uint64) string {
	if g == 0 {
		return ""
	}
	return fmt.Sprintf(" generation %d", g)
}

// quote returns a path as it is if that can be read.
func quote(path string) string {
	if q := strconv.Quote(path); q != `"`+path+`"` || strings.Contains(path, " ") {
		return q
	}
	return path
}

// aclText is empty for the open ACL, which nearly all nodes have.
func aclText(acl []wire.ACL) string {
	if slices.Equal(acl, wire.OpenACL) {
		return ""
	}
	var items []string
	for _, e := range acl {
		perms := strconv.Itoa(int(e.Perms))
		if e.Perms <= wire.PermAll {
			perms = ""
			for i, c := range permLetters {
				if e.Perms&(1<<i) != 0 {
					perms += string(c)
				}
			}
		}
		items = append(items, perms+":"+e.Scheme+":"+e.ID.ID)
	}
	return " acl=" + strings.Join(items, ",")
}

func (sc *script) stat(indent string, s wire.Stat) {
	if s == (wire.Stat{}) {
		return
	}
	text := fmt.Sprintf("v=%d cv=%d av=%d czxid=%v mzxid=%v pzxid=%v ctime=%d mtime=%d len=%d children=%d",
		s.Version, s.Cversion, s.Aversion, s.Czxid, s.Mzxid, s.Pzxid, s.Ctime, s.Mtime, s.DataLength, s.NumChildren)
	if s.EphemeralOwner != 0 {
		text += fmt.Sprintf(" owner=%v", s.EphemeralOwner)
	}
	sc.printf("%s", indent+text)
}

// read answers a read. The identities of a reader are those that as= gives, and the address that
// addr= gives.
func (sc *script) read(a *args) {
	ids := append([]Identity{{schemeIP, a.text("addr", "10.0.0.1")}}, a.ids()...)
	switch a.word(0) {
	case "get":
		data, stat, code := sc.s.Get(a.word(1), ids)
		text := strconv.Quote(string(data))
		if data == nil {
			text = "null"
		}
		if code != wire.CodeOK {
			text = ""
		}
		sc.printf("%s", strings.TrimSpace(fmt.Sprintf("%v %s", code, text)))
		sc.stat("", stat)
	case "exists":
		stat, code := sc.s.Exists(a.word(1), ids)
		sc.printf("%v", code)
		sc.stat("", stat)
	case "children":
		names, _, code := sc.s.Children(a.word(1), ids)
		sort.Strings(names)
		sc.printf("%s", strings.TrimSpace(fmt.Sprintf("%v %s", code, strings.Join(names, " "))))
	case "acl":
		acl, _, code := sc.s.GetACL(a.word(1), ids)
		if code != wire.CodeOK {
			sc.printf("%v", code)
			return
		}
		sc.printf("%v%s", code, aclText(acl))
	case "below":
		n, code := sc.s.AllChildrenNumber(a.word(1), ids)
		sc.printf("%v %d", code, n)
	case "ephemerals":
		sc.printf("%s", cmp.Or(strings.Join(sc.s.Ephemerals(sc.sessionID(a.word(1))), " "), "none"))
	case "session":
		info, ok := sc.s.Sessions().Get(sc.sessionID(a.word(1)))
		if !ok {
			sc.printf("none")
			return
		}
		sc.printf("generation %d seq %d timeout %d addr %s ephemerals %d",
			info.Generation, info.LastSeq, info.TimeoutMs, info.Addr, info.Ephemerals)
	case "counts":
		sc.printf("%+v", sc.s.Counts())
	}
}
