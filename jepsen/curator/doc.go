// Package curator checks that Apache Curator (Debian's packages, written for 5.4.0) works: each of
// its recipes, its service discovery and its additions to the plain operations, from several
// clients, with an effect that another client sees. It has tests only; a check is a method in a
// Java class below checks, and a subtest here.
//
//	go test ./jepsen/curator                          what CI runs
//	go test ./jepsen/curator -target zookeeper        the reference: all of it passes there
//	go test ./jepsen/curator -checks 'Queues|Leaders' some of the checks
//
// Most checks run against a cluster of three with settings as most people have them. The checks of
// containers and times to live run against one member that allows the latter and looks for expired
// nodes several times a second.
//
// curator-x-async is no package of Debian and so not here. It is a layer above
// the operations in the background, which are.
//
// # The program's protocol
//
// The Java program is told the servers' addresses, which set of checks to run
// (cluster or alone), and a regular expression for their names. It says on its
// standard output, a line for each
//
//	plan <check>                    a check that is going to be run
//	ok <ms> <check>                 what became of it, and how long it took
//	failed <ms> <check>: <why>
//	do kill <address>               have a member killed, by its client address
//	do start <address>...           have members started again
//	end                             all checks have been run
//
// and reads "ok", or the error, for each "do". It ends when its standard input does. Checks run
// side by side, each with nodes and clients of its own; the ones that kill members come after the
// others, one by one.
//
// # Goroutines
//
// None of its own; the two sets are tested side by side.
package curator
