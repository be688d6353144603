package server

import (
	"strconv"

	"lockkeeper/znode"
)

// ParseConfigText reads the content of /zookeeper/config: the members in ascending order, and the version as it stands there.
func ParseConfigText(text string) (members []Member, version string, err error) {
	if text == "" {
		return nil, "", nil
	}
	ms, v, err := znode.ParseConfigText(text)
	return ms, strconv.FormatUint(uint64(v), 16), err
}
