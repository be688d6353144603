package quorum

import (
	"fmt"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/store"
	"lockkeeper/znode"
)

// LastState is the state after the last entry of the log of a member that does not run, and that
// entry's term. Entries at the end of the log may not be committed, as in ZooKeeper's logs: of
// several members the one with the greatest term and zxid has all that was acknowledged.
func LastState(s store.Stores) (state *znode.Store, term uint64, err error) {
	if err := checkImport(&s); err != nil {
		return nil, 0, err
	}
	if state, _, err = loadSnapshot(&s); err != nil {
		return nil, 0, err
	}
	from := uint64(0)
	if newest, err := s.Newest(); err != nil {
		return nil, 0, err
	} else if newest != nil {
		from, term = newest.Index, newest.Term
	}
	err = EachEntry(s, from+1, func(_, of uint64, entry *znode.Entry) error {
		if term = of; entry != nil {
			state.Apply(term, entry, func(*znode.Command, *znode.Result) {})
		}
		return nil
	})
	return state, term, err
}

// EachEntry calls each with the entries of a member's log, in order, from an index on. Those that
// are Raft's own have no znode.Entry.
func EachEntry(s store.Stores, from uint64, each func(index, term uint64, entry *znode.Entry) error) error {
	first, last, err := store.Bounds(s.Log)
	if err != nil {
		return fmt.Errorf("quorum: read log: %w", err)
	}
	for i := max(from, first); i <= last && last > 0; i++ {
		var l raft.Log
		if err := s.Log.GetLog(i, &l); err != nil {
			return fmt.Errorf("quorum: read log: %w", err)
		}
		if l.Type != raft.LogCommand {
			err = each(l.Index, l.Term, nil)
		} else {
			entry, bad := znode.DecodeEntry(l.Data)
			if bad != nil {
				return fmt.Errorf("quorum: %s: entry %d of term %d: %w", s.LogName, l.Index, l.Term, unreadable(bad))
			}
			err = each(l.Index, l.Term, entry)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
