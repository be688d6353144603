// Package rafttest has helpers of the tests of quorum, quorum/raftnet and quorum/wal: servers,
// entries and requests of the raft library. It never opens a connection or a file. Begin with
// Hostile.
package rafttest
