// Package jepsen drives whole clusters as a user would meet them, breaks them,
// and checks what was seen: real server processes, real client processes with
// unmodified client libraries, real sockets. It imports none of the server's
// packages; what it knows of a server is its command line, its configuration
// file, the client protocol and the four-letter words. So the same tests run
// against lockkeeper and against ZooKeeper.
//
// # Parts
//
//	Toolbox   builds the programs: lockkeeper, the workers
//	Cluster   1 or more Members, each a process of a Target with its own zoo.cfg
//	Links     the network between the members, to be cut in any direction:
//	Network   hosts of their own for the members (Linux namespaces)
//	Proxies   the same on the loopback, for those who are not root
//	Worker    a client process, in Python, Java or Go, that does what it is told
//	History   what happened, in order: invoke, ok, fail, info
//	Scratch   a directory that goes with this process
//
// What clients do, and the checkers, are in package jepsen/workload; what breaks clusters is in
// package jepsen/run. The tests of this package are those that need one cluster to be led step by
// step. Whether two clients hold one lock is decided outside of the cluster, from the history: see
// History for why an overlap found there is a real one.
//
// # The workers' protocol
//
// The test listens, the worker calls. Lines of words, separated by blanks. The
// test sends commands; the worker carries out those of one thread one after
// another, those of different threads side by side, and answers each once:
//
//	> <id> <thread> open <handle> <recipe> <path> [name=value...]
//	> <id> <thread> acquire <handle> <timeout in ms, -1: none>
//	> <id> <thread> release <handle>
//	> <id> <thread> cancel <handle>          give up a waiting acquire
//	> <id> <thread> contenders <handle>      who is in the queue
//	> <id> <thread> check <handle>           can the lock still be relied on?
//	> <id> main close                        end the session and the process
//	< <id> ok [result]
//	< <id> fail <what the library threw>     it certainly did not happen
//	< <id> info <what the library threw>     it may have happened
//
// The result of acquire is the fencing token (0 if the recipe has none); a
// lock that is not acquired in time answers "fail timeout". Unasked, a worker
// says what its library tells it:
//
//	< event connected <member's address> <session>
//	< event suspended                        no connection; the session may live
//	< event expired                          the session is over
//	< event lost <handle>                    the recipe gave up the lock
//
// A worker ends when its connection to the test does.
//
// # Goroutines
//
// Each Process has one that starts it and waits for it; it ends with the
// process. Each Worker has one that reads its lines; it ends with the
// connection, and Kill waits for it. Proxies have one per listener and five per
// connection; Close ends them and waits for them.
package jepsen
