// Package clients tests the packages for other languages: the locks of clients/java (over Curator,
// Debian's package, written for 5.4.0) and of clients/python (over kazoo, 2.8), which give out
// fencing tokens. It has tests only.
//
//	go test ./jepsen/clients                 what CI runs
//	go test ./jepsen/clients -run Planted    planted bugs, each of which a story has to find
//
// TestStories plays stories with processes that lock, against a cluster of lockkeeper and against
// ZooKeeper. A story is a function that returns an error if a promise of a grant is broken, so that
// the same stories judge copies of the clients with a planted bug.
//
// TestLocksPage runs the programs at the top of docs/locks.md against each other.
//
// # The contender's protocol
//
// A contender is a process with one client. Each of its locks has a handle, and each handle a
// thread. It reads commands, and says lines that begin with the time in ns (CLOCK_MONOTONIC):
//
//	<handle> open <kind> <path>    mutex, read, write: with =all for all layouts; lease=<leases>
//	<handle> acquire               granted <handle> <token> <node>
//	                               ended <handle> <reason>    later, when the grant ends
//	<handle> release               released <handle>
//	<handle> write                 wrote <handle> <token> <held>
//	<handle> close                 closed <handle>    the client, with all handles
//	<handle> trouble               troubled <handle>    the library notices no silence from then on
//
// or "failed <handle> <command> <error>". "wrote" has the token that a write would carry, and
// whether the grant stands. At first a contender says "ready". It ends with its standard input.
//
// # Goroutines
//
// One for each contender reads its lines, until the process ends.
package clients
