// Package clock is the time that passes on one machine, by which leases and proofs of leadership
// count. Nobody sets it, and it knows the time for which the machine was suspended.
//
// The monotonic clock of Linux and of macOS stands still during a suspend, and with it all timers
// of Go. So a member has two readings of time, and uses the one that errs on the safe side:
//
//   - Now goes on during a suspend. It is for times that allow to act: a lease, a proof of
//     leadership.
//   - Awake stands still. It is for times that end something: the expiry of sessions, the time
//     to live of nodes.
package clock
