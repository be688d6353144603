// Package simdisk is the disk of a member in memory, for tests that run whole clusters inside a
// testing/synctest bubble: a stable store, a snapshot store, and the file system below the log. It
// never touches a file, and never loses bytes that a program may rely on. Begin reading with Disk
// and Disk.CrashTorn, the effect of a power cut; file.go has the files.
//
// A [Disk] outlives the program that uses it: a restarted member opens the same Disk. A power cut
// is modelled by [Disk.Crash], which returns a copy with the content that was durable at that
// moment; later writes of the old program, which is being stopped, go to the old Disk, which nobody
// reads again.
//
// The log of a member is the real one, package quorum/wal, over [Disk.Files]. Bytes written to a
// file are durable after Sync, and a name after SyncDir; a sync takes [Disk.SetSyncTime] of virtual
// time. A power cut before that, with [Disk.CrashTorn], leaves any of the sectors that were written
// since the last sync, and any of the names.
//
// The other two stores keep values: a write takes the same time, and is durable when it returns. If
// a crash comes first, nothing or all of it is there. Reads cost nothing. [Disk.Fail] makes writes
// and syncs fail. For a program that forgets to sync, [Disk.SetWriteBack] makes the writes to a
// store return at once and become durable later.
//
// Everything that a reader gets is its own copy, as it would be from a file.
package simdisk
