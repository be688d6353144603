// Package workload has the clients' operations under faults, and the checkers that find in the
// history whether the promises were kept. It never injects faults, and never knows whether the
// servers are lockkeeper's or ZooKeeper's, processes or simulated: clients reach them through
// Env.Dial. Begin reading with Workload in workload.go: a kind of client (once.go) and its checker
// (oncecheck.go), a pure function of the history. testdata has histories for every checker, good
// and bad, each with its verdict below it.
//
//	register       C4       reads behind a sync, writes, compare-and-set; linearizable
//	session-order  C2, C3   sessions that move between members with requests under way
//	belief         C6       what a library believes, beside when its session was over
//	lock           C6       every recipe, and a resource that checks fencing tokens
//	exactly-once   C5       counters, many requests at once on one connection
//	ephemeral      C7       sessions that end in every way, and who looks on
//	durability     C1       what was answered is there at the end, and nothing refused
//	libraries      C6       locks by kazoo, Curator and go-zookeeper
//
// An operation is an Invoke and, with the same Worker and ID, its end. It took effect between the
// two, also if the client's process was stopped in between. Only a library's belief (belief, lock)
// is excused while its process did not run or its own link was disturbed, for C6 says nothing of
// that: a nemesis that does so enters FPause and FResume, or FCut and FHeal, with the [Worker], the
// first before it begins and the second after it is over. Clients of go-zookeeper enter FConnected
// with the session timeout in ms as Value, FSuspended with the time in ms since the last byte,
// FExpired. The others have a link of their own, which sees every frame in its order.
package workload
