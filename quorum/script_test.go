package quorum

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

var update = flag.Bool("update", false, "write what the scripts in testdata give as their expected output")

// TestScripts runs the conversations in testdata: a line "> command" is followed by what the
// cluster answers. testdata/README.md lists the commands.
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
			got := runScript(t, string(text))
			if got == string(text) {
				return
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s gives\n%s", file, got)
		})
	}
}

// runScript returns text with the answers that the cluster gives now.
func runScript(t *testing.T, text string) string {
	var out strings.Builder
	var voters int
	_, size, _ := strings.Cut(text, "\n> cluster ") // the first command
	if _, err := fmt.Sscan(size, &voters); err != nil {
		t.Fatal(err)
	}
	inStopped(t, voters, scriptConfig(voters), func(_ *testing.T, c *cluster) {
		s := &script{cluster: c, voters: voters, seqs: map[int]uint64{}}
		for line := range strings.Lines(text) {
			switch command, ok := strings.CutPrefix(strings.TrimSpace(line), "> "); {
			case ok:
				out.WriteString(line)
				for answer := range strings.Lines(s.run(strings.Fields(command))) {
					out.WriteString("  " + answer)
				}
			case !strings.HasPrefix(line, "  "): // a comment, or an empty line
				out.WriteString(line)
			}
		}
	})
	return out.String()
}

// scriptConfig has member 1 win the elections that are held for want of a heartbeat: it waits for
// half as long as the others. The members can be changed.
func scriptConfig(voters int) func(*Config) {
	var lines []znode.Member
	for i := range voters {
		lines = append(lines, line(i, false))
	}
	return func(cfg *Config) {
		cfg.Flags |= znode.Reconfig
		cfg.Tick = 4 * time.Second
		if cfg.ID == 1 {
			cfg.Tick = 2 * time.Second
		}
		all := slices.Clone(lines)
		for _, m := range cfg.Members[voters:] { // one that joins
			all = append(all, line(int(m.ID)-1, m.Observer))
		}
		cfg.ConfigText = znode.ConfigText(all, 0)
	}
}

// script is a script that is being run.
type script struct {
	*cluster
	voters int
	seqs   map[int]uint64 // the newest request of each member's session
	open   []znode.Key    // commands of members that were cut off
}

// run carries out a command and returns the answer.
func (s *script) run(args []string) string {
	numbers := func(from int) (list []int) {
		for _, a := range args[from:] {
			if n, err := strconv.Atoi(a); err == nil {
				list = append(list, n-1)
			}
		}
		return list
	}
	each := func(f func(i int)) string {
		for _, i := range numbers(1) {
			f(i)
		}
		return ""
	}
	switch args[0] {
	case "cluster":
		return ""
	case "start":
		return each(s.start)
	case "stop":
		return each(s.stop)
	case "kill":
		return each(s.kill)
	case "cut":
		return each(s.isolate)
	case "heal":
		s.heal()
		for _, key := range s.open {
			s.applied(key)
		}
		s.open = nil
		return ""
	case "replace-disk":
		return each(s.wipe)
	case "join":
		return each(func(i int) { s.join(i, args[len(args)-1] == "observer") })
	case "taken-in":
		return each(s.takenIn)
	case "wait":
		d, err := time.ParseDuration(args[1])
		s.must(err)
		time.Sleep(d) // virtual
		return ""
	case "lead":
		return s.lead(numbers(1)[0])
	case "leader":
		return s.lead(s.leader())
	case "create":
		return s.create(numbers(1)[0], args[2])
	case "add", "remove":
		return s.reconfigure(args[0], numbers(1)[0], args[2:])
	case "members":
		return s.table()
	case "log":
		return s.log(numbers(1)[0])
	}
	s.t.Fatalf("unknown command %q", args)
	return ""
}

// kill is kill -9 of a member. Its machine goes on and closes the connections.
func (s *script) kill(i int) {
	s.disks[i] = s.disks[i].Crash()
	s.net.Kill(hostName(i))
	s.stop(i) // what is left of the old program reaches neither the network nor the disk
}

// lead has a member lead, and waits until the others follow it and nothing is left to change.
func (s *script) lead(i int) string {
	if now := s.leader(); now != i {
		s.must(s.reps[now].TransferLeadership(s.ctx(time.Minute), MemberID(i+1), nil))
	}
	s.leader()
	s.settle()
	s.agree()
	return fmt.Sprintf("member %d\n", i+1)
}

// create has a member propose a create, in a session of its own, and waits until all members that
// can be reached have applied it. A member that is cut off proposes in vain.
func (s *script) create(i int, path string) string {
	id := wire.SessionID(i + 1)
	if s.seqs[i]++; s.seqs[i] == 1 {
		s.recs[i].result(s.t, s.propose(i, createSession(id)))
	}
	body := wire.CreateRequest{Path: path, Data: []byte{}, ACL: wire.OpenACL}.Append(nil)
	key := s.propose(i, &znode.Command{Session: id, Generation: 1, Seq: s.seqs[i], Body: &znode.Request{Op: wire.OpCreate, Body: body}})
	if s.cut[i] {
		s.open = append(s.open, key)
		return "proposed\n"
	}
	return "applied by " + s.applied(key) + "\n"
}

// applied waits until all members that can be reached have applied a command, and returns them.
func (s *script) applied(key znode.Key) string {
	var by []string
	for m, r := range s.reps {
		if r != nil && !s.cut[m] {
			s.recs[m].result(s.t, key)
			by = append(by, strconv.Itoa(m+1))
		}
	}
	return strings.Join(by, " ")
}

// reconfigure has a member request a change.
func (s *script) reconfigure(change string, i int, args []string) string {
	r, ctx := s.reps[i], s.ctx(time.Minute)
	n, err := strconv.Atoi(args[0])
	s.must(err)
	if change == "add" {
		err = r.AddMember(ctx, line(n-1, len(args) > 1))
	} else {
		err = r.RemoveMember(ctx, MemberID(n))
	}
	var code wire.Code
	if errors.As(err, &code) {
		return fmt.Sprintf("%v\n", code)
	}
	s.must(err)
	return "ok\n"
}

// table shows how each member sees itself and the cluster.
func (s *script) table() string {
	var b strings.Builder
	for i, r := range s.reps {
		switch {
		case r == nil:
			fmt.Fprintf(&b, "%d  stopped\n", i+1)
			continue
		case s.cut[i]:
			fmt.Fprintf(&b, "%d  cut off\n", i+1)
			continue
		}
		if r.Leader() != NoMember {
			s.awaitReady(i)
		}
		var nodes []string
		r.View(func(st *znode.Store) {
			list, _, _ := st.Children("/", nil)
			nodes = slices.DeleteFunc(list, func(name string) bool { return name == "zookeeper" })
		})
		slices.Sort(nodes)
		fmt.Fprintf(&b, "%d  %-8s  disk %-4d  counts %-6s  has %s\n", i+1, r.Status().Role, uint64(r.Disk()), cmp.Or(servers(r.Servers()), "none"), cmp.Or(strings.Join(nodes, " "), "nothing"))
	}
	return b.String()
}

// servers are the members of a configuration: a disk that is not the member's first one is named
// ("3/1003"), and an observer marked ("4o").
func servers(list []raft.Server) string {
	var names []string
	for _, s := range list {
		id, disk := raftnet.IDOf(s.ID), raftnet.DiskOf(s.ID)
		name := strconv.Itoa(int(id))
		if disk != peer.DiskID(id) {
			name += fmt.Sprintf("/%d", uint64(disk))
		}
		if s.Suffrage != raft.Voter {
			name += "o"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// log shows the log of a member.
func (s *script) log(i int) string {
	var b strings.Builder
	r := s.reps[i]
	for index := uint64(1); index <= r.raft.LastIndex(); index++ {
		var l raft.Log
		s.must(r.disk.GetLog(index, &l))
		fmt.Fprintf(&b, "%d/%d  %s\n", l.Term, index, s.entry(&l))
	}
	if b.Len() == 0 {
		return "empty\n"
	}
	return b.String()
}

// entry describes an entry of the log.
func (s *script) entry(l *raft.Log) string {
	switch l.Type {
	case raft.LogNoop:
		return "begin of the term"
	case raft.LogConfiguration:
		return "configuration " + servers(raft.DecodeConfiguration(l.Data).Servers)
	case raft.LogCommand:
		e, err := znode.DecodeEntry(l.Data)
		s.must(err)
		var names []string
		for _, c := range e.Commands {
			name := c.Kind().String()
			if q, ok := c.Body.(*znode.Request); ok {
				name = q.Op.String()
			}
			names = append(names, name)
		}
		return strings.Join(names, ", ")
	}
	return "barrier"
}
