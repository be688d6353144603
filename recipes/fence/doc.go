// Package fence lets a resource refuse late writers. It is for the resource's side: the program
// that owns the data or the effects that a lock protects. A lock service cannot guarantee that a
// holder still has the lock when its write arrives, because a process can be stopped between
// looking at its lock and writing. The package never talks to a cluster. Begin reading with Gate;
// File and Table follow the same rule.
//
// A holder sends the token of its grant (recipes.Grant.Token) along with every request. Tokens grow
// with every holder of a lock, so the resource remembers the largest that it has seen and refuses
// smaller ones:
//
//	token 33 --write--> ok          (largest seen: 33)
//	token 34 --write--> ok          (largest seen: 34)
//	token 33 --write--> refused     its holder was paused, and has lost the lock
//	token 34 --write--> ok          the same holder again
//
// There is a fence for each place in which data are:
//
//   - [Gate] in memory, [File] in a file that processes of one machine share
//   - [Table] in MariaDB, MySQL, PostgreSQL or SQLite: the check is in the transaction of the write
//   - [Redis]: the check is in the script that executes the write
//   - [Etcd]: the check is in the transaction of the write
//   - [Objects] in S3 and its kin: the write is conditional on the check
//   - nodes of the cluster itself: recipes.Grant.Guard, without a token
//   - "lockkeeper fence", an HTTP proxy, for a resource that cannot be changed
//
// None needs more than the standard library: a driver or a client is the caller's. clients/python
// and clients/java have the same fences, with the same table, keys, objects and file, so programs
// of the three languages may share a resource.
//
// They share one rule. A token that is smaller than the largest one seen for its resource is
// refused, with a [StaleError] that names both; an equal or larger one is accepted, and remembered
// before Check returns. Tokens start at 1.
//
// # Check and write together
//
// Check followed by a write is two steps: in between, a newer holder may come and write. That is
// harmless only if the write is made under the protection of Check: in the function given to Do,
// while which no larger token is accepted, or, with Table.CheckTx, in the same transaction. Redis,
// Etcd and Objects have no check beside a write of one's own: they make the write. A holder that
// reads before it writes calls their Check before it reads.
//
// # One memory of tokens
//
// Tokens are zxids of one cluster. They are comparable for one lock, and also for several, as long
// as they all come from the same cluster; a resource that is fenced by locks of two clusters is not
// fenced. Restoring a cluster from an older backup takes tokens back: then the remembered tokens
// have to be removed by hand.
//
// A Gate forgets when its process ends, after which it accepts an old token until it has seen a
// newer one. Where that matters use another one.
package fence
