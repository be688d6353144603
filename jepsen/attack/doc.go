// Package attack plays what somebody without any right can send to the ports of a cluster, on real
// processes, with bystanders beside it, and says what it did to them. Each attack is an entry of a
// table: what is sent, to which port, what the attacker may be told, and how much it must have sent
// to count as played. So the list is also what a member withstands; docs/attack.md has it with the
// figures of lockkeeper and of ZooKeeper.
//
//	Attack    one of the table: requests.go, buffers.go, floods.go, peers.go, others.go
//	Play      an attack under way: what it sends, and what the attacker has seen
//	client    an attacker's session, byte by byte       peer.go   an attacker between members
//	user      a bystander: an unmodified go-zookeeper that holds a lock, sets and gets
//	Run       a cluster of three, its users, and the attacks, one after the other
//	Result    what one attack has done; Document those of a run, Report the same as a page
//
// # What is judged
//
// The users' sessions and locks stay. The 99th percentile of their operations stays within twice
// that of the moment before, or 100 ms; an operation counts from when it was due, so one that hangs
// does not hide those behind it. Members live, take no more memory than they may, take writes, hold
// the same, and, where the attack aims at what stays, start again from their disks. The attacker sees
// nothing but what it may see.
//
// An attack that was not what it was meant to be fails, and says that it saw too little: that nobody
// was harmed by an attacker who was turned away for another reason proves nothing.
//
// # What attackers have
//
// They come from addresses of their own (127.0.66.1 and on), except on the peer port, where they come
// from the members', and with threads of the lowest priority, for on a network they have machines of
// their own. A member has 1,024 file descriptors and otherwise the settings that it has by default.
//
// # Goroutines
//
// A user has one, which ends with its cluster. An attack has those that it starts, and waits for them.
package attack
