package session

import (
	"math"
	"sync/atomic"
	"time"

	"lockkeeper/wire"
)

// Session ids. Every id carries the number of the member that made it, so that no two members make
// the same, and begins to count at the wall clock's milliseconds since 1970, so that a restarted
// member does not begin where it began before. After the clock was set back ids may come again, but
// no generation of one (znode.Store), so nothing of the session before is taken for the new one's:
//
//	members 1 to 254   | member (8) | ms (40)           | count (16) |   as ZooKeeper builds them
//	member 0           | 0 (8) | 1 | 0 | ms (38)        | count (16) |
//	member 255         | 0 (8) | 1 | 1 | ms (38)        | count (16) |
//	read-only mode     | 0 (8) | 0 | member (8) | ms (31)| count (16) |
//
// Numbers in parentheses are widths in bits. Of the milliseconds the lower bits are taken.
// ZooKeeper puts the numbers 0 and 255 into the top byte, too; here 0 there would be that of
// read-only mode, and 0xFF is that of the owners of TTL nodes, which is why ZooKeeper does not
// start a member 255 with TTL nodes enabled. No client looks into an id.
const (
	countBits   = 16
	globalBit   = 1 << 55 // below a top byte of 0: a session of the cluster, of member 0 or 255
	lastBit     = 1 << 54 // of member 255
	localBits   = 55      // all of the ids of read-only mode are below 1 << localBits
	localMember = 47      // where the number of the member begins in them
)

// firstID is where the ids of the sessions begin that a member creates when it starts at now.
func firstID(member uint8, now time.Time) uint64 {
	count := uint64(now.UnixMilli()) << countBits
	switch member {
	case 0:
		return globalBit | count&(lastBit-1)
	case math.MaxUint8:
		return globalBit | lastBit | count&(lastBit-1)
	}
	return uint64(member)<<56 | count&(1<<56-1)
}

// firstLocalID is the same for the sessions of read-only mode.
func firstLocalID(member uint8, now time.Time) uint64 {
	return uint64(member)<<localMember | uint64(now.UnixMilli())<<countBits&(1<<localMember-1)
}

// isLocalID says whether an id is of a session of read-only mode, of this member's or of another's.
func isLocalID(id wire.SessionID) bool { return uint64(id)>>localBits == 0 }

func (n *numbers) init(member uint8, now time.Time) {
	n.nextID.Store(firstID(member, now))
	n.nextNonce.Store(uint64(now.UnixNano()))
}

func (n *numbers) newID() wire.SessionID { return wire.SessionID(n.nextID.Add(1)) }

// nonce numbers the commands that have no place in a session's order.
func (n *numbers) nonce() uint64 { return n.nextNonce.Add(1) | 1<<63 }

// numbers are those that a member gives to new sessions and to commands.
type numbers struct{ nextID, nextNonce atomic.Uint64 }
