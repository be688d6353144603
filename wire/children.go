package wire

// GetChildrenResponse answers getChildren.
type GetChildrenResponse struct {
	Children []string // names, not paths, in any order
}

// Append encodes r.
func (r GetChildrenResponse) Append(b []byte) []byte { return appendStrings(b, r.Children) }

// Decode reads r from d.
func (r *GetChildrenResponse) Decode(d *Decoder) error {
	r.Children = d.Strings()
	return d.Err()
}

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
func (r *GetChildren2Response) Decode(d *Decoder) error {
	r.Children = d.Strings()
	return r.Stat.Decode(d)
}

// GetAllChildrenNumberResponse answers getAllChildrenNumber.
type GetAllChildrenNumberResponse struct {
	Total int32 // descendants at any depth
}

// Append encodes r.
func (r GetAllChildrenNumberResponse) Append(b []byte) []byte { return appendInt32(b, r.Total) }

// Decode reads r from d.
func (r *GetAllChildrenNumberResponse) Decode(d *Decoder) error {
	r.Total = d.Int32()
	return d.Err()
}

// GetEphemeralsRequest is the body of getEphemerals.
type GetEphemeralsRequest struct {
	PrefixPath string // null decodes as "": both mean all
}

// Append encodes r.
func (r GetEphemeralsRequest) Append(b []byte) []byte { return appendString(b, r.PrefixPath) }

// Decode reads r from d.
func (r *GetEphemeralsRequest) Decode(d *Decoder) error {
	r.PrefixPath = d.Text()
	return d.Err()
}

// GetEphemeralsResponse answers getEphemerals.
type GetEphemeralsResponse struct {
	Ephemerals []string // paths, in any order
}

// Append encodes r.
func (r GetEphemeralsResponse) Append(b []byte) []byte { return appendStrings(b, r.Ephemerals) }

// Decode reads r from d.
func (r *GetEphemeralsResponse) Decode(d *Decoder) error {
	r.Ephemerals = d.Strings()
	return d.Err()
}
