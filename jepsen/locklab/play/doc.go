// Package play plays the stories of the lock lab: three clients of one way to lock, each of them a
// process of its own, contend for a resource while a fault hits the first of them or the servers.
// Their operations and answers, with times on the monotonic clock of the machine, are the history
// of a Round; package judge judges it.
//
//	  client A --- proxies --- servers         the lab delays, cuts
//	     |   \____ proxy _____ ledger          the lab delays
//	commands, events
//	     |
//	    lab ---- SIGSTOP, SIGKILL, clocks ---- clients, servers
//
// A client follows the lab's commands, one step at a time, so that a fault falls between two steps,
// or into one, and not near it by chance. The servers are started once for each system; each round
// has a resource that nobody used before.
package play
