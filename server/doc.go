// Package server puts one member of a cluster together: it opens the data directory and the ports,
// makes the parts, and connects them. The lockkeeper command, embedding programs and tests start
// members with it. It never interprets a request beyond the first bytes of a connection
// (four-letter word or handshake): package session does, and znode applies it.
//
//	cfg, err := server.LoadConfig("zoo.cfg") // or server.Config{}: one member alone, on port 2181
//	s, err := server.Start(cfg)
//	...
//	err = s.Shutdown(ctx)
//
// # How a member is put together
//
// Server.open makes the parts in this order; each gets its dependencies when it is made:
//
//	datadir, secure, opener   the disk is locked; certificates are read; all ports are opened,
//	                          so that a fault of the configuration ends the start
//	session.Manager           the sessions of this member's clients
//	surfaces                  words, console, admin, endpoints: what is shown to people (package
//	                          ops). They read the member through one interface, ops.Member. And
//	                          httplock: locks over HTTP, which are sessions without a socket
//	clientPort                accepts clients: TLS, then a four-letter word or a session
//	quorum.Replica            replicates; from here on it applies entries
//
// and the connections between them:
//
//	clients --> clientPort --> session.Manager --Propose--> quorum.Replica <--> other members
//	                |              ^                            |
//	                | words        '----listener.Applied--------'  each applied command: sessions,
//	                v                                              history of the locks, warnings
//	HTTP --> door --> surfaces --> member (ops.Member): Figures, Cluster, View
//	                                  reads sessions, replica, clientPort, door, clocks, audit
//
// A part knows those that it calls. Callbacks of the replica (an applied command, changed members,
// a failure) go through quorum.Listener and the functions of quorum.Config, which are methods of
// listener, Server.membersChanged and Server.fail.
//
// # Goroutines
//
// clientPort owns one goroutine that accepts client connections, and one for each connection, the
// reader. It reads frames from the socket, submits them to the session (and blocks there when the
// session has too much to do), and flushes the replies that are made at once
// (session.Session.Flush). The flushers, at most as many as there are processors, send all other
// output, and leave a slow client to a goroutine of its connection. A client that does not read
// blocks its own goroutines only. HTTP requests run in goroutines of net/http, which door.Port.Stop
// waits for. Close and Shutdown wait for all of them, and for the goroutines of session and quorum.
//
// # The end
//
// A member ends by Shutdown, after Drain if others are to notice nothing, or it fails: then it
// closes its clients' connections at once, Failed is closed, and Err says why.
package server
