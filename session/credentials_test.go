package session

import (
	"testing"
	"time"

	"lockkeeper/wire"
)

// Members with different numbers, and the sessions of read-only mode, have ids that never meet: the
// numbers of ids that a member counts up to before it is started anew do not take it into
// another's, and none begins with the byte of TTL nodes' owners.
func TestSessionIDsOfMembersNeverMeet(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	owner := map[uint64]int{} // by the ids without their time and count
	for member := range 256 {
		first := firstID(uint8(member), at)
		second := firstID(uint8(member), at.Add(time.Hour))
		if second-first != 3_600_000<<countBits {
			t.Errorf("member %d: an hour later the ids begin %#x later", member, second-first)
		}
		if id := wire.SessionID(first); isLocalID(id) || first>>56 == 0xFF || first == 0 {
			t.Errorf("member %d: %#x", member, first)
		}
		prefix := first >> 54 << 54
		if member > 0 && member < 255 {
			prefix = first >> 56 << 56
		}
		if other, taken := owner[prefix]; taken {
			t.Errorf("members %d and %d share the ids from %#x", member, other, prefix)
		}
		owner[prefix] = member

		local := firstLocalID(uint8(member), at)
		if !isLocalID(wire.SessionID(local)) || local == 0 {
			t.Errorf("member %d, read-only: %#x", member, local)
		}
		if other, taken := owner[local>>localMember<<localMember]; taken {
			t.Errorf("members %d and %d share the ids of read-only mode from %#x", member, other, local)
		}
		owner[local>>localMember<<localMember] = member
	}
}
