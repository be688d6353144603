// Package zoocfg is the configuration of a member: it reads a ZooKeeper configuration file into a
// Config, reports all faults at once with file, line and key, and describes every key for people.
// It never opens a port, and changes nothing on disk. Begin with the table in keys.go, which is the
// one source of what each key does, its default and its range; Load in file.go reads a file.
//
//	cfg, err := zoocfg.Load("zoo.cfg")
package zoocfg
