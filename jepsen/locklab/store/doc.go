// Package store has counters in real stores, each behind the fence of recipes/fence for that store:
// files, SQLite, MariaDB, PostgreSQL, Redis, etcd, and objects as in S3. Start starts the stores,
// which no fault hits; Open opens one for a holder in Go. The holders in Java and Python
// (clients/java, clients/python) have the same counters with fences of their own, and agree with
// these about names: counter.go has them.
package store
