package server

import (
	"strconv"

	"lockkeeper/server/zoocfg"
	"lockkeeper/znode"
)

// Config is the configuration of a member; see zoocfg.Config. The zero value is a member that is
// alone, listens on port 2181 of every address, and keeps its data in ./lockkeeper-data.
type Config = zoocfg.Config

// Member is one machine of the cluster, as a server.N line of the configuration describes it.
type Member = zoocfg.Member

// LoadConfig reads a zoo.cfg as ZooKeeper does; see zoocfg.Load.
func LoadConfig(file string, options ...zoocfg.Option) (Config, error) {
	return zoocfg.Load(file, options...)
}

// Unlimited turns a limit off; see zoocfg.Unlimited.
const Unlimited = zoocfg.Unlimited

// ParseConfigText reads the content of /zookeeper/config: the members in ascending order, and the
// version in hexadecimal. A member that is alone has neither.
func ParseConfigText(text string) (members []Member, version string, err error) {
	if text == "" {
		return nil, "", nil
	}
	ms, v, err := znode.ParseConfigText(text)
	return ms, strconv.FormatUint(uint64(v), 16), err
}
