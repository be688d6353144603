package door

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout bounds the time for which bytes that have been sent may be unacknowledged.
func setUserTimeout(c *net.TCPConn, within time.Duration) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(within.Milliseconds()))
	})
}
