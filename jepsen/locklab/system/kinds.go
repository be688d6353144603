package system

// majorities are the cuts of systems in which a majority decides.
var majorities = [][2]int{{1, 2}, {1, 3}, {2, 2}, {1, 4}, {2, 3}}

// replica is the cut of a primary with a replica.
var replica = [][2]int{{1, 1}}

// Kinds are all systems, in the order of tables.
func Kinds() []Kind {
	return []Kind{
		{Name: "mariadb", Needs: needs("mariadb-server", "mariadbd", "mariadb-install-db"), Start: startMariaDB},
		{Name: "mariadb-replica", Needs: needs("mariadb-server", "mariadbd", "mariadb-install-db"), Start: startMariaDBReplica,
			Cuts: replica},
		{Name: "postgresql", Needs: needsPostgreSQL, Start: startPostgreSQL},
		{Name: "redis", Needs: needs("redis-server", "redis-server"), Start: startRedis},
		{Name: "redis-sentinel", Needs: needs("redis-server redis-sentinel", "redis-server", "redis-sentinel"), Start: startSentinel,
			Cuts: replica},
		{Name: "redis-3", Needs: needs("redis-server", "redis-server"), Start: startRedisThree},
		{Name: "redis-5", Needs: needs("redis-server", "redis-server"), Start: startRedisFive, Cuts: majorities},
		{Name: "etcd", Needs: needs("etcd-server", "etcd"), Start: startEtcd, Cuts: majorities},
		{Name: "zookeeper", Needs: needsZooKeeper, Start: startZooKeeper, Cuts: majorities},
		{Name: "lockkeeper", Needs: func() error { return nil }, Start: startLockkeeper, Cuts: majorities},
	}
}
