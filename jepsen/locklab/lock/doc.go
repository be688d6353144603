// Package lock has the lock lab's interface of a way to lock: a client library, or a recipe on top
// of a database. A way follows the texts and the libraries that teach it, and no more; a zero value
// stands for a missing ability (tell its holder of a loss, give out a token). Its implementations
// are in the packages below ways; package system has the servers.
package lock
