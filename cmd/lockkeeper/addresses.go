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

// sessionAddresses asks the servers who their clients are. A server that does not answer, or does
// not tell (cons must be in its whitelist), is left out.
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

// fourLetters asks a server a four-letter word. An answer that does not come soon is none.
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
