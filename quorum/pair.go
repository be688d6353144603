package quorum

// A client of a follower has its answer when the follower knows that the command is committed. The leader knows it when the follower has
// said that it has the entry, and then says so: two messages, one behind the other, that no client of the leader waits for. Where two
// members are a majority the follower's clients need not either, for what is on the leader's disk and on the follower's is committed.
// So the leader sends word of an entry as soon as it is on its own disk (wrote), mostly while the follower still writes. It is the
// notice that else follows the commit. The library takes it up behind the entries that came before it, with those on the disk, and
// refuses it if the entry is not there with the leader's term.
//
// That the entry is then committed does not depend on who knows it (Raft, section 5.4). The leader of term T had it, of term T, on its
// disk when it sent word. The follower was in term T when it took the entry, and so had voted in no later one; from then on neither of
// the two votes for a member that lacks it. Whoever is elected later has it, therefore, if every majority has one of the two in it: those of
// the newest configuration in the leader's log, by which it counts, and of the ones before and behind that, with one voter more or less
// (2 of 3; at the most 3 of 4). By an older configuration nobody is elected any more (transport.provenAt), and a newer one comes only
// behind a change that is committed, and then so is the entry, which stands before it.

// wrote takes note that this leader has an entry of its own term, and all those before it, on its disk. It says whether any follower
// can be told before all is known to be committed.
func (t *transport) wrote(index, term uint64) (early bool) {
	voters, others := t.quorum()
	pairs := voters[t.self] && others == 1
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term != term {
		return false
	}
	t.written = index
	for id, f := range t.followers {
		f.pairs = pairs && voters[id]
		early = early || f.pairs && !f.quiet
		t.hintLocked(f)
	}
	return early
}

// pairDueLocked says whether a follower is to be sent word of what this leader has written, and does not yet know to be committed.
func (t *transport) pairDueLocked(f *follower) bool {
	return f.pairs && !f.ask && f.sent >= t.written && f.noticed < t.written && t.commit < t.written
}
