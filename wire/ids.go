package wire

import (
	"encoding/binary"
	"strconv"
)

// Xid numbers a request within its connection. The client chooses it and the reply echoes it; zero
// and negative values are legal (docs/protocol/wire.md section 5).
type Xid int32

// Xids with a meaning of their own.
const (
	XidNotification Xid = -1 // server to client: a watch event
	XidPing         Xid = -2 // the reply to a ping carries it whatever the request's xid was
	XidAuth         Xid = -4 // auth packets of most clients; not of go-zookeeper
	XidSetWatches   Xid = -8 // setWatches of the C client and of older ones
)

// Zxid numbers the updates of the whole tree in their total order.
type Zxid int64

// ZxidNone is the header zxid of a notification that no update fired (it came from setWatches), and
// of the reply to an unknown op.
const ZxidNone Zxid = -1

// String returns z as ZooKeeper prints it: 0x and unsigned hex digits.
func (z Zxid) String() string { return hexString(uint64(z)) }

// SessionID names a session. Zero in a ConnectRequest requests a new one; zero in a Stat's
// EphemeralOwner means that the node is not ephemeral.
type SessionID int64

// String returns s as ZooKeeper prints it: 0x and unsigned hex digits.
func (s SessionID) String() string { return hexString(uint64(s)) }

// ZooKeeperPassword is the password that ZooKeeper gives a session: the first 16 bytes of
// java.util.Random with a seed that is made of the id (docs/protocol/wire.md section 4.4).
func (s SessionID) ZooKeeperPassword() (password Password) {
	const (
		superSecret = 0xB3415C00
		multiplier  = 0x5DEECE66D
		mask        = 1<<48 - 1
	)
	state := (uint64(s) ^ superSecret ^ multiplier) & mask
	for i := 0; i < len(password); i += 4 {
		state = (state*multiplier + 0xB) & mask
		binary.LittleEndian.PutUint32(password[i:], uint32(state>>16))
	}
	return password
}

func hexString(u uint64) string {
	return string(strconv.AppendUint(append(make([]byte, 0, 18), "0x"...), u, 16))
}
