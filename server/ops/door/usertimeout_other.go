//go:build !linux

package door

import (
	"net"
	"time"
)

// setUserTimeout does nothing: this system ends such connections after minutes.
func setUserTimeout(*net.TCPConn, time.Duration) {}
