// Package server puts one member of a cluster together: it listens on the client port and the HTTP
// port, answers four-letter words, and connects packages session and quorum. The lockkeeper
// command, embedding programs and tests start members with it. It never interprets a request beyond
// the first bytes of a connection (four-letter word or handshake): package session does, and znode
// applies it. Begin with Start; the configuration is in zoocfg, the life of a connection in
// conn.go.
//
//	cfg, err := server.LoadConfig("zoo.cfg") // or server.Config{}: one member alone, on port 2181
//	s, err := server.Start(cfg)
//	...
//	err = s.Shutdown(ctx)
//
// # Goroutines
//
// A Server owns one goroutine that accepts client connections, and one for each connection, the
// reader. It reads frames from the socket, submits them to the session (and blocks there when the
// session has too much to do), and flushes the replies that are made at once
// (session.Session.Flush). A second goroutine of the connection, which lives while there is
// something to send, sends all other output. A client that does not read blocks its own goroutines
// only. Close and Shutdown wait for all of them, and for those of session and quorum.
package server
