package quorum

import (
	"strings"
	"testing"

	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
	"lockkeeper/znode"
)

// A member that starts with the vote of another could vote twice.
func TestStoresOfAnotherMemberAreRefused(t *testing.T) {
	dir := t.TempDir()
	stores, err := store.Open(dir, dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer stores.Close()
	if _, err := claim(&stores, 1); err != nil {
		t.Fatal(err)
	}
	_, err = Open(Config{ID: 2, Members: []Member{{ID: 2}}, Stores: stores, Listener: newRecorder(), Logger: testLogger()})
	if err == nil || !strings.Contains(err.Error(), "member 1") || !strings.Contains(err.Error(), "raft.db") {
		t.Fatalf("opened as member 2: %v", err)
	}
}

// A member that starts without a leader has the state of the newest entry that it knew to be
// committed, not that of its snapshot; and what raft then applies once more is skipped
// twice.
func TestStateAfterAStartWithoutALeader(t *testing.T) {
	dir := t.TempDir()
	open := func() (*Replica, *recorder) {
		t.Helper()
		stores, err := store.Open(dir, dir, "")
		if err != nil {
			t.Fatal(err)
		}
		rec := newRecorder()
		r, err := Open(Config{ID: 1, Members: []Member{{ID: 1}}, Stores: stores, Listener: rec, Logger: testLogger()})
		if err != nil {
			t.Fatal(err)
		}
		return r, rec
	}
	digest := func(r *Replica) (d uint64) {
		r.View(func(s *znode.Store) { d = s.Digest() })
		return d
	}
	r, rec := open()
	for i, c := range []*znode.Command{createSession(7), sequential(7, 1, "/n-"), sequential(7, 2, "/n-"), sequential(7, 3, "/n-")} {
		if err := r.Propose(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		rec.result(t, c.Key())
		if i == 1 {
			if err := r.raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := digest(r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}

	stores, err := store.Open(dir, dir, "")
	if err != nil {
		t.Fatal(err)
	}
	alone := &Replica{state: &state{engine: &engine{}}}
	saved, newest, err := loadSnapshot(&stores)
	if alone.state.store = saved; err != nil {
		t.Fatal(err)
	}
	if digest(alone) == want {
		t.Fatal("the snapshot holds everything: this shows nothing")
	}
	if err := alone.state.applyCommitted(&stores, newest.Index+1); err != nil || digest(alone) != want {
		t.Errorf("not the state that there was: %v", err)
	}
	if err := stores.Close(); err != nil {
		t.Fatal(err)
	}

	r, rec = open()
	next := sequential(7, 4, "/n-")
	if err := r.Propose(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if res := rec.result(t, next.Key()); res.Path != "/n-0000000003" {
		t.Errorf("after the restart: %+v", res)
	}
	if err := r.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	want = digest(r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if r, _ = open(); digest(r) != want {
		t.Error("not the same state after one more restart")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// Member 0 claims its disk like any other: 0 is what stores give for nobody.
func TestStoresOfMemberZeroBelongToIt(t *testing.T) {
	dir := t.TempDir()
	for i, tt := range []struct {
		id   MemberID
		fail string
	}{{0, ""}, {0, ""}, {1, "the votes of member 0, and this is member 1"}} {
		s, err := store.Open(dir, dir, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := claim(&s, tt.id); (err == nil) != (tt.fail == "") || err != nil && !strings.Contains(err.Error(), tt.fail) {
			t.Errorf("start %d as member %d: %v", i+1, tt.id, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := raftnet.IDOf(""); got != NoMember {
		t.Errorf("raft's empty ID is that of member %d", got)
	}
}
