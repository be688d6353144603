package wire

// Stat describes a node, without its data and ACL. The fields are in wire order; encoded they have
// 68 bytes.
type Stat struct {
	Czxid    Zxid  // update that created the node
	Mzxid    Zxid  // update that last set its data
	Ctime    int64 // creation, milliseconds since 1970
	Mtime    int64 // last change of the data, milliseconds since 1970
	Version  int32 // number of changes of the data
	Cversion int32 // number of changes of the set of children
	Aversion int32 // number of changes of the ACL
	// session the node goes away with; 0 = none; containers and TTL nodes mark themselves here
	EphemeralOwner SessionID
	DataLength     int32 // bytes
	NumChildren    int32
	Pzxid          Zxid // update that last created or deleted a child
}

// Append encodes s.
func (s Stat) Append(b []byte) []byte {
	b = appendInt64(b, int64(s.Czxid))
	b = appendInt64(b, int64(s.Mzxid))
	b = appendInt64(b, s.Ctime)
	b = appendInt64(b, s.Mtime)
	b = appendInt32(b, s.Version)
	b = appendInt32(b, s.Cversion)
	b = appendInt32(b, s.Aversion)
	b = appendInt64(b, int64(s.EphemeralOwner))
	b = appendInt32(b, s.DataLength)
	b = appendInt32(b, s.NumChildren)
	return appendInt64(b, int64(s.Pzxid))
}

// Decode reads s from d.
func (s *Stat) Decode(d *Decoder) {
	*s = Stat{
		Czxid:          Zxid(d.Int64()),
		Mzxid:          Zxid(d.Int64()),
		Ctime:          d.Int64(),
		Mtime:          d.Int64(),
		Version:        d.Int32(),
		Cversion:       d.Int32(),
		Aversion:       d.Int32(),
		EphemeralOwner: SessionID(d.Int64()),
		DataLength:     d.Int32(),
		NumChildren:    d.Int32(),
		Pzxid:          Zxid(d.Int64()),
	}
}
