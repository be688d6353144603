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
	for i, n := range st.tree.rows().all() {
		used++
		path := n.path()
		sizeBytes += nodeSizeBytes(path, n.data())
		if n.mayPerish() {
			perishable++
		}
		if n.kind == kindEphemeral {
			ephemerals++
		}
		if at, ok := st.tree.find(path); !ok || at != i {
			return fmt.Errorf("node %q is at %d, its path leads to %d", path, i, at)
		}
		if err := st.checkNode(n, path); err != nil {
			return fmt.Errorf("node %q: %w", path, err)
		}
	}
	if perishable != st.tree.perishable {
		return fmt.Errorf("the reaper knows of %d nodes, there are %d", st.tree.perishable, perishable)
	}
	if ephemerals != st.sessions.ephemerals || sizeBytes != st.tree.sizeBytes {
		return fmt.Errorf("%d ephemerals and %d bytes, not %d and %d",
			ephemerals, sizeBytes, st.sessions.ephemerals, st.tree.sizeBytes)
	}
	if used != st.tree.index.nodes || used != st.tree.nodes.len() {
		return fmt.Errorf("%d nodes, %d paths, %d rows in use", used, st.tree.index.nodes, st.tree.nodes.len())
	}
	return nil
}

// checkBuiltIn verifies that the nodes exist that cannot be deleted.
func (t *tree) checkBuiltIn() error {
	for _, path := range builtInPaths {
		if _, ok := t.find(path); !ok {
			return fmt.Errorf("no node %s", path)
		}
	}
	return nil
}

func (st *state) checkNode(n *record, path string) error {
	if !ValidPath(path) {
		return errInvalidPath
	}
	// Nothing more is certain of a state that came from ZooKeeper (FromContent): there a node may
	// be modified before it is created, by the clock of another leader.
	if now := st.clock.nowMs(); n.czxid > st.zxid || n.pzxid > st.zxid || n.usedMs > now {
		return fmt.Errorf("czxid %v pzxid %v used at %d in a state at %v, %d",
			n.czxid, n.pzxid, n.usedMs, st.zxid, now)
	}
	// The mzxid of the config is whatever the config says.
	if path != configPath && n.mzxid > st.zxid {
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
		f := family{first: noSlot}
		if own := t.family(n); own != nil {
			f = *own
		}
		count, nameBytes := int32(0), int64(0)
		for c := range t.children(i) {
			cn := t.nodes.row(c)
			nameBytes += int64(len(cn.name()))
			if count++; count > f.children {
				break
			}
			if cn.acl == nil || cn.parent != i || t.siblings(t.siblings(c).next).prev != c {
				return fmt.Errorf("node %q has the child %q, the parent of which is at %d, not %d", t.path(i),
					cn.name(), cn.parent, i)
			}
		}
		if count != f.children || nameBytes != f.nameBytes {
			return fmt.Errorf("node %q has not %d children with names of %d bytes", t.path(i), f.children, f.nameBytes)
		}
		if linked += int(count); count > 0 && t.kind(n) == kindEphemeral {
			return fmt.Errorf("node %q is ephemeral and has %d children", t.path(i), count)
		}
	}
	if linked != t.nodes.len() {
		return fmt.Errorf("%d nodes, %d of them in the tree", t.nodes.len(), linked)
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
		byAddr[row.addr.text]++
		if at, ok := st.sessions.slots[row.id]; !ok || at != i || !mayBeSession(row.id) {
			return fmt.Errorf("session %v is at %d, its id leads to %d", row.id, i, at)
		}
		if n := len(row.listIdentities()); row.lastSeq == 0 && n > 0 {
			return fmt.Errorf("session %v has %d identities, and no request has shown any", row.id, n)
		}
		nodes, bytes := st.sessions.ephemeralsOf(i), int64(0)
		for at, slot := range nodes {
			n := st.tree.record(slot)
			bytes += int64(len(n.path()))
			if n.kind != kindEphemeral || wire.SessionID(n.owner) != row.id ||
				int(st.tree.family(st.tree.nodes.row(slot)).owned) != at {
				return fmt.Errorf("session %v has %q, of kind %d and session %#x", row.id, n.path(), n.kind, n.owner)
			}
		}
		if b := st.sessions.belongingsOf(i); b != nil && bytes != b.bytes {
			return fmt.Errorf("session %v has not ephemerals with paths of %d bytes", row.id, b.bytes)
		}
		owned += len(nodes)
	}
	if used != len(st.sessions.slots) || used != st.sessions.rows.len() {
		return fmt.Errorf("%d sessions, %d ids, %d rows in use", used, len(st.sessions.slots), st.sessions.rows.len())
	}
	for addr, a := range st.sessions.addrs {
		if byAddr[addr] != a.sessions || addr != a.text {
			return fmt.Errorf("%d sessions of %s, counted %d", a.sessions, addr, byAddr[addr])
		}
	}
	if len(byAddr) != len(st.sessions.addrs) {
		return fmt.Errorf("sessions of %d addresses, counted %d", len(st.sessions.addrs), len(byAddr))
	}
	if owned != st.sessions.ephemerals {
		return fmt.Errorf("sessions have %d ephemerals, not %d", owned, st.sessions.ephemerals)
	}
	return nil
}

// checkACLs verifies the table of ACLs.
func (t *tree) checkACLs() error {
	refs, sizeBytes := map[*aclList]int{}, int64(0)
	for i, n := range t.allNodes() {
		refs[n.acl]++
		if t.acls.byKey[n.acl.key] != n.acl {
			return fmt.Errorf("node %q has an ACL that is not in the table", t.path(i))
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
	for _, n := range t.rows().all() {
		if of, ok := limitsOf(n.path()); ok {
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
	quotaOf := func(n *node) *quota {
		if f := t.family(n); f != nil {
			return f.quota
		}
		return nil
	}
	for i, r := range t.rows().all() {
		path := r.path()
		if q := t.quotas.byPath[path]; quotaOf(t.nodes.row(i)) != q {
			return fmt.Errorf("node %q has a quota: %v, its family says otherwise", path, q != nil)
		}
		counts := !underQuota(path)
		for at := i; at != noSlot; at = t.nodes.row(at).parent {
			if at != i {
				want[at].below++
			}
			if counts {
				want[at].count++
				want[at].bytes += int64(len(r.data()))
				counts = quotaOf(t.nodes.row(at)) == nil
			}
		}
	}
	for i, n := range t.allNodes() {
		var got sums
		if got.count, got.bytes = t.sums(i); t.family(n) != nil {
			got.below = t.family(n).below
		}
		if got != want[i] {
			return fmt.Errorf("node %q sums up %+v, counting gives %+v", t.path(i), got, want[i])
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
				text(r.addr.text).text(string(r.password[:]))
			for _, id := range r.listIdentities() {
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
	for _, r := range s.state.tree.rows().all() {
		sum += r.digest()
	}
	return sum
}

// TreeDigest is Store.TreeDigest of the state that the snapshot shows. Apply may run at the same
// time. The snapshot must not have been released.
func (sn *Snapshot) TreeDigest() uint64 {
	var sum uint64
	for _, r := range sn.nodes.all() {
		sum += r.digest()
	}
	return sum
}

// digest is a hash of all that a node has.
func (n *record) digest() uint64 {
	null := uint64(0)
	name, data := n.parts()
	if data == nil {
		null = 1
	}
	return hash(3).text(n.dir, string(name)).num(null).text(string(data)).text(n.acl.key).
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

// text adds the parts of a text.
func (h hash) text(parts ...string) hash {
	length := 0
	for _, s := range parts {
		for i := range len(s) {
			h = (h ^ hash(s[i])) * fnvPrime
		}
		length += len(s)
	}
	return h.num(uint64(length))
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
