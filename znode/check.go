package znode

import (
	"fmt"

	"lockkeeper/wire"
)

// Check verifies the invariants of the whole state and returns the first that does not hold. It
// looks at every node; it is for tests and for operators. It changes nothing.
func (s *Store) Check() error {
	st, t := &s.state, s.state.tree
	for _, check := range []func() error{st.checkNodes, t.checkChildren, st.checkSessions, t.checkACLs, t.checkQuotas} {
		if err := check(); err != nil {
			return fmt.Errorf("znode: check: %w", err)
		}
	}
	return nil
}

// checkNodes verifies each node by itself, and the totals that are kept of them.
func (st *state) checkNodes() error {
	if err := st.tree.checkBuiltIn(); err != nil {
		return err
	}
	used, perishable, ephemerals, sizeBytes := 0, 0, 0, int64(0)
	for i, n := range st.tree.allNodes() {
		used++
		sizeBytes += nodeSizeBytes(n.path, n.data)
		if n.mayPerish() {
			perishable++
		}
		if n.kind == kindEphemeral {
			ephemerals++
		}
		if at, ok := st.tree.paths[n.path]; !ok || at != i {
			return fmt.Errorf("node %q is at %d, its path leads to %d", n.path, i, at)
		}
		if err := st.checkNode(n); err != nil {
			return fmt.Errorf("node %q: %w", n.path, err)
		}
	}
	if perishable != st.tree.perishable {
		return fmt.Errorf("the reaper knows of %d nodes, there are %d", st.tree.perishable, perishable)
	}
	if ephemerals != st.sessions.ephemerals || sizeBytes != st.tree.sizeBytes {
		return fmt.Errorf("%d ephemerals and %d bytes, not %d and %d",
			ephemerals, sizeBytes, st.sessions.ephemerals, st.tree.sizeBytes)
	}
	if used != len(st.tree.paths) || used != st.tree.nodes.len() {
		return fmt.Errorf("%d nodes, %d paths, %d rows in use", used, len(st.tree.paths), st.tree.nodes.len())
	}
	return nil
}

// checkBuiltIn verifies that the nodes exist that cannot be deleted.
func (t *tree) checkBuiltIn() error {
	for _, path := range builtInPaths {
		if _, ok := t.paths[path]; !ok {
			return fmt.Errorf("no node %s", path)
		}
	}
	return nil
}

func (st *state) checkNode(n *node) error {
	if !ValidPath(n.path) {
		return fmt.Errorf("invalid path")
	}
	// Nothing more is certain of a state that came from ZooKeeper (FromContent): there a node may
	// be modified before it is created, by the clock of another leader.
	if now := st.clock.nowMs(); n.czxid > st.zxid || n.pzxid > st.zxid || n.usedMs > now {
		return fmt.Errorf("czxid %v pzxid %v used at %d in a state at %v, %d",
			n.czxid, n.pzxid, n.usedMs, st.zxid, now)
	}
	// The mzxid of the config is whatever the config says.
	if n.path != configPath && n.mzxid > st.zxid {
		return fmt.Errorf("mzxid %v in a state at %v", n.mzxid, st.zxid)
	}
	switch n.kind {
	case kindPersistent, kindContainer:
		if n.owner != 0 {
			return fmt.Errorf("owner %#x of a node that cannot have one", n.owner)
		}
	case kindEphemeral:
		if _, ok := st.sessions.slots[wire.SessionID(n.owner)]; !ok {
			return fmt.Errorf("belongs to session %v, which does not exist", wire.SessionID(n.owner))
		}
	case kindTTL:
		if n.owner <= 0 || n.owner > wire.MaxTTLMs {
			return fmt.Errorf("time to live %d", n.owner)
		}
	default:
		return fmt.Errorf("kind %d", n.kind)
	}
	return nil
}

// checkChildren verifies that parents and children agree.
func (t *tree) checkChildren() error {
	linked := 1 // the root
	for i, n := range t.allNodes() {
		l := t.link(i)
		count, nameBytes := int32(0), int64(0)
		for c := range t.children(i) {
			cn, cl := t.nodes.row(c), t.link(c)
			nameBytes += int64(len(nameIn(n.path, cn.path)))
			if count++; count > l.children {
				break
			}
			if cn.kind == kindFree || cl.parent != i || parentOf(cn.path) != n.path || t.link(cl.next).prev != c {
				return fmt.Errorf("node %q has the child %q, whose parent is at %d, not %d", n.path, cn.path, cl.parent,
					i)
			}
		}
		if count != l.children || nameBytes != l.nameBytes {
			return fmt.Errorf("node %q has not %d children with names of %d bytes", n.path, l.children, l.nameBytes)
		}
		linked += int(count)
		if err := t.checkParent(i); err != nil {
			return fmt.Errorf("node %q: %w", n.path, err)
		}
	}
	if linked != t.nodes.len() {
		return fmt.Errorf("%d nodes, %d of them in the tree", t.nodes.len(), linked)
	}
	return nil
}

// checkParent verifies that the node at i may have as many children as it has.
func (t *tree) checkParent(i slot) error {
	n, l := t.nodes.row(i), t.link(i)
	if n.kind == kindEphemeral && l.children > 0 {
		return fmt.Errorf("it is ephemeral and has %d children", l.children)
	}
	return nil
}

// checkSessions verifies the registry and the ephemerals of each session.
func (st *state) checkSessions() error {
	used, owned := 0, 0
	byAddr := map[string]int{}
	for i := range st.sessions.rows.used {
		row := st.sessions.rows.row(i)
		if row.generation == 0 {
			continue
		}
		used++
		byAddr[row.addr]++
		if at, ok := st.sessions.slots[row.id]; !ok || at != i || !mayBeSession(row.id) {
			return fmt.Errorf("session %v is at %d, its id leads to %d", row.id, i, at)
		}
		if row.lastSeq == 0 && len(row.identities) > 0 {
			return fmt.Errorf("session %v has %d identities, and no request has shown any", row.id, len(row.identities))
		}
		b, bytes := st.sessions.belongingsOf(i), int64(0)
		for at, slot := range b.nodes {
			n := st.tree.nodes.row(slot)
			bytes += int64(len(n.path))
			if n.kind != kindEphemeral || wire.SessionID(n.owner) != row.id || int(st.tree.link(slot).owned) != at {
				return fmt.Errorf("session %v has %q, of kind %d and session %#x", row.id, n.path, n.kind, n.owner)
			}
		}
		if bytes != b.bytes {
			return fmt.Errorf("session %v has not ephemerals with paths of %d bytes", row.id, b.bytes)
		}
		owned += len(b.nodes)
	}
	if used != len(st.sessions.slots) || used != st.sessions.rows.len() {
		return fmt.Errorf("%d sessions, %d ids, %d rows in use", used, len(st.sessions.slots), st.sessions.rows.len())
	}
	for addr, n := range st.sessions.byAddr {
		if byAddr[addr] != n {
			return fmt.Errorf("%d sessions of %s, counted %d", n, addr, byAddr[addr])
		}
	}
	if len(byAddr) != len(st.sessions.byAddr) {
		return fmt.Errorf("sessions of %d addresses, counted %d", len(st.sessions.byAddr), len(byAddr))
	}
	if owned != st.sessions.ephemerals {
		return fmt.Errorf("sessions have %d ephemerals, not %d", owned, st.sessions.ephemerals)
	}
	return nil
}

// checkACLs verifies the table of ACLs.
func (t *tree) checkACLs() error {
	refs, sizeBytes := map[*aclList]int{}, int64(0)
	for _, n := range t.allNodes() {
		refs[n.acl]++
		if t.acls.byKey[n.acl.key] != n.acl {
			return fmt.Errorf("node %q has an ACL that is not in the table", n.path)
		}
	}
	for list, n := range refs {
		if list.refs != n {
			return fmt.Errorf("ACL %v has %d nodes, not %d", list.entries, n, list.refs)
		}
		sizeBytes += list.sizeBytes()
	}
	if len(refs) != len(t.acls.byKey) || sizeBytes != t.acls.sizeBytes {
		return fmt.Errorf("%d ACLs of %d bytes in use, %d of %d in the table",
			len(refs), sizeBytes, len(t.acls.byKey), t.acls.sizeBytes)
	}
	return nil
}

// checkQuotas verifies that the quotas agree with the tree and their usage adds up.
func (t *tree) checkQuotas() error {
	limits := 0
	for _, n := range t.allNodes() {
		if of, ok := limitsOf(n.path); ok {
			limits++
			if t.quotas.byPath[of] == nil {
				return fmt.Errorf("quota on %q is not active", of)
			}
		}
	}
	if limits != len(t.quotas.byPath) || len(t.quotas.dirty) != 0 {
		return fmt.Errorf("%d limits, %d quotas, %d of them dirty", limits, len(t.quotas.byPath), len(t.quotas.dirty))
	}
	return t.checkSums()
}

// checkSums verifies the sums of each node, by adding each node to all nodes above it.
func (t *tree) checkSums() error {
	type sums struct {
		below, count int32
		bytes        int64
	}
	want := make([]sums, t.nodes.used)
	for i, n := range t.allNodes() {
		if quota := t.quotas.byPath[n.path] != nil; t.link(i).quota != quota {
			return fmt.Errorf("node %q has a quota: %v, its links say otherwise", n.path, quota)
		}
		counts := !underQuota(n.path)
		for at := i; at != noSlot; at = t.link(at).parent {
			if at != i {
				want[at].below++
			}
			if counts {
				want[at].count++
				want[at].bytes += int64(len(n.data))
				counts = !t.link(at).quota
			}
		}
	}
	for i, n := range t.allNodes() {
		l := t.link(i)
		if got := (sums{l.below, l.count, l.bytes}); got != want[i] {
			return fmt.Errorf("node %q sums up %+v, counting gives %+v", n.path, got, want[i])
		}
	}
	return nil
}

// Digest returns a hash of the whole state: nodes, sessions, members, zxid and time. It is the same
// on replicas that applied the same entries, whether or not they were restored from a snapshot in
// between, on every machine, and in every version of this program. It reads every node, so it is
// for tests and for operators. It is no protection against deliberate collisions.
func (s *Store) Digest() uint64 {
	// A sum does not depend on the order of its parts, which differs between replicas.
	st := &s.state
	sum := hash(1).num(uint64(st.zxid)).num(uint64(st.timeMs)).
		num(uint64(st.clock.stampMs)).num(uint64(st.clock.shiftMs)).num(st.sessions.generations.ended).sum()
	if st.membership.members != nil {
		sum += hash(4).text(string(appendMembership(nil, &st.membership))).sum()
	}
	if st.cluster != 0 {
		sum += hash(5).num(uint64(st.cluster)).sum()
	}
	for i := range st.sessions.rows.used {
		if r := st.sessions.rows.row(i); r.generation != 0 {
			h := hash(2).num(uint64(r.id)).num(r.generation).num(r.lastSeq).num(uint64(r.timeoutMs)).
				text(r.addr).text(r.password)
			for _, id := range r.identities {
				h = h.text(id.Scheme).text(id.ID)
			}
			sum += h.sum()
		}
	}
	return sum + s.TreeDigest()
}

// TreeDigest is the part of Digest that is about the nodes. It is the same on replicas that have
// applied the same updates, for every change of a node has a zxid of its own (the four-letter word
// hash).
func (s *Store) TreeDigest() uint64 {
	var sum uint64
	for _, n := range s.state.tree.allNodes() {
		sum += n.digest()
	}
	return sum
}

// TreeDigest is Store.TreeDigest of the state that the snapshot shows. Apply may run at the same
// time. The snapshot must not have been released.
func (sn *Snapshot) TreeDigest() uint64 {
	var sum uint64
	for _, p := range sn.nodes {
		for i := range p {
			if p[i].kind != kindFree {
				sum += p[i].digest()
			}
		}
	}
	return sum
}

// digest is a hash of all that a node has.
func (n *node) digest() uint64 {
	null := uint64(0)
	if n.data == nil {
		null = 1
	}
	return hash(3).text(n.path).num(null).text(string(n.data)).text(n.acl.key).
		num(uint64(n.czxid)).num(uint64(n.mzxid)).num(uint64(n.pzxid)).
		num(uint64(n.ctimeMs)).num(uint64(n.mtimeMs)).num(uint64(n.usedMs)).num(uint64(n.owner)).
		num(uint64(n.version)).num(uint64(n.creates)).num(uint64(n.aversion)).num(uint64(n.kind)).sum()
}

// hash is FNV-1a over the values given, each of them closed against the next.
type hash uint64

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func (h hash) text(s string) hash {
	for i := range len(s) {
		h = (h ^ hash(s[i])) * fnvPrime
	}
	return h.num(uint64(len(s)))
}

func (h hash) num(v uint64) hash {
	for range 8 {
		h = (h ^ hash(v&0xFF)) * fnvPrime
		v >>= 8
	}
	return h
}

// sum mixes the bits, as adding does not (the finish of splitmix64).
func (h hash) sum() uint64 {
	v := uint64(h) ^ fnvOffset
	v = (v ^ v>>30) * 0xBF58476D1CE4E5B9
	v = (v ^ v>>27) * 0x94D049BB133111EB
	return v ^ v>>31
}
