package quorum

import (
	"fmt"

	"github.com/hashicorp/raft"

	"lockkeeper/znode"
)

// LastState is the state after the last entry of the log of a member that does not run, and that
// entry's term. Entries at the end of the log may not be committed, as in ZooKeeper's logs: of
// several members the one with the greatest term and zxid has all that was acknowledged.
func LastState(s Stores) (store *znode.Store, term uint64, err error) {
	if err := s.importComplete(); err != nil {
		return nil, 0, err
	}
	if store, _, err = loadSnapshot(s.Snapshots); err != nil {
		return nil, 0, err
	}
	list, err := s.Snapshots.List()
	if err != nil {
		return nil, 0, fmt.Errorf("quorum: list snapshots: %w", err)
	}
	from := uint64(0)
	if len(list) > 0 {
		from, term = list[0].Index, list[0].Term
	}
	last, err := s.Log.LastIndex()
	if err != nil {
		return nil, 0, fmt.Errorf("quorum: read log: %w", err)
	}
	for i := from + 1; i <= last; i++ {
		var l raft.Log
		if err := s.Log.GetLog(i, &l); err != nil {
			return nil, 0, fmt.Errorf("quorum: read log: %w", err)
		}
		if term = l.Term; l.Type != raft.LogCommand {
			continue
		}
		entry, err := znode.DecodeEntry(l.Data)
		if err != nil {
			return nil, 0, fmt.Errorf("quorum: %s: entry %d of term %d: %w", s.LogName, l.Index, l.Term, unreadable(err))
		}
		store.Apply(l.Term, entry, func(*znode.Command, *znode.Result) {})
	}
	return store, term, nil
}
