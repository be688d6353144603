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
func (r *PathWatchRequest) Decode(d *Decoder) { r.Path, r.Watch = d.Path(), d.Bool() }

// PathRequest is the body of getACL, getAllChildrenNumber and deleteContainer.
type PathRequest struct{ Path string }

// Append encodes r.
func (r PathRequest) Append(b []byte) []byte { return appendString(b, r.Path) }

// Decode reads r from d.
func (r *PathRequest) Decode(d *Decoder) { r.Path = d.Path() }

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
func (r *DeleteRequest) Decode(d *Decoder) { r.Path, r.Version = d.Path(), d.Int32() }

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
func (r *CheckVersionRequest) Decode(d *Decoder) { r.Path, r.Version = d.Text(), d.Int32() }

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
func (r *SetDataRequest) Decode(d *Decoder) {
	r.Path, r.Data, r.Version = d.Text(), d.Buffer(), d.Int32()
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
func (r *SetACLRequest) Decode(d *Decoder) { r.Path, r.ACL, r.Version = d.Text(), d.ACLs(), d.Int32() }

// StatResponse answers exists, setData and setACL.
type StatResponse struct{ Stat Stat }

// Append encodes r.
func (r StatResponse) Append(b []byte) []byte { return r.Stat.Append(b) }

// Decode reads r from d.
func (r *StatResponse) Decode(d *Decoder) { r.Stat.Decode(d) }

// GetDataResponse answers getData and reconfig.
type GetDataResponse struct {
	Data []byte // nil = null
	Stat Stat
}

// Append encodes r.
func (r GetDataResponse) Append(b []byte) []byte { return r.Stat.Append(appendBuffer(b, r.Data)) }

// Decode reads r from d. Data aliases the input.
func (r *GetDataResponse) Decode(d *Decoder) {
	r.Data = d.Buffer()
	r.Stat.Decode(d)
}

// GetACLResponse answers getACL.
type GetACLResponse struct {
	ACL  []ACL
	Stat Stat
}

// Append encodes r.
func (r GetACLResponse) Append(b []byte) []byte { return r.Stat.Append(appendACLs(b, r.ACL)) }

// Decode reads r from d.
func (r *GetACLResponse) Decode(d *Decoder) {
	r.ACL = d.ACLs()
	r.Stat.Decode(d)
}

// GetChildrenResponse answers getChildren.
type GetChildrenResponse struct {
	Children []string // names, not paths, in any order
}

// Append encodes r.
func (r GetChildrenResponse) Append(b []byte) []byte { return appendStrings(b, r.Children) }

// Decode reads r from d.
func (r *GetChildrenResponse) Decode(d *Decoder) { r.Children = d.Strings() }

// GetChildren2Response answers getChildren2.
type GetChildren2Response struct {
	Children []string // names, not paths, in any order
	Stat     Stat
}

// Append encodes r.
func (r GetChildren2Response) Append(b []byte) []byte {
	return r.Stat.Append(appendStrings(b, r.Children))
}

// Decode reads r from d.
func (r *GetChildren2Response) Decode(d *Decoder) {
	r.Children = d.Strings()
	r.Stat.Decode(d)
}

// GetAllChildrenNumberResponse answers getAllChildrenNumber.
type GetAllChildrenNumberResponse struct {
	Total int32 // descendants at any depth
}

// Append encodes r.
func (r GetAllChildrenNumberResponse) Append(b []byte) []byte { return appendInt32(b, r.Total) }

// Decode reads r from d.
func (r *GetAllChildrenNumberResponse) Decode(d *Decoder) { r.Total = d.Int32() }

// GetEphemeralsRequest is the body of getEphemerals.
type GetEphemeralsRequest struct {
	PrefixPath string // null decodes as "": both mean all
}

// Append encodes r.
func (r GetEphemeralsRequest) Append(b []byte) []byte { return appendString(b, r.PrefixPath) }

// Decode reads r from d.
func (r *GetEphemeralsRequest) Decode(d *Decoder) { r.PrefixPath = d.Text() }

// GetEphemeralsResponse answers getEphemerals.
type GetEphemeralsResponse struct {
	Ephemerals []string // paths, in any order
}

// Append encodes r.
func (r GetEphemeralsResponse) Append(b []byte) []byte { return appendStrings(b, r.Ephemerals) }

// Decode reads r from d.
func (r *GetEphemeralsResponse) Decode(d *Decoder) { r.Ephemerals = d.Strings() }
