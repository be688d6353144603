package system

// Kinds are all systems, in the order of tables.
func Kinds() []Kind {
	return []Kind{
		{Name: "mariadb", Needs: needs("mariadb-server", "mariadbd", "mariadb-install-db"), Start: startMariaDB},
		{Name: "mariadb-replica", Needs: needs("mariadb-server", "mariadbd", "mariadb-install-db"), Start: startMariaDBReplica},
		{Name: "postgresql", Needs: needsPostgreSQL, Start: startPostgreSQL},
		{Name: "redis", Needs: needs("redis-server", "redis-server"), Start: startRedis},
		{Name: "redis-sentinel", Needs: needs("redis-server redis-sentinel", "redis-server", "redis-sentinel"), Start: startSentinel},
		{Name: "redis-3", Needs: needs("redis-server", "redis-server"), Start: startRedisThree},
		{Name: "redis-5", Needs: needs("redis-server", "redis-server"), Start: startRedisFive},
		{Name: "etcd", Needs: needs("etcd-server", "etcd"), Start: startEtcd},
		{Name: "zookeeper", Needs: needsZooKeeper, Start: startZooKeeper},
		{Name: "lockkeeper", Needs: func() error { return nil }, Start: startLockkeeper},
	}
}
