// Package sessionfile keeps a session's id and password in a file, so that a process that is
// restarted in place takes up the session of the previous process, with its locks. file.go has the
// file, keeper.go the bookkeeping of a session that is taken up, os_linux.go the lock, the owner
// and the place of the file.
//
// Two processes that use one session would both believe in its locks. So a session is taken up only
// when the previous process has certainly ended: the file has a lock beside it that a process holds
// until its end, and the file says in which boot of which machine, and under which lock, it was
// written. The session of a copied file, of another machine or of another boot is left alone until
// it expires.
package sessionfile
