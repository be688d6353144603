package znode

import (
	"bytes"
	"errors"
	"fmt"

	"lockkeeper/wire"
)

// replacement is a state that is to replace the present one (a restore). It arrives as commands of
// the log, so that every member has it, or comes to it, without a second way for the bytes to
// travel; docs/decisions/015-restore.md says why. The steps of a restore are the requests of a
// session, which it depends on: each step takes effect once, in order, whichever leaders there are,
// and with the session's end the restore is given up.
//
// The Data of a step:
//
//	RestoreBegin   the header of a snapshot
//	RestoreBlock   its next block
//	RestoreCheck   nothing: some more of the ACLs that have arrived are checked
//	RestoreCommit  nothing: the state is replaced
//
// Each step has a bounded cost. A state that has not been committed is no part of a snapshot: none
// is taken meanwhile (Store.Restoring).
type replacement struct {
	session wire.SessionID
	rs      restorer
	ended   bool              // the last block has arrived
	checked bool              // RestoreCommit may come
	acls    int               // the number of rs.acls that are checked
	parents map[slot]struct{} // of the ephemeral nodes that were left out
}

// The steps of a restore.
const (
	RestoreBegin  = 1
	RestoreBlock  = 2
	RestoreCheck  = 3
	RestoreCommit = 4
)

// restoreCheckRows is the number of ACLs of a RestoreCheck.
const restoreCheckRows = 4096

// maxRestoredZxid bounds the zxid of a restored snapshot: later zxids of the state follow it.
const maxRestoredZxid = 1 << 60

// Restoring reports whether a restore is under way. No snapshot may be taken then: it would lack
// the blocks that have arrived.
func (s *Store) Restoring() bool { return s.state.replacement != nil }

// RestoreReady reports whether the state that session restores is complete and checked, so that
// RestoreCommit may follow, and its size.
func (s *Store) RestoreReady(session wire.SessionID) (size Size, ready bool) {
	p := s.state.replacement
	if p == nil || p.session != session || !p.checked {
		return Size{}, false
	}
	return p.rs.st.tree.size(), true
}

// restoreStep applies a step of a restore. One that is refused ends the restore; r says why.
func (t *tx) restoreStep(c *Command, b *RestoreStep, r *Result) {
	if _, ok := t.state.sessions.next(c, r); !ok {
		return
	}
	p := t.state.replacement
	if p != nil && p.session != c.Session {
		r.Code, r.Reason = wire.CodeReconfigInProgress, "another restore is under way"
		return
	}
	var err error
	switch {
	case b.Step == RestoreBegin:
		t.state.replacement, err = newReplacement(c.Session, b.Data)
	case p == nil:
		err = errors.New("no restore has begun")
	case b.Step == RestoreBlock:
		err = p.block(b.Data)
	case b.Step == RestoreCheck:
		err = p.check()
	case b.Step == RestoreCommit && p.checked:
		t.replace(p)
		r.Restored, r.Generation = true, 0
	default:
		err = fmt.Errorf("step %d is out of place", b.Step)
	}
	if err != nil {
		t.state.replacement = nil
		r.Code, r.Reason = wire.CodeBadArguments, err.Error()
	}
}

func newReplacement(session wire.SessionID, header []byte) (*replacement, error) {
	p := &replacement{session: session, parents: map[slot]struct{}{}}
	p.rs = restorer{r: blockReader{r: bytes.NewReader(header)}, st: empty()}
	p.rs.skip = func(parent slot) { p.parents[parent] = struct{}{} }
	if err := p.rs.r.header(); err != nil {
		return nil, err
	}
	return p, p.rs.r.eof()
}

// block takes the next block of the snapshot.
func (p *replacement) block(b []byte) error {
	if p.ended {
		return fmt.Errorf("%w: something follows the end", ErrDamaged)
	}
	p.rs.r.r = bytes.NewReader(b)
	kind, payload, err := p.rs.r.next()
	if err == nil {
		p.ended, err = p.rs.block(kind, payload)
	}
	if err == nil {
		err = p.rs.r.eof()
	}
	if err == nil && p.rs.st.zxid > maxRestoredZxid {
		err = fmt.Errorf("%w: zxid %v", ErrDamaged, p.rs.st.zxid)
	}
	return err
}

// check does the next part of the checks that follow the last block.
func (p *replacement) check() error {
	switch {
	case !p.ended:
		return fmt.Errorf("%w: it ends too early", ErrDamaged)
	case p.acls < len(p.rs.acls):
		// Those that only nodes have that were left out.
		some := p.rs.acls[p.acls:min(len(p.rs.acls), p.acls+restoreCheckRows)]
		for _, list := range some {
			if list.refs == 0 {
				list.refs++
				p.rs.st.tree.acls.release(list)
			}
		}
		p.acls += len(some)
	default:
		p.rs.st.tree.quotas.forget()
		p.checked = true
	}
	return nil
}

// replace makes p the state, as if all its sessions had been closed, at a zxid that is beyond both
// this state's and p's. This state keeps its members and /zookeeper/config. All sessions
// end.
func (t *tx) replace(p *replacement) {
	st, n := t.state, p.rs.st
	t.effects.zxid = max(t.effects.zxid, n.zxid+1)
	t.effects.changed = true
	st.clock = st.clock.replaced(&n.clock)
	config := st.tree.record(st.tree.slotOf(configPath))
	generations := st.sessions.generations
	generations.replace(&n.sessions.generations)
	st.tree, st.sessions, st.replacement = n.tree, newRegistry(), nil
	st.sessions.generations = generations

	i := st.tree.slotOf(configPath)
	st.tree.replaceData(i, configPath, config.data())
	row := st.tree.nodes.mut(i)
	st.tree.acls.release(row.acl)
	row.acl = st.tree.acls.intern(config.acl.entries)
	d := st.tree.detail(i)
	d.mzxid, d.mtimeMs = config.mzxid, config.mtimeMs
	d.version, d.aversion = config.version, config.aversion
	for i := range p.parents {
		st.tree.detail(i).pzxid = t.effects.zxid
		if q := st.tree.quotaAt(i); q != nil {
			st.tree.quotas.touch(q)
		}
	}
}
