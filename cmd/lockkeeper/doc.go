// Command lockkeeper runs a coordination server that speaks the ZooKeeper client protocol, and has
// commands that are clients of it. Each command is a struct with its flags as fields (see runner in
// main.go), and has a help page in help/. cobra finds the command and completes command lines for
// shells; Go's package flag parses the flags, with one dash or two. The command line never
// interprets the protocol or the state: it calls package server, and package recipes for the
// clients. Begin with main.go.
//
// A member prints one line on standard output when clients can connect, and its log on standard
// error. The exit status is 0 after a stop by a signal, 1 when the command failed, 2 for a wrong
// command line, and 128 plus the signal's number when a signal cut it short. The commands lock and
// elect end with the status of the command that they have run; 'lockkeeper help lock' has their
// own.
package main
