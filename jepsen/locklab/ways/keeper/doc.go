// Package keeper has the locks in ZooKeeper and lockkeeper: Curator's InterProcessMutex and kazoo's
// Lock, unmodified, each in a process of its own language, and the Mutex of lockkeeper/recipes.
// What a program is told is what the documentation of each library says to listen to: with Curator
// and kazoo that the connection is suspended, with recipes that the grant is lost.
//
// Chubby's lock-delay is the recipe's LockDelay. A sequencer is checked here in one of its three
// ways, compared with the newest that the resource has seen (the fence); recipes.Grant.Guard, which
// asks the service, protects what is in the cluster, and the lab's resource is not.
package keeper
