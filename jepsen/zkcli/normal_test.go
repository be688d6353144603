package zkcli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	zxidLine    = regexp.MustCompile(`^((?:[cmp]Zxid|version) ?= ?)(?:0x)?([0-9a-f]+)$`)
	ownerLine   = regexp.MustCompile(`^(ephemeralOwner = )(0x[0-9a-f]+)$`)
	timeLine    = regexp.MustCompile(`^([cm]time = )(.*)$`)
	versionLine = regexp.MustCompile(`^(ZooKeeper CLI version: ).*$`)
	portNumber  = regexp.MustCompile(`\b(127\.0\.0\.1:)\d+(?::\d+)?\b`)
)

// epoch is the time of the nodes that every server begins with.
const epoch = "Thu Jan 01 00:00:00 UTC 1970"

// A normaliser replaces values that differ from run to run. Its names of zxids and sessions hold
// for one transcript.
type normaliser struct {
	zxids, sessions map[string]string
}

func newNormaliser() *normaliser {
	return &normaliser{zxids: make(map[string]string), sessions: make(map[string]string)}
}

// name is the name of value: prefix and a number.
func name(known map[string]string, prefix, value string) string {
	if known[value] == "" {
		known[value] = fmt.Sprintf("%s%d", prefix, len(known)+1)
	}
	return known[value]
}

// line normalises one line of output.
func (n *normaliser) line(line string) string {
	if m := zxidLine.FindStringSubmatch(line); m != nil && m[2] != "0" {
		return m[1] + name(n.zxids, "z", m[2])
	}
	if m := ownerLine.FindStringSubmatch(line); m != nil && isSession(m[2]) {
		return m[1] + name(n.sessions, "s", m[2])
	}
	if m := timeLine.FindStringSubmatch(line); m != nil && m[2] != epoch {
		return m[1] + "(time)"
	}
	if m := versionLine.FindStringSubmatch(line); m != nil {
		return m[1] + "(version)"
	}
	if line = strings.TrimRight(line, " "); line == "" {
		return emptyLine
	}
	return portNumber.ReplaceAllString(line, "${1}(port)")
}

// isSession tells a session from what stands for none, for a container and for a TTL.
func isSession(owner string) bool {
	return owner != "0x0" && owner != "0x8000000000000000" && !strings.HasPrefix(owner, "0xff")
}

// deleteFailed is the line that deleteall prints, or does not, when something could not be deleted:
// the client (3.8.0) sends its batches of deletes without waiting, and the callback for the last
// answer wakes the thread that prints before it takes note of the failure. So the line comes and
// goes from run to run, with ZooKeeper and with lockkeeper. A transcript shows the remaining nodes.
const deleteFailed = "Failed to delete some node(s) in the subtree!"

// block normalises the output of some commands. Lists in the order of a hash table are sorted:
// one's identities, the ephemeral nodes of a session, and the kinds of the watches that the client
// has removed.
func (n *normaliser) block(commands, lines []string) []string {
	var all []string
	for _, line := range lines {
		all = append(all, n.line(line))
	}
	if len(commands) != 1 || len(all) == 0 {
		return all
	}
	switch strings.Fields(commands[0])[0] {
	case "deleteall":
		all = slices.DeleteFunc(all, func(line string) bool { return line == deleteFailed })
	case "removewatches":
		slices.Sort(all)
	case "whoami":
		slices.Sort(all[1:])
	case "getEphemerals":
		if list, ok := strings.CutPrefix(all[0], "["); ok {
			paths := strings.Split(strings.TrimSuffix(list, "]"), ", ")
			slices.Sort(paths)
			all[0] = "[" + strings.Join(paths, ", ") + "]"
		}
	}
	return all
}

func TestNormalise(t *testing.T) {
	n := newNormaliser()
	got := n.block([]string{"x"}, strings.Split(`cZxid = 0x0
cZxid = 0x10
mZxid = 0x1f
pZxid = 0x10
ctime = Thu Jan 01 00:00:00 UTC 1970
mtime = Sat Nov 21 14:03:56 UTC 2026
ephemeralOwner = 0x0
ephemeralOwner = 0x100000a1b2c0000
ephemeralOwner = 0x8000000000000000
ephemeralOwner = 0xff00000000002710
ephemeralOwner = 0x100000a1b2c0001
ephemeralOwner = 0x100000a1b2c0000

server.1=127.0.0.1:25001:25002:participant;127.0.0.1:25000
version=100000000
ip: 127.0.0.1
dataLength = 10
ZooKeeper CLI version: 3.8.0--1, built on 2024-12-29 17:54 UTC`, "\n"))
	want := strings.Split(`cZxid = 0x0
cZxid = z1
mZxid = z2
pZxid = z1
ctime = Thu Jan 01 00:00:00 UTC 1970
mtime = (time)
ephemeralOwner = 0x0
ephemeralOwner = s1
ephemeralOwner = 0x8000000000000000
ephemeralOwner = 0xff00000000002710
ephemeralOwner = s2
ephemeralOwner = s1
(an empty line)
server.1=127.0.0.1:(port):participant;127.0.0.1:(port)
version=z3
ip: 127.0.0.1
dataLength = 10
ZooKeeper CLI version: (version)`, "\n")
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, c := range []struct{ command, printed, want string }{
		{"whoami", "Auth|ip: 1|digest: a", "Auth|digest: a|ip: 1"},
		{"getEphemerals", "[/b, /a]", "[/a, /b]"},
		{"getEphemerals /a", "[]", "[]"},
		{"getEphemerals a", "Path must", "Path must"},
		{"removewatches /a", "event b|event a", "event a|event b"},
		{"ls /", "[b, a]", "[b, a]"},
	} {
		if got := strings.Join(n.block([]string{c.command}, strings.Split(c.printed, "|")), "|"); got != c.want {
			t.Errorf("%s: got %s, want %s", c.command, got, c.want)
		}
	}
	if got := n.block([]string{"deleteall /a"}, []string{deleteFailed}); len(got) != 0 {
		t.Errorf("what comes and goes is kept: %q", got)
	}
}
