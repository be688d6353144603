// Package sql has locks in databases: a table of locks and GET_LOCK in MariaDB, and the advisory
// locks of PostgreSQL. None of them tells its holder of a loss or gives out a token.
//
// A version that is compared at the update (optimistic locking) is not among them: it lets
// everybody in and refuses late writes, so it is a fence, and the column "fenced" of the others
// shows its effect.
package sql
