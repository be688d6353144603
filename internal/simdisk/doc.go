// Package simdisk keeps what a member of a raft cluster writes to its disk in
// memory, for tests that run whole clusters inside a testing/synctest bubble. It
// never touches a file. Begin reading with Disk and Disk.Crash.
//
// A [Disk] is a log store, a stable store and a snapshot store at once, and
// outlives the program that uses it: a restarted member opens the same Disk. A
// power cut is modelled by [Disk.Crash], which returns a copy with what was
// durable at that moment; whatever the old program still writes while it is
// being stopped goes to the old Disk, which nobody reads again.
//
// A write takes [Disk.SetSyncTime] of virtual time, and is durable when that is
// over. If a crash comes first, nothing of it is there, or, with
// [Disk.CrashTorn], its first records or all of it: nobody has been told.
// Reads cost nothing. [Disk.Fail] makes writes fail.
//
// So nothing that a program may rely on is ever lost. A program that forgets to
// sync is another matter: [Disk.SetWriteBack] makes the writes to one of the
// three files (log, vote and term, snapshots) return at once and become durable
// later, and a power cut loses those that have not.
//
// Everything that a reader gets is its own copy, as it would be from a file.
package simdisk
