package server

import (
	"lockkeeper/server/ops/console"
	"lockkeeper/session"
	"lockkeeper/znode"
)

// listener is the replica's listener: the sessions, the history of the locks, and the warning of
// locks that do not exclude each other.
type listener struct {
	*session.Manager
	recorder *console.Recorder
	foreign  *foreignLocks
}

// Applied implements quorum.Listener.
func (l listener) Applied(store *znode.Store, c *znode.Command, res *znode.Result) {
	l.recorder.Applied(store, c, res)
	l.foreign.applied(store, c, res)
	l.Manager.Applied(store, c, res)
}

// Restored implements quorum.Listener.
func (l listener) Restored(store *znode.Store) {
	l.recorder.Restored(store)
	l.Manager.Restored(store)
}
