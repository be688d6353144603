// Package gate is between a member that runs in this process and its clients: it cuts all of their
// connections at once, or freezes them, as the end and the stop of a process do. Packages locktest
// and demo (of cmd/lockkeeper) use it. Begin reading with Gate in gate.go, the only file.
//
// It has no goroutine of its own. One mutex guards a Gate; it is never held while anything waits.
package gate
