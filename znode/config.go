package znode

import (
	"bytes"
	"strconv"

	"lockkeeper/wire"
)

// setConfig makes text the data of /zookeeper/config, if it is not already. The Stat is that of
// ZooKeeper (docs/protocol/admin.md section 6.2): version -1, and as mzxid the version that the
// last line of the text states.
func (s *Store) setConfig(text []byte) {
	i := s.paths[configPath]
	old := s.nodes.row(i).data
	if bytes.Equal(old, text) {
		return
	}
	n := s.edit(i)
	n.version = -1
	n.mzxid, n.mtimeMs = s.configZxid(text), s.timeMs
	s.replaceData(i, n, append([]byte{}, text...))
	if len(old) > 0 {
		s.event(wire.EventNodeDataChanged, n)
	}
}

// configZxid returns the version in the last line of a config text, or the command's zxid if there
// is none.
func (s *Store) configZxid(text []byte) wire.Zxid {
	last := text[bytes.LastIndexByte(text, '\n')+1:]
	if digits, ok := bytes.CutPrefix(last, []byte("version=")); ok {
		if v, err := strconv.ParseUint(string(digits), 16, 64); err == nil {
			return wire.Zxid(v)
		}
	}
	return s.tx.zxid
}
