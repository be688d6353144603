// Package etcd has the mutex of etcd's own Go client (client/v3/concurrency): a key under a lease
// that the client keeps alive, and a queue by the keys' revisions.
package etcd
