// Package guard runs a command while a lock is held, and ends it with every process that it has
// started. Its owner is the goroutine that calls Start; a goroutine of its own waits for the end of
// the command and closes Child.Ended and Child.Done. On Unix the command is a child of a second
// process of this program, the guard, which kills the rest when the first one is killed: main calls
// Run for the argument Command.
package guard
