package quorum

import (
	"time"

	"github.com/hashicorp/raft"
)

// A follower is quiet while nobody is there who might look at what it has applied (Config.Attended), and it has no commands of its own under
// way: it makes no difference whether it learns of a commit now or a little later. It says so in its answers (rpcQuiet), and the leader sends
// it no word (transport.wordLocked) before quietPause has passed. Mostly the next entries come earlier, and say the same. Of the CPU that the members
// take for a lone client's write the words to two followers are an eighth.
//
// Every session begins with a command, at the member that the client has come to. When that reaches the leader the quiet is over (attended).

// quietPause is how much later than others a quiet follower learns of a commit, at the most.
const quietPause = 10 * time.Millisecond

// quiet says whether nobody waits at this member for what is committed.
func (r *Replica) quiet() bool {
	if r.cfg.Attended == nil || r.cfg.Attended() {
		return false
	}
	commands, _ := r.outbox.open()
	return commands == 0
}

// attended takes note that a follower is not quiet any more.
func (t *transport) attended(id raft.ServerID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.followers[id]; f != nil && f.quiet {
		f.quiet = false
		t.hintLocked(f)
	}
}

// pauseLocked has a quiet follower told when a pause ends, which begins now if there is none.
func (t *transport) pauseLocked(f *follower) {
	if f.paused {
		return
	}
	f.paused = true
	time.AfterFunc(quietPause, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		f.paused = false
		if index, _ := t.wordLocked(f); index > 0 && t.followers[f.id] == f {
			f.wake()
		}
	})
}
