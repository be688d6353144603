package server

import "lockkeeper/server/zoocfg"

// Config is everything that a member can be told. The zero value is a member that is alone, listens on
// port 2181 of every address, and keeps its data in ./lockkeeper-data.
type Config = zoocfg.Config

// Member is one machine of the cluster, as a server.N line of the configuration describes it.
type Member = zoocfg.Member

// LoadConfig reads a zoo.cfg as ZooKeeper does; see zoocfg.Load.
func LoadConfig(file string, options ...zoocfg.Option) (Config, error) {
	return zoocfg.Load(file, options...)
}

// Unlimited turns MaxClientCnxns, Limits.MultiReadOps and Limits.MultiReadBytes off.
const Unlimited = zoocfg.Unlimited
