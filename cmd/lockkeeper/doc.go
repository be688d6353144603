// Command lockkeeper runs a coordination server that speaks the ZooKeeper client protocol, and is a
// client of it on the command line. 'lockkeeper help' lists its commands; each is a runner in a
// file of its own, whose fields are its flags. It never knows the protocol or the state: package
// server does, and package recipes for the clients. Begin with main.go.
//
// A member prints one line on standard output when clients can connect, and its log on standard
// error. The exit status is 0 after a stop that was asked for, 1 when the command failed, 2 for a
// wrong command line, and 128 plus the signal's number when a signal cut it short. The commands
// lock and elect end with the status of what they have run; 'lockkeeper help lock' has their own.
package main
