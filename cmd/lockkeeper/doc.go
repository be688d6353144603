// Command lockkeeper runs a coordination server that speaks the ZooKeeper client protocol.
//
//	lockkeeper                  one member alone, on port 2181, data in ./lockkeeper-data
//	lockkeeper serve zoo.cfg    a member as a ZooKeeper configuration file describes it
//	lockkeeper lock PATH CMD    run a command while holding a lock
//	lockkeeper elect PATH CMD   run a command while leading
//	lockkeeper locks [PATH]     who holds which lock, and who waits for it
//	lockkeeper cluster          show, add and remove members, transfer the leadership
//	lockkeeper log convert      the log of a stopped member into its other form
//	lockkeeper bench            load, and what it costs
//	lockkeeper digest USER      a superDigest from a password
//	lockkeeper version
//	lockkeeper help [command]
//
// A member prints one line on standard output when clients can connect, and its log on standard
// error. The exit status is 0 after a stop that was asked for, 1 when the member could not start or
// could not go on, 2 for a wrong command line, and 128 plus the signal's number when a second
// signal cut the stop short.
//
// The commands lock and elect end with the status of what they have run; 'lockkeeper help lock' has
// their own.
package main
