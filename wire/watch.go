package wire

// Types of watches in a WatchesRequest.
const (
	WatchTypeChildren            = 1
	WatchTypeData                = 2
	WatchTypeAny                 = 3
	WatchTypePersistent          = 4
	WatchTypePersistentRecursive = 5
)

// Modes of an AddWatchRequest.
const (
	AddWatchPersistent          = 0
	AddWatchPersistentRecursive = 1
)

// WatchesRequest is the body of checkWatches and removeWatches.
type WatchesRequest struct {
	Path string // null decodes as "": no watch is there
	Type int32  // any number; one of the WatchType constants makes sense
}

// Append encodes r.
func (r WatchesRequest) Append(b []byte) []byte { return appendInt32(appendString(b, r.Path), r.Type) }

// Decode reads r from d.
func (r *WatchesRequest) Decode(d *Decoder) { r.Path, r.Type = d.Text(), d.Int32() }

// AddWatchRequest is the body of addWatch.
type AddWatchRequest struct {
	Path string // null decodes as "": a watch for which there is no event
	Mode int32  // any number; one of the AddWatch constants makes sense
}

// Append encodes r.
func (r AddWatchRequest) Append(b []byte) []byte { return appendInt32(appendString(b, r.Path), r.Mode) }

// Decode reads r from d.
func (r *AddWatchRequest) Decode(d *Decoder) { r.Path, r.Mode = d.Text(), d.Int32() }

// SetWatchesRequest is the body of setWatches and setWatches2: the watches a client had before it
// reconnected.
type SetWatchesRequest struct {
	V2           bool // not on the wire: the record is a setWatches2
	RelativeZxid Zxid // last update the client has seen

	Data, Exist, Child []string

	Persistent, PersistentRecursive []string // only in setWatches2
}

// Append encodes r, as setWatches2 has it when r.V2 is set.
func (r SetWatchesRequest) Append(b []byte) []byte {
	b = appendInt64(b, int64(r.RelativeZxid))
	b = appendStrings(b, r.Data)
	b = appendStrings(b, r.Exist)
	b = appendStrings(b, r.Child)
	if r.V2 {
		b = appendStrings(b, r.Persistent)
		b = appendStrings(b, r.PersistentRecursive)
	}
	return b
}

// Decode reads r from d, as setWatches2 has it when r.V2 is set. A null vector is an error, an
// empty one is not.
func (r *SetWatchesRequest) Decode(d *Decoder) {
	paths := func() []string {
		v := d.Strings()
		if v == nil {
			d.fail("null where a vector is needed")
		}
		return v
	}
	r.RelativeZxid = Zxid(d.Int64())
	r.Data, r.Exist, r.Child = paths(), paths(), paths()
	r.Persistent, r.PersistentRecursive = nil, nil
	if r.V2 {
		r.Persistent, r.PersistentRecursive = paths(), paths()
	}
}
