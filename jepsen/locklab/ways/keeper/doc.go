// Package keeper has the locks in ZooKeeper and lockkeeper: Curator's InterProcessMutex and kazoo's
// Lock, unmodified, each in a process of its own language, and the Mutex of lockkeeper/recipes. A
// program hears of the event that the documentation of its library names: with Curator and kazoo
// that the connection is suspended, with recipes that the grant is lost.
//
// The fenced twins of both differ by one line, FencedMutex and FencedLock (clients/java,
// clients/python), and count in stores behind the fences of their language (holder). Many of them
// share a process.
//
// Chubby's lock-delay is the recipe's LockDelay. Its sequencers can be checked in two ways:
// compared with the newest that the resource has seen (the fence), or by asking the servers
// (asker). Data in the cluster itself are checked with the write, in one transaction
// (recipes.Grant.Guard).
package keeper
