// Package httplock serves locks over HTTP: PUT, POST and DELETE of /v1/locks/PATH, for programs
// without a client library (docs/http-locks.md). A lock is a session of this member without a
// socket, with the identities of the request, and a contender with Curator's name in the queue of
// the path. So it excludes what the contenders of package recipes exclude, and the limits, quotas,
// access checks and leases of sessions hold for it. The package decides nothing about who has a
// lock: package locknode does. It never keeps a lock beyond its session.
//
//	ask.go         a request, decoded; the secret of a lock
//	client.go      the session: a session.Conn without a socket, requests and replies
//	contender.go   a place in the queue of a lock
//	wait.go        who is in front of a contender that waits, for its user
//	held.go        a lock that is held: its goroutine, renewals, the move from another member
//	locks.go       Locks: the places for locks, their limits, the end
//	serve.go       the handlers; the lines of a stream
//	refusal.go     why a request is refused
//
// # The end of a stream
//
// The session sends its client, this package, nothing unless its lease was confirmed within the
// last third of its timeout T; each reply says until when bytes may be sent on. A line of a stream
// is the reply to a ping, sent by that time. Whoever hears nothing for two thirds of T knows that
// the lock is lost. And 2/3 T after the newest proof this member ends the stream:
//
//	proof            +T/3                 +2/3 T                +T
//	  |  lines         |  no line           |  the stream ends    |  the session may expire
//	  |-----------------------------------------------------------|-> time
//
// When the stream has ended, the session is closed at once only if its user has released the lock,
// or its machine says that the process has gone. Otherwise it is left to its lease, so that nobody
// else gets the lock before the user has read the end of the stream, or heard nothing for 2/3 T.
//
// # Goroutines
//
// Handlers run in the goroutines of net/http. While a request waits for its lock, that goroutine
// uses the client; then keep does, one for each lock that is held, and gets orders of handlers.
// Close ends the locks and waits for their places.
package httplock
