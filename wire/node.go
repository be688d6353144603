package wire

// PathWatchRequest is the body of exists, getData, getChildren and getChildren2.
type PathWatchRequest struct {
	Path  string // not validated; "" is the root
	Watch bool
}

// Append encodes r.
func (r PathWatchRequest) Append(b []byte) []byte {
	return appendBool(appendString(b, r.Path), r.Watch)
}

// Decode reads r from d.
func (r *PathWatchRequest) Decode(d *Decoder) error {
	r.Path = d.Path()
	r.Watch = d.Bool()
	return d.Err()
}

// PathRequest is the body of getACL, getAllChildrenNumber and deleteContainer.
type PathRequest struct{ Path string }

// Append encodes r.
func (r PathRequest) Append(b []byte) []byte { return appendString(b, r.Path) }

// Decode reads r from d.
func (r *PathRequest) Decode(d *Decoder) error {
	r.Path = d.Path()
	return d.Err()
}

// DeleteRequest is the body of delete.
type DeleteRequest struct {
	Path    string
	Version int32 // expected Stat.Version; -1 = any
}

// Append encodes r.
func (r DeleteRequest) Append(b []byte) []byte {
	return appendInt32(appendString(b, r.Path), r.Version)
}

// Decode reads r from d.
func (r *DeleteRequest) Decode(d *Decoder) error {
	r.Path = d.Path()
	r.Version = d.Int32()
	return d.Err()
}

// CheckVersionRequest is the body of check, which exists only inside a multi.
type CheckVersionRequest struct {
	Path    string // null decodes as "": both are CodeBadArguments
	Version int32  // expected Stat.Version; -1 = any
}

// Append encodes r.
func (r CheckVersionRequest) Append(b []byte) []byte {
	return appendInt32(appendString(b, r.Path), r.Version)
}

// Decode reads r from d.
func (r *CheckVersionRequest) Decode(d *Decoder) error {
	r.Path = d.Text()
	r.Version = d.Int32()
	return d.Err()
}

// SetDataRequest is the body of setData.
type SetDataRequest struct {
	Path    string // null decodes as "": both are CodeBadArguments
	Data    []byte // nil = null, which is stored and is not the same as empty
	Version int32  // expected Stat.Version; -1 = any
}

// Append encodes r.
func (r SetDataRequest) Append(b []byte) []byte {
	b = appendString(b, r.Path)
	b = appendBuffer(b, r.Data)
	return appendInt32(b, r.Version)
}

// Decode reads r from d. Data aliases the input.
func (r *SetDataRequest) Decode(d *Decoder) error {
	r.Path = d.Text()
	r.Data = d.Buffer()
	r.Version = d.Int32()
	return d.Err()
}

// SetACLRequest is the body of setACL.
type SetACLRequest struct {
	Path    string // null decodes as "": both are CodeBadArguments
	ACL     []ACL  // nil = null
	Version int32  // expected Stat.Aversion; -1 = any
}

// Append encodes r.
func (r SetACLRequest) Append(b []byte) []byte {
	b = appendString(b, r.Path)
	b = appendACLs(b, r.ACL)
	return appendInt32(b, r.Version)
}

// Decode reads r from d.
func (r *SetACLRequest) Decode(d *Decoder) error {
	r.Path = d.Text()
	r.ACL = d.ACLs()
	r.Version = d.Int32()
	return d.Err()
}

// StatResponse answers exists, setData and setACL.
type StatResponse struct{ Stat Stat }

// Append encodes r.
func (r StatResponse) Append(b []byte) []byte { return r.Stat.Append(b) }

// Decode reads r from d.
func (r *StatResponse) Decode(d *Decoder) error { return r.Stat.Decode(d) }

// GetDataResponse answers getData and reconfig.
type GetDataResponse struct {
	Data []byte // nil = null
	Stat Stat
}

// Append encodes r.
func (r GetDataResponse) Append(b []byte) []byte { return r.Stat.Append(appendBuffer(b, r.Data)) }

// Decode reads r from d. Data aliases the input.
func (r *GetDataResponse) Decode(d *Decoder) error {
	r.Data = d.Buffer()
	return r.Stat.Decode(d)
}

// GetACLResponse answers getACL.
type GetACLResponse struct {
	ACL  []ACL
	Stat Stat
}

// Append encodes r.
func (r GetACLResponse) Append(b []byte) []byte { return r.Stat.Append(appendACLs(b, r.ACL)) }

// Decode reads r from d.
func (r *GetACLResponse) Decode(d *Decoder) error {
	r.ACL = d.ACLs()
	return r.Stat.Decode(d)
}
