// Command peerbench measures locks of this project beside those that people use today, in one run:
// recipes.Mutex, Curator's InterProcessMutex, and etcd's concurrency.Mutex, against lockkeeper,
// ZooKeeper and etcd.
//
//	cd recipes/peerbench && go run . [-members 3] [-contenders 8] [-time 5s] [-rounds 3]
//
// It needs Debian's packages zookeeper, libcurator-recipes-java and etcd-server, and a JDK. The
// members are processes on this machine, on loopback, with their data on its disk, each with its
// defaults; the rounds take turns, and the median counts. It is a module of its own, so that nobody
// else depends on etcd's client.
package main
