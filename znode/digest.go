package znode

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
