package recipes

import "lockkeeper/internal/mutant"

// A majority is asked in one of two ways.
//
// On lockkeeper sync is a command of the log, so its answer proves a majority. On ZooKeeper it is
// not: the leader answers it from its own state. A leader of 3.8.0 whose two followers were stopped
// answered every sync until it gave up, after syncLimit, and with it a lock was held while the
// followers, cut off from that leader, gave it to somebody else. There a write is the proof: the
// leader answers it when a majority has it on disk. It is a multi without operations, which needs
// no node and no right. (The deletion of a node that cannot exist is no proof with
// enableEagerACLCheck: a server refuses that by itself, with NoAuth.)
//
// Which of the two it is the server says, in the answer that counts: lockkeeper answers a sync of
// the path syncQuestion with the path syncLinearizable. Every other server echoes the path. So the
// answer belongs to the member that has executed the sync, also after the client has moved; no
// node has to exist that somebody could make, hide or copy to another cluster; and it costs no
// request more than the sync.
const (
	syncQuestion     = "/zookeeper/sync"
	syncLinearizable = "/zookeeper/sync/linearizable"
)

// confirm returns nil when a majority has confirmed, after the call began, that the session lives.
// The server that answers has caught up with all that was acknowledged to anybody before the call.
func (s *Session) confirm() error {
	s.mu.Lock()
	s.observeLocked()
	silent := s.silent == s.changed
	s.mu.Unlock()
	if silent {
		return s.writeNothing()
	}
	answer, err := s.conn.Sync(syncQuestion)
	if err != nil || answer == syncLinearizable || mutant.On(mutant.TrustedSync) {
		return err
	}
	s.mu.Lock()
	s.observeLocked()
	s.silent = s.changed // should the client have moved since, a write is right there too
	s.mu.Unlock()
	return s.writeNothing()
}

// writeNothing makes a write that changes nothing. When it returns nil, no earlier request of ours
// is under way any more: the cluster orders it behind everything that it will ever accept of the
// session's older connections. What we read from then on is at least as new as the moment of the
// call: a new connection, should there be one by then, goes to a server that has seen at least the
// write, for the client has told it the zxid of the answer.
func (s *Session) writeNothing() error {
	_, err := s.conn.Multi()
	return err
}
