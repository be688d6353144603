package main

import (
	"context"
	"io"
	"net"
	"regexp"
	"strconv"
	"time"
)

// consLine is a line of the four-letter word cons: a connection that has a session.
var consLine = regexp.MustCompile(`(?m)^ /(\S+)\[[0-9a-f]+\]\(.*,sid=0x([0-9a-f]+),`)

// sessionAddresses reads the clients' addresses from the servers. A server that does not answer, or
// whose whitelist does not have cons, is left out.
func sessionAddresses(ctx context.Context, servers []string) map[int64]string {
	found := map[int64]string{}
	for _, server := range servers {
		for _, m := range consLine.FindAllStringSubmatch(fourLetters(ctx, server, "cons"), -1) {
			if id, err := strconv.ParseUint(m[2], 16, 64); err == nil {
				found[int64(id)] = m[1]
			}
		}
	}
	return found
}

// fourLetters sends a server a four-letter word. It returns nothing if the answer does not come
// soon.
func fourLetters(ctx context.Context, server, word string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", server)
	if err != nil {
		return ""
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := io.WriteString(conn, word); err != nil {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(conn, 16<<20))
	return string(text)
}
