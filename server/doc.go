// Package server puts one member of a cluster together: it listens on the client port, answers four-letter
// words, and ties the session and quorum rooms to each other. It is what the lockkeeper command, an embedding
// program and a test import. What can be configured is in zoocfg.
//
//	cfg, err := server.LoadConfig("zoo.cfg") // or server.Config{}: one member alone, on port 2181
//	s, err := server.Start(cfg)
//	...
//	err = s.Shutdown(ctx)
//
// # Goroutines
//
// A Server owns one goroutine that accepts client connections, and one for each connection, the reader. It takes
// frames off the socket, hands them to the session (and waits there when the session has too much to do), and
// has what the session has answered at once sent (session.Session.Flush). Whatever else the session has to say
// is sent by a second goroutine of the connection, which lives while there is something to send. A client that
// does not read holds up its own goroutines and nobody else's. Close and Shutdown wait for all of them, and for
// those of the rooms below.
//
// # What is not here
//
// What a request means is the session room's business; what an entry does is znode's. This package knows
// the protocol only as far as a connection's first bytes go: four-letter word or handshake.
package server
