package trace

import (
	"encoding/binary"

	"lockkeeper/wire"
)

// cutter cuts the bytes for a client into frames.
type cutter struct {
	offered, written int64  // bytes, since the connection began
	rest             []byte // the offered part of a frame that was not offered whole
	begun            bool   // the answer to the handshake was offered: it has no header
}

// offer returns the frames that end in b, which follows the bytes that were written, and that were
// not returned before. b begins with the bytes that were offered and not written.
func (c *cutter) offer(b []byte) (frames []Frame) {
	known := c.offered - c.written
	if known >= int64(len(b)) {
		return nil
	}
	c.offered = c.written + int64(len(b))
	c.rest = append(c.rest, b[known:]...)
	for len(c.rest) >= 4 {
		end := 4 + int64(binary.BigEndian.Uint32(c.rest))
		if int64(len(c.rest)) < end {
			break
		}
		if h, body, err := wire.DecodeReply(c.rest[4:end]); c.begun && err == nil {
			f := Frame{Xid: h.Xid, Zxid: h.Zxid, Code: h.Err}
			var e wire.WatcherEvent
			if h.Xid == wire.XidNotification && wire.Decode(body, &e) == nil {
				f.Change = Change{e.Type, e.Path}
			}
			frames = append(frames, f)
		}
		c.begun, c.rest = true, c.rest[end:]
	}
	return frames
}

// sent takes the number of bytes that were written.
func (c *cutter) sent(n int) { c.written += int64(n) }
