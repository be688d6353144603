// Package zkcli types commands into ZooKeeper's own command line client (zkCli.sh of Debian's
// package, written for 3.8.0) and compares its output with its output when it is connected to
// ZooKeeper. It has tests only.
//
// The transcripts are in testdata, one file a theme:
//
//	# what this is about
//	> create /a one
//	  Created /a
//
//	> set -s /a two
//	> stat /nothing
//	  cZxid = z1
//	  ...
//	  Node does not exist: /nothing
//
// A line with > is a command, the indented lines below are its output. Commands that follow each
// other directly are typed together, with their output below the last one. {server} in a command is
// the server's address. Where lockkeeper prints something else, ZooKeeper's output is followed by a
// line "lockkeeper: " with the reason, and by its output.
//
// testdata/c has the same for cli_mt, the client that comes with the C library
// (Debian's package zookeeper-bin), one process for each command.
//
// # Comparable transcripts
//
// The client prints no prompt when it does not run in a terminal. So after each block of commands
// there are two more: a sync, answered by the thread that prints events, after the events of the
// block; and a stat of a path that does not exist and that names the block.
//
// Zxids become z1, z2, ... and sessions s1, s2, ... in the order in which they
// are seen first, so that it shows which are equal. Times, ports and the version
// of the client are replaced. Events come at the end of their block, in their
// order, as "event NodeDataChanged /a": the client prints them from a thread of
// their own. Changes of the connection's state are left out, for the same reason.
//
// # Running
//
//	go test ./jepsen/zkcli             both servers print what the files say
//	go test ./jepsen/zkcli -update     write the files anew, with what ZooKeeper prints
//
// # Goroutines
//
// None of its own; tests run side by side.
package zkcli
