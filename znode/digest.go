package znode

import (
	"encoding/binary"
	"hash/fnv"
)

// Digest returns a hash of the whole state: nodes, sessions, members, zxid and time. It is the same
// on replicas that applied the same entries, whether or not they were restored from a snapshot in
// between, and on every machine. It looks at every node, so it is for tests and for operators. It
// is no protection against deliberate collisions.
func (s *Store) Digest() uint64 {
	head := binary.BigEndian.AppendUint64([]byte{byte(blockHead)}, uint64(s.zxid))
	head = binary.BigEndian.AppendUint64(head, uint64(s.timeMs))
	sum := digest(appendMembership(head, &s.membership))
	for i := range s.sessions.used {
		if r := s.sessions.row(i); r.generation != 0 {
			sum += digest(appendSession([]byte{byte(blockSessions)}, r))
		}
	}
	return sum + s.TreeDigest()
}

// TreeDigest is the part of Digest that is about the nodes. It is the same on replicas that have
// applied the same updates, for every change of a node has a zxid of its own (the four-letter word
// hash).
func (s *Store) TreeDigest() uint64 {
	var sum uint64
	var b []byte
	acls := map[*aclList]uint64{}
	for _, n := range s.allNodes() {
		clear(acls) // each node is encoded with its whole ACL: replicas number ACLs differently
		b = appendNode(append(b[:0], byte(blockNodes)), n, acls)
		sum += digest(b)
	}
	return sum
}

// digest is the hash of one part of the state, in the encoding of a snapshot behind the kind of its
// block. Parts are added up, because replicas have them in different orders; so the bits are mixed
// (the finish of splitmix64).
func digest(part []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(part) // never fails
	v := h.Sum64()
	v = (v ^ v>>30) * 0xBF58476D1CE4E5B9
	v = (v ^ v>>27) * 0x94D049BB133111EB
	return v ^ v>>31
}
