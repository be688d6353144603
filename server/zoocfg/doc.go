// Package zoocfg is the configuration of a member: what a ZooKeeper configuration file may say, and the Config that
// comes of it.
//
//	cfg, err := zoocfg.Load("zoo.cfg")
//
// It reads the file and those that it points to, reports all faults at once with file, line and key, and describes
// every key for people; the table in keys.go serves both. It never opens a port, and changes nothing on disk. Begin
// with keys.go for what there is, and with file.go for how it is read.
package zoocfg
