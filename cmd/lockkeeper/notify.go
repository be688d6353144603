package main

import (
	"fmt"
	"net"
	"os"
)

// notify tells the service manager what has become of this process, as sd_notify(3) does: with a
// datagram to the socket that NOTIFY_SOCKET names. Without that variable it does nothing. The state
// is READY=1, STOPPING=1 or STATUS=text, or lines of these.
func notify(state string) error {
	socket := os.Getenv("NOTIFY_SOCKET") // a path, or an abstract name behind an @
	if socket == "" {
		return nil
	}
	c, err := net.Dial("unixgram", socket)
	if err == nil {
		defer c.Close()
		_, err = c.Write([]byte(state))
	}
	if err != nil {
		return fmt.Errorf("tell the service manager %q: %w", state, err)
	}
	return nil
}
