// Package lock says what the lock lab asks of a way to lock: a client library, or a recipe on top
// of a database. A way does what the texts and the libraries that teach it do, and no more; what
// it cannot do (tell its holder of a loss, give out a token) it says by a zero value. Its
// implementations are in the packages below ways; what they run against is in package system.
package lock
