// Package admission decides which requests of clients a member takes, and when. It knows the
// limits, the memory, the tenants' quotas and the size of the state; it knows no session and no
// socket.
//
// A [Gate] serves all connections of a member. Each connection has an [Account], each request a
// [Ticket] that says how much the request uses until it is answered:
//
//	ticket, err := gate.Begin(size)              // bytes of large requests
//	throttled, err := gate.Enter(ctx, conn, ...) // waits for its turn among the requests of all
//	price, code := gate.Price(...)               // its cost for the members, and its share of the state
//	gate.Queue(&ticket, price, bytes)            // it waits for its answer
//	gate.Release(ticket)                         // once, however it ended
//
// Tickets add up: the sum of several is released at once.
//
// Every method may be called from several goroutines. Lock: none of the gate's locks is held while
// a method waits, logs, or looks at the state, except that the state's lock may be held by callers
// of Release, Queue, [Memory.Add] and the methods for watches.
package admission
