// Package audit writes the audit log: a line for each request that wanted to change something, in
// ZooKeeper's format, to a file of bounded size or to the member's own log.
//
// A request never waits for its line. Lines are collected in memory and written by one goroutine;
// when its disk is full, or slow, they wait there, up to a number of bytes. Lines beyond that are
// lost, counted, and reported in the log itself when it can be written again. A line is written as
// soon as possible and not synced: it survives the end of the process, but not a crash of the
// machine.
//
// A client chooses paths and names of users, so everything in a line is escaped: it can neither
// begin a line or a field, nor be read as another user's name.
//
// Begin with Open and Log.Audit; file.go has the rotation.
package audit
