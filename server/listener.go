package server

import (
	"lockkeeper/quorum"
	"lockkeeper/server/ops"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// listener is the member above its replica: the sessions, the history of the locks, the warning of
// locks that do not exclude each other, and the server that answers for them.
type listener struct {
	*session.Manager
	server  *Server
	foreign *foreignLocks
}

var _ quorum.Listener = listener{}

// Applied implements quorum.Listener.
func (l listener) Applied(store *znode.Store, c *znode.Command, res *znode.Result) {
	l.server.surfaces.recorder.Applied(store, c, res)
	l.foreign.applied(store, c, res)
	l.Manager.Applied(store, c, res)
}

// Restored implements quorum.Listener.
func (l listener) Restored(store *znode.Store) {
	l.server.surfaces.recorder.Restored(store)
	l.Manager.Restored(store)
}

// MembersChanged implements quorum.Listener.
func (l listener) MembersChanged(members []Member, version wire.Zxid) {
	l.server.membersChanged(members, version)
}

// Failed implements quorum.Listener.
func (l listener) Failed(err error) { l.server.fail(err) }

// Describe implements quorum.Listener.
func (l listener) Describe() quorum.Report {
	s := l.server
	return quorum.Report{ClientAddr: s.ClientAddr().String(), PeerAuth: s.peerAuth.kind(),
		Details: s.member.reports.Own()}
}

// MayTransfer implements quorum.Listener.
func (l listener) MayTransfer(proof string, occasion []byte) error {
	return ops.VerifyTransfer(l.server.member, proof, occasion)
}
