package recipes

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"
)

// readConn is a net.Conn that only reads.
type readConn struct {
	net.Conn
	r io.Reader
}

func (c readConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// answer is a server's answer to a handshake.
func answer(timeoutMs int32, sessionID uint64) []byte {
	b := binary.BigEndian.AppendUint32(nil, 36)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(timeoutMs))
	b = binary.BigEndian.AppendUint64(b, sessionID)
	b = binary.BigEndian.AppendUint32(b, 16)
	return append(b, make([]byte, 16)...)
}

func TestHandshakeTimeout(t *testing.T) {
	const asked = 10 * time.Second
	for _, tt := range []struct {
		about  string
		answer []byte
		want   time.Duration
	}{
		{"shortened", answer(4000, 7), 4 * time.Second},
		{"lengthened", answer(12000, 7), 12 * time.Second},
		{"expired", answer(0, 0), asked},
		{"cut short", answer(4000, 7)[:19], asked},
		{"nothing", nil, asked},
		{"only the first frame counts", append(answer(4000, 7), answer(5000, 8)...), 4 * time.Second},
	} {
		for _, whole := range []bool{true, false} {
			g := newGranted(asked)
			var r io.Reader = bytes.NewReader(tt.answer)
			if !whole {
				r = iotest.OneByteReader(r)
			}
			c := &handshakeConn{Conn: readConn{r: r}, granted: g}
			got, err := io.ReadAll(c)
			if err != nil || string(got) != string(tt.answer) {
				t.Errorf("%s: read %x, %v, want %x", tt.about, got, err, tt.answer)
			}
			if g.timeout() != tt.want {
				t.Errorf("%s: timeout %v, want %v", tt.about, g.timeout(), tt.want)
			}
		}
	}
}

func TestConnectConfig(t *testing.T) {
	for _, c := range []Config{
		{},
		{Servers: []string{"localhost:1"}, SessionTimeout: -1},
		{Servers: []string{"a:b:c"}},
	} {
		if s, err := Connect(c); err == nil {
			s.Close()
			t.Errorf("Connect(%+v) = nil", c)
		}
	}
}
