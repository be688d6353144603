// Package rawsock reads from and writes to TCP connections without telling Go's scheduler of each system call.
//
// What package net does, package runtime prepares for taking long: it notes that a system call begins, and wakes the thread that looks
// after such calls (sysmon) if that sleeps, as it does when the process has nothing to do. That thread looks, sleeps for 20 us or the
// timer slack, looks again, and sleeps deeply once more. A member that waits for its clients, its peers and its disk in turn has nothing
// to do several times in each entry: with few clients that thread had a tenth of its CPU time, and of a load generator's with one client
// 43 %. Sockets of package net do not block, so their system calls take a few microseconds, and nobody needs to know of them. (Where
// the machine has no memory left they take longer, as everything does, and hold up what else would run on their processor.)
//
// Waiting, deadlines, and closing while somebody waits are package net's.
package rawsock
