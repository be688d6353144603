package znode

import (
	"testing"

	"lockkeeper/wire"
)

// TestRegistryAlone: a registry counts generations and seqs and keeps ephemerals without a tree, as
// the table in the package comment has it.
func TestRegistryAlone(t *testing.T) {
	const id = wire.SessionID(0x11 << 48)
	r := newRegistry()
	by := &Connection{TimeoutMs: 1000, Addr: "10.0.0.1"}
	var res Result
	if !r.create(id, by, &res) || res.Generation != 1 {
		t.Fatalf("%+v", res)
	}
	for _, step := range []struct {
		generation, seq uint64
		attach          bool
		want            Status
		after           uint64 // the generation
	}{
		{1, 1, false, Done, 1},
		{1, 3, false, Gap, 1},
		{1, 2, false, Done, 1},
		{1, 2, false, Duplicate, 1},
		{1, 0, true, Done, 2},
		{1, 0, true, Moved, 2},
		{1, 3, false, Moved, 2},
		{2, 1, false, Done, 2},
	} {
		res = Result{}
		c := &Command{Session: id, Generation: step.generation, Seq: step.seq}
		if step.attach {
			r.attach(c, by, &res)
		} else if _, ok := r.next(c, &res); ok != (step.want == Done) {
			t.Errorf("%+v: %v", step, ok)
		}
		if res.Status != step.want || res.Generation != step.after {
			t.Errorf("%+v: %v, generation %d", step, res.Status, res.Generation)
		}
	}
	if all, there := r.Counts("10.0.0.1"); all != 1 || there != 1 {
		t.Errorf("%d sessions, %d at the address", all, there)
	}

	for i, bytes := range []int{2, 3, 4} {
		if at := r.own(id, slot(10+i), bytes); at != int32(i) {
			t.Errorf("index %d of ephemeral %d", at, i)
		}
	}
	if moved := r.disown(id, 0, 2); moved != 12 || r.EphemeralCount(id) != 2 || r.EphemeralsBytes(id) != 3+4+2*4 {
		t.Errorf("%d moved, %d are left with %d bytes", moved, r.EphemeralCount(id), r.EphemeralsBytes(id))
	}
	r.disown(id, 0, 4)
	r.disown(id, 0, 3)

	i, _ := r.current(&Command{Session: id, Generation: 2}, &res)
	r.remove(i)
	if _, ok := r.Get(id); ok {
		t.Error("the session is still there")
	}
	if res = (Result{}); !r.create(id, by, &res) || res.Generation != 3 {
		t.Errorf("the next session of that id has generation %d, want one above all before", res.Generation)
	}
}
