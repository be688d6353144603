// Package redis has the locks that people keep in Redis, from SETNX to RedLock. Redisson's locks
// follow its documentation and source, with scripts and commands of our own, as Redisson is a Java
// library that the lab cannot install; RedLock is go-redsync/redsync. None of them gives out a
// token; only RedLock knows until when its lock is valid.
package redis
