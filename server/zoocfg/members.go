package zoocfg

import (
	"fmt"
	"net"
	"strconv"

	"lockkeeper/znode"
)

// Member is one machine of the cluster, as a server.N line of the configuration describes it.
type Member = znode.Member

// ConfigText is what the configuration says of /zookeeper/config at the first start. It is empty for
// a member alone.
func (c *Config) ConfigText() string { return znode.ConfigText(c.Members, 0) }

// SplitHostPort takes host:port apart; the host may be empty and the port 0.
func SplitHostPort(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q is no port number", p)
	}
	return host, int(n), nil
}
