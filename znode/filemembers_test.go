package znode

import (
	"slices"
	"strings"
	"testing"

	"lockkeeper/wire"
)

// Configuration files change the members as long as reconfig never was enabled, and only when the
// leader asks for a change: its lines alone change addresses.
func TestMembersOfFiles(t *testing.T) {
	lines := func(hosts string) []byte {
		var ms []Member
		for i, host := range strings.Fields(hosts) {
			ms = append(ms, Member{ID: uint8(i + 1), Host: host, PeerPort: 2888, ElectionPort: 3888})
		}
		return []byte(ConfigText(ms, 0))
	}
	s := New()
	apply := func(flags Flags, c Command) (r Result) {
		s.Apply(1, &Entry{Stamp: Stamp{TimeMs: 1, Flags: flags}, Commands: []Command{c}}, func(_ *Command, res *Result) { r = *res })
		return r
	}
	hosts := func() string {
		var list []string
		ms, _ := s.Members()
		for _, m := range ms {
			list = append(list, m.Host)
		}
		return strings.Join(list, " ")
	}
	const seq = 1<<63 | 7
	change := func(list string) Command { return Command{Seq: seq, Body: &ChangeMembers{Text: string(lines(list))}} }
	end := Command{Generation: fileGeneration, Seq: seq, Body: &Reconfigured{}}

	if apply(0, change("a b")); s.Change() != nil {
		t.Error("a change before there are members")
	}
	apply(0, Command{Body: &SetMembers{Text: string(lines("a b c"))}})
	if apply(0, Command{Body: &SetMembers{Text: string(lines("a b c d"))}}); hosts() != "a b c" {
		t.Errorf("the leader's lines alone make members: %s", hosts())
	}
	if apply(0, change("a b x")); s.Change() != nil {
		t.Error("a change of addresses is a change of members")
	}
	if r := apply(0, change("a b c d")); !r.Deferred || s.Change() == nil || !s.Change().FromFiles() || hosts() != "a b c" {
		t.Fatalf("%+v, change %+v, members %s", r, s.Change(), hosts())
	}
	apply(0, change("a b"))
	apply(0, Command{Body: &SetMembers{Text: string(lines("x y z"))}})
	snap := s.Snapshot()
	var out strings.Builder
	if _, err := snap.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	snap.Release()
	restored, err := Restore(strings.NewReader(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	if ch := restored.Change(); ch == nil || !ch.FromFiles() || !slices.Equal(ch.Members, s.Change().Members) {
		t.Errorf("restored: %+v", ch)
	}
	apply(0, end)
	if _, version := s.Members(); version != 0 || hosts() != "a b c d" || s.Change() != nil {
		t.Errorf("version %v, members %s", version, hosts())
	}
	apply(0, change("a b c"))
	if apply(0, Command{Generation: fileGeneration, Seq: seq, Body: &Reconfigured{Code: wire.CodeNewConfigNoQuorum}}); hosts() != "a b c d" || s.Change() != nil {
		t.Errorf("members %s after a change that failed", hosts())
	}
	if apply(Reconfig, change("a b c")); s.Change() != nil {
		t.Error("files count though reconfig is enabled")
	}
	apply(Reconfig, Command{Body: &SetMembers{Text: string(lines("a b c d"))}})
	if apply(0, change("a b c")); s.Change() != nil {
		t.Error("files count though reconfig was enabled")
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
